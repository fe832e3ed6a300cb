// Package exec is the domain of bashd: it turns a Request into a Spec, runs
// the Spec in the sandbox and reports a Result, a set of facts that are told
// apart and never folded into one another: exit code, signal, timed out,
// aborted, denied.
//
// Request → Spec happens once, in [Manager.Resolve]: every default is filled
// in, every cap applied, and what is below reads the Spec and never the
// configuration. The Manager admits, starts, watches, kills and remembers; each
// look-up takes the caller, and "not yours" and "not there" are one answer.
//
// # Life of a command
//
//	running ──exit──────────────→ completed
//	   │  ──signal──────────────→ killed
//	   ├──kill/timeout/abort→ stopping ──gone──→ killed   (exitCode as a trap left it)
//	   │                         └──it had ended by itself before a signal reached it→ completed or killed, without cause
//	   └──spawn or runner fails, server lost───→ failed
//
// A terminal status is never left. The table in status.go is the one place
// that knows this; everything else asks it.
//
// # What it refuses to do
//
// It knows no HTTP, no JSON and no environment variable of the service. It does
// not confine anything itself (package sandbox does) and keeps no output
// (package output does). It holds no token: an owner is the key that the
// transport made of one.
package exec
