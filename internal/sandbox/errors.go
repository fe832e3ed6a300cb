package sandbox

import (
	"errors"
	"fmt"
	"syscall"

	"bashd/internal/sandbox/runner"
)

// ErrNoMemoryLimit says that memory is to be limited where that cannot be done.
var ErrNoMemoryLimit = errors.New("memory cannot be limited here: that needs a control group of version 2 with the memory controller, delegated to this process alone")

// UnavailableError says that a confined mode cannot be enforced, or that the
// runner failed before the command ran. The command did not run.
type UnavailableError struct {
	Stage  string // the step that failed; "probe" when the host cannot enforce the mode
	Detail string
}

// Error names the stage and the reason.
func (e *UnavailableError) Error() string { return e.Stage + ": " + e.Detail }

// The kinds of a [StartError].
const (
	KindShellMissing    = "shell-missing"
	KindNotExecutable   = "not-executable"
	KindArgumentTooLong = "argument-too-long"
	KindNoMemory        = "no-memory"
	KindNoProcesses     = "no-processes"
	KindInternal        = "internal"
)

// StartError says that bash cannot be started. The command did not run.
type StartError struct {
	Kind string
	Err  error
}

// Error says what happened.
func (e *StartError) Error() string {
	return fmt.Sprintf("bash cannot be started (%s): %v", e.Kind, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// WorkdirError says that a working directory cannot be used, and why.
type WorkdirError struct {
	Path   string
	Reason string
}

// Error names the directory and the reason.
func (e *WorkdirError) Error() string { return fmt.Sprintf("workdir %q %s", e.Path, e.Reason) }

// WorkdirReason says in words why a directory cannot be entered.
func WorkdirReason(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return "does not exist"
	case errors.Is(err, syscall.ENOTDIR):
		return "is not a directory"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "cannot be entered: permission denied"
	case errors.Is(err, syscall.ELOOP):
		return "cannot be entered: too many levels of symbolic links"
	case errors.Is(err, syscall.ENAMETOOLONG):
		return "cannot be entered: its name is too long"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return "cannot be entered: " + errno.Error()
	}
	return "cannot be entered"
}

// startFailure turns what a runner reports into one of the errors above. A
// step that concerns the machine and not the confinement is a StartError in every mode.
func startFailure(mode Mode, workdir string, e *runner.StartError) error {
	switch e.Stage {
	case runner.StageWorkdir:
		return &WorkdirError{workdir, WorkdirReason(e.Errno)}
	case runner.StageExec:
		return &StartError{execKind(e.Errno), e}
	case runner.StageClone:
		return &StartError{cloneKind(e.Errno), e}
	}
	if mode.Confined() {
		return &UnavailableError{e.Stage.String(), restrictReason(e)}
	}
	return &StartError{KindInternal, e}
}

// restrictReason says in words why a command could not be confined.
func restrictReason(e *runner.StartError) string {
	if e.Errno == syscall.E2BIG && (e.Stage == runner.StageSweeper || e.Stage == runner.StageLandlock) {
		return "the kernel allows no further Landlock layer: bashd itself runs below too many (16 at most, of which a command needs up to three)"
	}
	if e.Errno == 0 {
		return "what must be refused was not: the kernel, or a filter before it, says yes and does nothing"
	}
	return e.Errno.Error()
}

func execKind(errno syscall.Errno) string {
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return KindShellMissing
	case syscall.EACCES, syscall.EPERM, syscall.ENOEXEC:
		return KindNotExecutable
	case syscall.E2BIG:
		return KindArgumentTooLong
	}
	return cloneKind(errno)
}

func cloneKind(errno syscall.Errno) string {
	switch errno {
	case syscall.ENOMEM:
		return KindNoMemory
	case syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE:
		return KindNoProcesses
	}
	return KindInternal
}
