package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"bashd/internal/sandbox"
)

// Manager admits, runs, watches, kills and remembers commands. Safe for
// concurrent use.
type Manager struct {
	set       Settings
	files     *files
	inherited map[string]string // the part of every command's environment that comes from the daemon
	managed   []ManagedVar

	mu       sync.Mutex
	running  map[string]*job
	perOwner map[Owner]int
	draining bool
	recent   recent
	seq      int64

	jobs    sync.WaitGroup
	janitor *time.Ticker
	closing sync.Once
	closed  chan struct{} // closed when Shutdown ends
}

// sweepEvery is how often runs that have grown too old are looked for. They are
// not shown from that moment on; only their files wait for the sweep.
const sweepEvery = time.Minute

// NewManager prepares the state directory and returns a Manager that runs commands in
// s.Sandbox. Spill files of an earlier life are removed.
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
		running: map[string]*job{}, perOwner: map[Owner]int{},
	}
	m.recent = recent{keepFor: s.Retention, maxSpill: s.MaxStateBytes, forget: m.forget}
	m.janitor, m.closed = time.NewTicker(sweepEvery), make(chan struct{})
	go m.sweep()
	return m, nil
}

// sweep forgets old runs even when nobody asks for any.
func (m *Manager) sweep() {
	for {
		select {
		case <-m.closed:
			return
		case now := <-m.janitor.C:
			m.mu.Lock()
			m.recent.expire(now)
			m.mu.Unlock()
		}
	}
}

// Run runs one command in the foreground and returns the facts about it. That
// ctx ends means that the caller went away: the command is aborted and the facts are returned all the
// same. Errors are *Error: what [Manager.Resolve] returns, CodeLimitReached,
// CodeShuttingDown, CodeSandboxUnavailable, CodeStartFailed; nothing ran then.
func (m *Manager) Run(ctx context.Context, c Caller, r Request) (Run, error) {
	spec, err := m.Resolve(c, r)
	if err != nil {
		return Run{}, err
	}
	j, err := m.admit(spec)
	if err != nil {
		return Run{}, err
	}
	if err := m.launch(j); err != nil {
		m.release(j, func() {})
		return Run{}, m.startError(spec.Mode, err)
	}
	stop := context.AfterFunc(ctx, func() { j.requestStop(CauseDisconnect) })
	defer stop()
	<-j.done
	return j.snapshot(true), nil
}

// Get returns a running or recent run. Error: CodeNotFound.
func (m *Manager) Get(c Caller, id string) (Run, error) {
	j, err := m.find(c, id)
	if err != nil {
		return Run{}, err
	}
	return j.snapshot(true), nil
}

// find is the fence: the one place where an id becomes a job.
func (m *Manager) find(c Caller, id string) (*job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent.expire(time.Now())
	j := m.running[id]
	if j == nil {
		j = m.recent.get(id)
	}
	if j == nil || !visible(c, j.spec.Owner) {
		return nil, errNotFound(id)
	}
	return j, nil
}

func visible(c Caller, owner Owner) bool { return owner == "" || owner == c.Owner }

// KillOutcome says what a kill came to.
type KillOutcome string

// The outcomes.
const (
	KillRequested   KillOutcome = "cancellation-requested"
	AlreadyFinished KillOutcome = "already-finished"
)

// Kill asks a run to end: SIGTERM to everything of it, SIGKILL after the grace. It does not
// wait. reason goes to the debug log. Error: CodeNotFound.
func (m *Manager) Kill(ctx context.Context, c Caller, id, reason string) (KillOutcome, Run, error) {
	j, err := m.find(c, id)
	if err != nil {
		return "", Run{}, err
	}
	outcome := AlreadyFinished
	if !j.snapshot(false).Status.Terminal() {
		outcome = KillRequested
		j.requestStop(CauseKill)
		m.set.Logger.DebugContext(ctx, "kill requested", "id", id, "reason", reason)
	}
	return outcome, j.snapshot(true), nil
}

// OpenStream opens the complete bytes of one stream: of a settled run that spilled it, of a
// running one so far. Errors: CodeNotFound, CodeGone where no complete file exists.
func (m *Manager) OpenStream(c Caller, id string, name StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
	j, err := m.find(c, id)
	if err != nil {
		return nil, 0, time.Time{}, err
	}
	if r, size, running := j.reader(name); running {
		if r == nil {
			return nil, 0, time.Time{}, errGone(id, name)
		}
		return r, size, time.Now(), nil
	}
	if j.snapshot(false).stream(name).SpillPath == "" {
		return nil, 0, time.Time{}, errGone(id, name)
	}
	f, err := m.files.openSpill(j.spec.Owner, id, name)
	if err != nil {
		return nil, 0, time.Time{}, errGone(id, name)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, time.Time{}, &Error{Code: CodeInternal, Message: "the stream cannot be read", Err: err}
	}
	return f, st.Size(), st.ModTime(), nil
}

