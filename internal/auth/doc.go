// Package auth knows the API tokens of closed mode: which there are, in whose
// name each one calls, and what it may do. It reads the file that lists them,
// and makes new ones.
//
// The file has one token a line; several lines may share a name, which makes
// them one tenant:
//
//	# empty lines and comments like this one are skipped
//	ci:<SHA-256 of the token, 64 hex digits>
//	ci:<another>:run,metrics
//
// It holds hashes only, so whoever reads it cannot call. It may be a symbolic
// link, as mounted secrets are. Replace it by a rename: one that is rewritten
// in place can be read half done.
//
// # What it refuses to do
//
// It keeps no token and logs nothing. Its errors name a line by its number and
// quote nothing of it: what is wrong there may be the token itself, put where
// its hash belongs. It skips nothing that it does not understand: one bad line
// and the whole file is refused, for a token that was meant to be narrowed must
// not stay wide. It takes no file that anybody but its owner may write.
//
// # What it cannot do
//
// It cannot tell a strong token from a weak one. A plain SHA-256 protects the
// tokens that [New] makes, which have 256 random bits; a word that somebody
// hashed by hand can be guessed by whoever reads the file. Who may replace the
// file in its directory is the operator's to see to.
package auth
