// Package storetest has what tests of and with an exec.Store need: the suite that every
// implementation has to pass ([Run]), one in memory ([Memory]), and one that fails on demand ([Faulty]).
//
// It is for tests only. It knows nothing of how a Store keeps what it is given, and tests no durability:
// that is for the tests of an implementation which claims any.
package storetest