func errGone(id string, name StreamName) *Error {
	return &Error{Code: CodeGone, Message: fmt.Sprintf("run %q has no complete file of its %s: it never outgrew memory, or the file was removed", id, name)}
}

// admit takes a place among the running commands, or refuses.
func (m *Manager) admit(spec Spec) (*job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return nil, &Error{Code: CodeShuttingDown, Message: "the server is shutting down", RetryAfter: m.set.Drain + m.set.Grace}
	}
	half := max(1, m.set.MaxRunning/2)
	switch {
	case len(m.running) >= m.set.MaxRunning:
		return nil, errLimit("%d commands are running here, as many as are allowed (BASHD_MAX_RUNNING); wait for one to finish, then retry", m.set.MaxRunning)
	case m.perOwner[spec.Owner] >= half:
		return nil, errLimit("%d foreground runs of this owner are running, as many as one owner may hold; wait for one to finish or kill one, then retry", half)
	}
	m.seq++
	id := newID()
	j := newJob(id, m.seq, spec, func(s StreamName) string { return m.files.spillPath(spec.Owner, id, s) })
	m.running[j.id] = j
	m.perOwner[spec.Owner]++
	m.jobs.Add(1)
	return j, nil
}

func errLimit(format string, args ...any) *Error {
	return &Error{Code: CodeLimitReached, Message: fmt.Sprintf(format, args...), RetryAfter: time.Second}
}

// release takes the job's place back and keeps what is to be kept of it, in one step: nobody
// who looks finds it in both places, or in neither.
func (m *Manager) release(j *job, keep func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep()
	delete(m.running, j.id)
	if m.perOwner[j.spec.Owner]--; m.perOwner[j.spec.Owner] == 0 {
		delete(m.perOwner, j.spec.Owner)
	}
	m.jobs.Done()
}

// startError turns an error of the sandbox into one of ours.
func (m *Manager) startError(mode sandbox.Mode, err error) *Error {
	if un, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		m.set.Metrics.RunnerFailed(string(mode))
		return &Error{Code: CodeSandboxUnavailable, Message: fmt.Sprintf("sandbox mode %q cannot be enforced here, and the command was not run: %v", mode, un)}
	}
	if wd, ok := errors.AsType[*sandbox.WorkdirError](err); ok {
		return &Error{Code: CodeWorkdirUnusable, Message: wd.Error()}
	}
	if st, ok := errors.AsType[*sandbox.StartError](err); ok {
		if st.Kind == sandbox.KindArgumentTooLong {
			// Each entry was short enough, so it is their sum; asking again would not help.
			return invalid("env", "its entries are together longer than the kernel lets a program have")
		}
		return &Error{Code: CodeStartFailed, Kind: st.Kind, Message: st.Error()}
	}
	if ours, ok := errors.AsType[*Error](err); ok {
		return ours
	}
	return &Error{Code: CodeInternal, Message: "the command could not be started", Err: err}
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
			MaxRunning: m.set.MaxRunning, MaxRunningPerOwner: max(1, m.set.MaxRunning/2),
			Command: m.set.Sandbox.Limits(),
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
	return reasons
}

// Shutdown takes no more work, lets runs finish for the drain time, then stops what is left
// with grace, and returns when nothing runs. When hurry ends, what waits is
// skipped and everything is killed at once. It may be called again.
func (m *Manager) Shutdown(hurry context.Context) {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		m.jobs.Wait()
		close(idle)
	}()
	drain := time.NewTimer(m.set.Drain)
	defer drain.Stop()
	select {
	case <-idle:
	case <-drain.C:
	case <-hurry.Done():
	}
	m.mu.Lock()
	for _, j := range m.running {
		j.requestStop(CauseShutdown)
	}
	m.mu.Unlock()
	select {
	case <-idle:
	case <-hurry.Done():
		m.mu.Lock()
		for _, j := range m.running {
			j.hurryUp()
		}
		m.mu.Unlock()
		<-idle
	}
	m.closing.Do(func() {
		m.janitor.Stop()
		close(m.closed)
		m.files.close()
	})
}
