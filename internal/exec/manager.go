package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"bashd/internal/output"
	"bashd/internal/sandbox"
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
	listeners  map[int]func(Run) // by number, the order in which they came
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
	f, err := openFiles(s.StateDir, s.Workspace, s.WorkspaceShared)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		set: s, files: f,
		inherited: inherited(s.Environ, s.EnvKeep), managed: managedVars(s),
		live: map[string]*job{}, foreground: map[Owner]int{}, tasks: map[slot]int{}, deleting: map[string]int{}, listeners: map[int]func(Run){},
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

// found is a command that its caller may see: in memory, or at rest in the store.
type found struct {
	job *job   // nil when it is at rest
	rec Record // set when job is nil
}

// find is the fence: the one place where an id becomes a command.
func (m *Manager) find(c Caller, k Kind, id string) (found, error) {
	f, err := m.look(id)
	if err != nil {
		return found{}, err
	}
	run := f.snapshot(false)
	if run.ID == "" || run.Kind != k || !visible(c, run.Owner) {
		return found{}, errNotFound(k, id)
	}
	return f, nil
}

// look finds a command whoever asks. Not there: the zero value.
func (m *Manager) look(id string) (found, error) {
	m.mu.Lock()
	j, going := m.live[id], m.deleting[id] > 0
	m.mu.Unlock()
	switch {
	case going:
		return found{}, nil
	case j != nil:
		return found{job: j}, nil
	}
	// What is no longer live was recorded before it left.
	rec, err := m.archive.get(id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return found{}, nil
	case err != nil:
		return found{}, &Error{Code: CodeInternal, Message: "the record cannot be read", Err: err}
	case !rec.Run.Status.Terminal():
		return found{}, nil // it never started, and its record waits for being deleted
	}
	m.advertise(&rec.Run)
	return found{rec: rec}, nil
}

// unlessDeleted is for what was found to be missing: err, or that there is no such command any more.
func (m *Manager) unlessDeleted(c Caller, k Kind, id string, err error) error {
	if _, gone := m.find(c, k, id); gone != nil {
		return gone
	}
	return err
}

// beginDeleting has ids not be found from now on: nobody is to see a command whose output is half gone. done ends
// that, when they are not in the store any more, or have to stay.
func (m *Manager) beginDeleting(ids ...string) (done func()) {
	count := func(n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, id := range ids {
			add(m.deleting, id, n)
		}
	}
	count(1)
	return func() { count(-1) }
}

// advertise fills in where complete streams lie, which no record holds: a state directory can
// be moved.
func (m *Manager) advertise(r *Run) {
	for _, n := range []StreamName{Stdout, Stderr} {
		s := &r.Stdout
		if n == Stderr {
			s = &r.Stderr
		}
		if s.Truncated && s.HasFile {
			s.SpillPath = m.files.spillPath(r.Owner, r.ID, n)
		}
	}
}

func visible(c Caller, owner Owner) bool { return owner == "" || owner == c.Owner }

// snapshot is the command as it is now. A task's collected output is not part of it: tasks are read.
func (f found) snapshot(withTails bool) Run {
	if f.job != nil {
		return f.job.snapshot(withTails && f.job.kind() == Foreground)
	}
	r := f.rec.Run
	if !withTails || r.Kind == Background {
		r.Stdout.Tail, r.Stderr.Tail = nil, nil
	}
	return r
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

// Kill asks a command to end: SIGTERM to everything of it, SIGKILL after the grace. It does not
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

// OpenStream opens the complete bytes of one stream: of a task always, so far while it runs; of a run
// that spilled it. Errors: CodeNotFound, CodeGone where it is not complete any more.
func (m *Manager) OpenStream(c Caller, k Kind, id string, name StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
	f, err := m.find(c, k, id)
	if err != nil {
		return nil, 0, time.Time{}, err
	}
	run := f.snapshot(false)
	if run.Status.Terminal() && k == Foreground && run.stream(name).SpillPath == "" {
		return nil, 0, time.Time{}, errGone(k, id, name)
	}
	stdout, stderr, release := m.streams(f)
	defer release()
	log := stdout
	if name == Stderr {
		log = stderr
	}
	r, size, err := log.Reader()
	if err == nil && run.Status.Terminal() && size != run.stream(name).Bytes {
		r.Close() // somebody cut the file, or the power failed
		err = output.ErrIncomplete
	}
	if err != nil {
		return nil, 0, time.Time{}, m.unlessDeleted(c, k, id, errGone(k, id, name))
	}
	modified := run.FinishedAt
	if modified.IsZero() {
		modified = time.Now()
	}
	return r, size, modified, nil
}

func errGone(k Kind, id string, name StreamName) *Error {
	if k == Background {
		return &Error{Code: CodeGone, Message: fmt.Sprintf("the %s of task %q is not complete any more: it outgrew its file, or the file was removed; GET …/output has what is left", name, id)}
	}
	return &Error{Code: CodeGone, Message: fmt.Sprintf("run %q has no complete file of its %s: it never outgrew memory, or the file was removed", id, name)}
}

// streams returns both logs of a command, live or at rest.
func (m *Manager) streams(f found) (stdout, stderr *output.Log, release func()) {
	if f.job != nil {
		if stdout, stderr, release, ok := f.job.logs(); ok {
			return stdout, stderr, release
		}
		// It has settled and is only in memory; what it left lies where a recorded one's does.
		f.rec.Run = f.job.snapshot(true)
	}
	stdout, stderr = m.atRest(f.rec.Run, Stdout), m.atRest(f.rec.Run, Stderr)
	return stdout, stderr, func() {
		stdout.Close()
		stderr.Close()
	}
}

// atRest opens a stream of a settled command: its file, or else what was kept of it.
func (m *Manager) atRest(r Run, name StreamName) *output.Log {
	s := r.stream(name)
	if !s.HasFile {
		return output.AtRest(s.Tail, s.Bytes)
	}
	f, err := m.files.openSpill(r.Owner, r.ID, name)
	if err != nil {
		return output.AtRest(s.Tail, s.Bytes)
	}
	// The bytes are read from the file; none need be in memory.
	log, err := output.Open(f, output.Options{TailBytes: 1})
	if err != nil {
		f.Close()
		return output.AtRest(s.Tail, s.Bytes)
	}
	if log.Stat().Bytes > s.Bytes { // a command with full access wrote to it: this is not what was printed
		log.Close()
		return output.AtRest(s.Tail, s.Bytes)
	}
	return log
}

// OnSettled has f called once for each command that settles from now on, after its last output can be
// read and its terminal status is told. Calls for different commands run concurrently; one that panics
// is logged and harms nobody. f must not wait for the Manager to shut down. cancel may be called at any time; a
// call that has begun is not waited for.
func (m *Manager) OnSettled(f func(Run)) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nextNumber
	m.nextNumber++
	m.listeners[n] = f
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.listeners, n)
	}
}

