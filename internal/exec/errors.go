package exec

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"bashd/internal/sandbox"
)

// Code is the machine-readable kind of an [Error]. Transports map it to their
// own statuses.
type Code string

// The codes that methods of this package return.
const (
	CodeInvalidArgument    Code = "INVALID_ARGUMENT"
	CodeModeNotAllowed     Code = "MODE_NOT_ALLOWED"
	CodeNotFound           Code = "NOT_FOUND"
	CodeConflict           Code = "CONFLICT"
	CodeGone               Code = "GONE"
	CodeWorkdirUnusable    Code = "WORKDIR_UNUSABLE"
	CodeLimitReached       Code = "LIMIT_REACHED"
	CodeSandboxUnavailable Code = "SANDBOX_UNAVAILABLE"
	CodeStartFailed        Code = "START_FAILED"
	CodeShuttingDown       Code = "SHUTTING_DOWN"
	CodeInternal           Code = "INTERNAL"
)

// Error is the one error type that callers of this package have to know.
// Message is meant for the caller; Err, if any, is for the log only.
type Error struct {
	Code       Code
	Message    string
	Fields     []FieldError  // for CodeInvalidArgument
	Kind       string        // for CodeStartFailed: shell-missing, not-executable, argument-too-long, no-memory, no-processes, bad-user, internal
	RetryAfter time.Duration // for CodeLimitReached and CodeShuttingDown; of CodeConflict where waiting helps
	Err        error
}

// FieldError says what is wrong with one field of a request, named as the
// wire names it.
type FieldError struct {
	Field   string
	Message string
}

// Error is Message, with the inner error where there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// Unwrap returns the inner error.
func (e *Error) Unwrap() error { return e.Err }

func invalid(field, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	return &Error{Code: CodeInvalidArgument, Message: field + ": " + msg, Fields: []FieldError{{field, msg}}}
}

func conflict(format string, args ...any) *Error {
	return &Error{Code: CodeConflict, Message: fmt.Sprintf(format, args...)}
}

// errPlace says that a directory of ours, which a command needs, cannot be had: a full or
// read-only disk. It tells the caller why, and not where.
func errPlace(what string, err error) *Error {
	reason := "input/output error"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		reason = errno.Error()
	}
	return &Error{Code: CodeStartFailed, Kind: sandbox.KindInternal, Message: what + ": " + reason, Err: err}
}

// maxToldID bounds what is repeated of an id that is none, in bytes; ours are shorter.
const maxToldID = 64

// errNotFound is the one answer to an unknown id and to someone else's.
func errNotFound(k Kind, id string) *Error {
	noun := "task" // of any kind, too: followers are told of tasks
	if k == Foreground {
		noun = "run"
	}
	if len(id) > maxToldID {
		id = id[:maxToldID] + "…"
	}
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("no %s %q", noun, id)}
}

// errStore says that something cannot be promised to last, because the store does not take it.
// Nothing was started.
func errStore(what string, err error) *Error {
	return &Error{
		Code: CodeStartFailed, Kind: sandbox.KindInternal, Err: err,
		Message: what + " cannot be recorded, and nothing was started: the server's store does not take it; see /readyz",
	}
}
