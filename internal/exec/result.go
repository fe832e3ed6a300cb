package exec

import (
	"syscall"
	"time"

	"bashd/internal/sandbox"
)

// Cause is what of ours cut a command short. The first one wins.
type Cause string

// The causes.
const (
	CauseNone       Cause = ""
	CauseTimeout    Cause = "timeout"
	CauseDisconnect Cause = "disconnect" // the caller went away
	CauseKill       Cause = "kill"
	CauseShutdown   Cause = "shutdown"
)

// Kind tells a run, which somebody waits for, from a task, which nobody has to.
type Kind string

// The kinds of a command.
const (
	Foreground Kind = "foreground"
	Background Kind = "background"
	// AnyKind is, where a kind is asked for, either.
	AnyKind Kind = ""
)

// Run is a snapshot of one command: a foreground run or a background task, a running one, or the
// facts about a settled one. A snapshot never changes.
type Run struct {
	ID     string
	Owner  Owner
	Kind   Kind
	Spec   Spec
	Status Status
	// Yielded: it began as a foreground run and became a task at that point; nil: it did not.
	Yielded *YieldPoint
	// Unrecorded: it has settled, and the store could not record that yet. A crash now would
	// lose these facts.
	Unrecorded bool

	ExitCode *int           // nil: still running, or died of a signal
	Signal   syscall.Signal // 0: none
	Cause    Cause
	Detail   string // why a failed run is failed

	Stdout, Stderr Stream
	Sandbox        SandboxFacts

	StartedAt         time.Time
	FinishedAt        time.Time // zero while running
	Duration          time.Duration
	DrainIncomplete   bool // a survivor held the pipes; output after the bound was dropped
	SurvivorsKilled   int
	CleanupIncomplete bool // the tree could not be proven empty within the bound
	Usage             sandbox.Usage
}

// TimedOut reports that the run's own timeout cut it short.
func (r Run) TimedOut() bool { return r.Cause == CauseTimeout }

// Aborted reports that the caller went away or the server drained.
func (r Run) Aborted() bool { return r.Cause == CauseDisconnect || r.Cause == CauseShutdown }

// Stream is what is known of one output stream.
type Stream struct {
	Tail         []byte // the last bytes, at most the stream's bound; of a task only where no file is complete
	Truncated    bool   // the stream is longer than its bound in memory
	Bytes        int64  // length of the whole stream
	RetainedFrom int64  // the first offset that can still be read
	HasFile      bool   // a file holds the stream, complete
	SpillPath    string // absolute path of that file; only when Truncated
}

// SandboxFacts are the facts about the confinement of one run.
type SandboxFacts struct {
	Mode        sandbox.Mode
	Enforcement sandbox.Enforcement // empty under full access
	Gaps        []string
	Denied      bool
	Denial      *Denial // set when Denied
	Hint        string  // what the caller may do about a denial; may be empty
	// RunnerFailed: a task's runner failed after its admission, and the command did not run.
	RunnerFailed bool
}

// Denial is what a denial rests on.
type Denial struct {
	Path     string
	Evidence string
}