// announce tells the listeners, in the order in which they came.
func (m *Manager) announce(r Run) {
	m.mu.Lock()
	numbers := make([]int, 0, len(m.listeners))
	for n := range m.listeners {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	listeners := make([]func(Run), 0, len(numbers))
	for _, n := range numbers {
		listeners = append(listeners, m.listeners[n])
	}
	m.mu.Unlock()
	for _, f := range listeners {
		func() {
			defer func() {
				if v := recover(); v != nil {
					m.set.Logger.Error("a listener for settled commands panicked", "id", r.ID, "panic", v)
				}
			}()
			f(r)
		}()
	}
}

// Info tells what callers may know of the configuration.
func (m *Manager) Info() Info {
	vars := []ManagedVar{}
	for _, v := range m.managed {
		vars = append(vars, ManagedVar{Name: v.Name, Source: v.Source})
	}
	vars = append(vars, ManagedVar{Name: "DSH_TASK_ID", Source: "built-in"})
	return Info{
		DefaultMode: m.set.DefaultMode, MaxMode: m.set.MaxMode, ManagedEnv: vars,
		Sandbox: m.set.Sandbox.Report(),
		Limits: Limits{
			Timeout: m.set.Timeout, MaxTimeout: m.set.MaxTimeout, Grace: m.set.Grace,
			MaxCommandBytes: MaxCommandBytes, MaxOutputBytes: m.set.MaxOutputBytes, MaxSpillBytes: m.set.MaxSpillBytes,
			MaxRunning: m.set.MaxRunning, MaxRunningPerOwner: m.perOwner(), MaxTasksPerOwner: m.set.MaxTasksPerOwner,
			Retention: m.set.Retention,
			Command:   m.set.Sandbox.Limits(),
		},
	}
}

// Info is what callers may know of the configuration. It has no values of
// managed variables.
type Info struct {
	DefaultMode, MaxMode sandbox.Mode
	ManagedEnv           []ManagedVar
	Sandbox              sandbox.Report
	Limits               Limits
}

// Limits are the bounds in force.
type Limits struct {
	Timeout, MaxTimeout, Grace     time.Duration
	MaxCommandBytes                int
	MaxOutputBytes                 int
	MaxSpillBytes                  int64
	MaxRunning, MaxRunningPerOwner int
	MaxTasksPerOwner               int // an owner and session
	Retention                      time.Duration
	Command                        sandbox.Limits
}

// Ready lists reasons why work cannot be taken; none: ready.
func (m *Manager) Ready() []string {
	var reasons []string
	m.mu.Lock()
	if m.draining {
		reasons = append(reasons, "draining: the server is shutting down")
	}
	m.mu.Unlock()
	if why := m.set.Sandbox.Report().Mode(m.set.DefaultMode).Unavailable; why != "" {
		reasons = append(reasons, fmt.Sprintf("sandbox: the default mode %s cannot be enforced: %s", m.set.DefaultMode, why))
	}
	if why := m.archive.trouble(); why != "" {
		reasons = append(reasons, "store: "+why)
	}
	return reasons
}
