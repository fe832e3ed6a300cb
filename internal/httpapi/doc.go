// Package httpapi is the REST face of bashd: routes, identity, the checks that
// keep browsers and commands out, strict JSON in, documented JSON out, problems
// (RFC 9457) for everything that is not an answer.
//
// A request passes, in this order: request id → log and metrics → panic guard →
// caller, host and origin → identity → body limits → a handler of a few lines.
// routes.go shows all of it on one screen. The document that clients read,
// openapi.yaml, is held to this package by its tests: every response of the
// suite is validated against it.
//
// # What it refuses to do
//
// It decides nothing about commands: defaults, caps, admission and visibility
// are those of package exec, which is asked through [Runner]. It never logs,
// stores or echoes a token, an environment value, stdin, a command or a query
// string; of a caller it keeps the SHA-256 that names an owner. It guesses
// nothing: a field, a query parameter or a header that it does not know how to
// honour is an error that names it, so that a misspelt limit is never a command
// without one.
//
// # What it cannot do
//
// A few answers are net/http's own and come as plain text without a request
// id: 431 for header fields beyond 64 KiB and 400 for what is no HTTP.
package httpapi
