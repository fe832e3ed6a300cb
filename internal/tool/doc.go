// Package tool turns what happened into the words that a model, or a person
// with curl, reads: the texts are exact, because models and harnesses match on
// them.
//
// Everything here is a pure function of its arguments. The package starts
// nothing, decides nothing about access and knows no transport; it renders
// facts and never judges them. A non-zero exit code is not an error here.
package tool
