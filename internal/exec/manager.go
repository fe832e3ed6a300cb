package exec

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Manager admits, runs, watches, kills and remembers commands. Safe for
// concurrent use.
type Manager struct {
	set       Settings
	files     *files
	inherited map[string]string // the part of every command's environment that comes from the daemon
	managed   []ManagedVar
	archive   *archive

	mu         sync.Mutex
	live       map[string]*job // what runs, and what has settled and is not recorded yet
	active     int             // what runs
	foreground map[Owner]int   // runs of an owner
	tasks      map[slot]int    // tasks of an owner and session
	draining   bool
	seq        int64
	listeners  map[int]func(Change, Run) // by number, the order in which they came
	nextNumber int
	deleting   map[string]int // ids that are not to be found
	struck     []string       // ids whose records have yet to be deleted
	stored     OwnerUsage     // what all terminal records occupy, about; the janitor adds it up anew

	saving        sync.Mutex // held while what waits for its record is recorded, or forgotten
	stdinPatience time.Duration

	keys      locks[Key]    // held while a request with that key begins a command; without Body
	consuming locks[string] // held while the consuming cursor of the task with that id moves

	jobs    sync.WaitGroup // commands
	work    sync.WaitGroup // the janitor
	kick    chan struct{}  // wakes the janitor
	closing sync.Once
	closed  chan struct{} // closed when nothing runs any more
}

// slot is what the limit of background tasks counts by.
type slot struct {
	owner   Owner
	session string
}

// NewManager prepares the state directory, settles what an earlier life left unsettled in s.Store, and
// returns a Manager that runs commands in s.Sandbox.
func NewManager(s Settings) (*Manager, error) {
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	f, err := openFiles(s)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		set: s, files: f,
		inherited: inherited(s.Environ, s.EnvKeep, s.RunAs), managed: managedVars(s),
		live: map[string]*job{}, foreground: map[Owner]int{}, tasks: map[slot]int{}, deleting: map[string]int{}, listeners: map[int]func(Change, Run){},
		stdinPatience: stdinPatience, kick: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	f.kick = m.wakeJanitor
	m.archive = newArchive(s.Store, s.Metrics, s.Logger, m.mendState)
	if err := m.recoverState(); err != nil {
		f.close()
		return nil, fmt.Errorf("recovering what an earlier bashd left: %w", err)
	}
	m.work.Go(m.keepHouse)
	return m, nil
}

// Get returns a command, running or remembered; of a run with the collected output. Error: CodeNotFound.
func (m *Manager) Get(c Caller, k Kind, id string) (Run, error) {
	f, err := m.find(c, k, id)
	if err != nil {
		return Run{}, err
	}
	return f.snapshot(true), nil
}

// KillOutcome says what a kill came to.
type KillOutcome string

// The outcomes.
const (
	KillRequested   KillOutcome = "cancellation-requested"
	AlreadyFinished KillOutcome = "already-finished"
)

// Kill asks a command of kind k, which may be AnyKind, to end: SIGTERM to everything of it, SIGKILL after the grace. It does not
// wait for that; when it returns, the command is stopping, or has ended by itself. reason goes to the debug log. Error: CodeNotFound.
func (m *Manager) Kill(ctx context.Context, c Caller, k Kind, id, reason string) (KillOutcome, Run, error) {
	f, err := m.find(c, k, id)
	if err != nil {
		return "", Run{}, err
	}
	if f.job != nil && !f.job.settled() {
		f.job.requestStop(CauseKill)
		m.set.Logger.DebugContext(ctx, "kill requested", "id", id, "reason", reason)
		select {
		case <-f.job.done:
		case <-f.job.stopping:
		case <-ctx.Done():
		}
		if run := f.snapshot(true); !run.Status.Terminal() || run.Cause != CauseNone {
			return KillRequested, run, nil
		}
		// It was faster, and no signal was sent.
	}
	m.markTold(f)
	return AlreadyFinished, f.snapshot(true), nil
}
