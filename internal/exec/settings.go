package exec

import (
	"log/slog"
	"time"

	"bashd/internal/metrics"
	"bashd/internal/output"
	"bashd/internal/sandbox"
)

// Settings are the configuration as far as this package is concerned. Sizes are bytes.
type Settings struct {
	StateDir         string // exists; ours alone, but for RunAs to pass
	Workspace        string // exists; RunAs can pass it
	WorkspaceShared  bool   // Workspace itself serves everybody; else one directory an owner in it
	DefaultMode      sandbox.Mode
	MaxMode          sandbox.Mode // the widest that a caller may choose
	Timeout          time.Duration
	MaxTimeout       time.Duration
	Grace            time.Duration // SIGTERM → SIGKILL
	Drain            time.Duration // how long runs may still finish at shutdown
	MaxOutputBytes   int           // a stream, in memory
	MaxSpillBytes    int64         // a stream, on disk
	MaxRunning       int           // commands at once
	MaxTasksPerOwner int           // background tasks at once, of an owner and session
	Retention        time.Duration // how long settled commands are remembered at most
	MaxStateBytes    int64         // of output and records in all
	Environ          []string      // the daemon's own
	EnvKeep          []string      // names exempt from the scrub
	DSHHome          string
	ManagedEnv       []ManagedVar        // the operator's
	RunAs            *sandbox.Credential // whom commands run as, as the Sandbox was told; nil: as this process. Needs root
	Sandbox          *sandbox.Sandbox
	Store            Store          // closed by whoever opened it, after [Manager.Close]
	Sealer           *output.Sealer // seals cursors; its key outlives the process
	Metrics          *metrics.Metrics
	Logger           *slog.Logger
}

// ManagedVar is one managed fact, a DSH_* variable of every command.
type ManagedVar struct {
	Name, Value string
	Source      string // "built-in" or "operator"
}
