package exec

import "slices"

// Status is where a command is in its life.
type Status string

// The statuses. Completed, killed and failed are terminal.
const (
	StatusRunning   Status = "running"
	StatusStopping  Status = "stopping"  // a cause was fixed and signals were sent; the tree is not gone yet
	StatusCompleted Status = "completed" // exited by itself, any exit code
	StatusKilled    Status = "killed"    // by a signal, a kill, a timeout or an abort
	StatusFailed    Status = "failed"    // never ran, or was lost
)

// transitions is the whole life-cycle; see the package comment for the
// drawing. What is not here does not happen.
var transitions = map[Status][]Status{
	StatusRunning:  {StatusStopping, StatusCompleted, StatusKilled, StatusFailed},
	StatusStopping: {StatusCompleted, StatusKilled, StatusFailed},
}

// Terminal reports that s is never left again.
func (s Status) Terminal() bool {
	return s == StatusCompleted || s == StatusKilled || s == StatusFailed
}

// CanBecome reports that the life-cycle allows s → next.
func (s Status) CanBecome(next Status) bool {
	return slices.Contains(transitions[s], next)
}
