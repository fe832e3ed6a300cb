package exec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bashd/internal/sandbox"
)

// Run runs one command in the foreground and returns the facts about it. That
// ctx ends means that the caller went away: the command is aborted and the facts are returned all the
// same. With r.Key it is not aborted then, so that a retry gets the answer.
//
// A run that goes on past r.YieldAfter is returned as the running task that it has become (Kind Background), unless
// its owner is at the limit of tasks. replayed says that this is the answer to an earlier request with the same
// key, and that nothing was started.
//
// Errors are *Error: what [Manager.Resolve] returns, CodeConflict for the key, CodeLimitReached,
// CodeShuttingDown, CodeSandboxUnavailable, CodeStartFailed; nothing ran then.
func (m *Manager) Run(ctx context.Context, c Caller, r Request) (run Run, replayed bool, err error) {
	j, run, err := m.once(c, Foreground, r)
	if err != nil || j == nil {
		return run, err == nil, err
	}
	return m.attend(ctx, j, r), false, nil
}

// Start starts a background task and returns it as it was admitted: running, without output. What fails after
// the admission settles the task as failed. A recorded task is never lost: it can be found until it is deleted or its
// retention ends, whatever happens to this process. Errors are those of [Manager.Run]; nothing ran then.
func (m *Manager) Start(_ context.Context, c Caller, r Request) (task Run, replayed bool, err error) {
	j, task, err := m.once(c, Background, r)
	if err != nil || j == nil {
		return task, err == nil, err
	}
	return asAdmitted(j.snapshot(false)), false, nil
}

// attend waits for a foreground run to end, or to become a task.
func (m *Manager) attend(ctx context.Context, j *job, r Request) Run {
	watch := func() (stop func() bool) {
		if r.Key != nil {
			return func() bool { return true }
		}
		return context.AfterFunc(ctx, func() { j.requestStop(CauseDisconnect) })
	}
	stop := watch()
	defer func() { stop() }()
	if r.YieldAfter > 0 {
		timer := time.NewTimer(r.YieldAfter)
		defer timer.Stop()
		select {
		case <-j.done:
		case <-timer.C:
			// A task has no client whose end could abort it. One that is gone by now has aborted the run.
			if stop() {
				if m.yield(j) {
					return m.asYielded(j.snapshot(false))
				}
				stop = watch()
			}
		}
	}
	<-j.done
	return j.snapshot(true)
}

// begin admits a command, records it and starts it.
func (m *Manager) begin(c Caller, k Kind, r Request) (*job, error) {
	spec, err := m.Resolve(c, k, r)
	if err != nil {
		return nil, err
	}
	if why := m.set.Sandbox.Report().Mode(spec.Mode).Unavailable; why != "" {
		return nil, m.startError(spec.Mode, &sandbox.UnavailableError{Stage: "probe", Detail: why})
	}
	j, err := m.admit(k, spec, r.YieldAfter > 0)
	if err != nil {
		return nil, err
	}
	if k == Foreground && r.Key == nil && r.YieldAfter == 0 {
		// Promised to nobody. Most runs are over soon, and then recorded once, as settled.
		j.entry = time.AfterFunc(briefRun, func() { _ = m.enter(j, nil) })
	} else if err := m.enter(j, r.Key); err != nil {
		m.strike(j) // a write that failed may have happened all the same
		m.cancelStart(j)
		return nil, err
	}
	j.telling.Lock() // what becomes of it is told after its start
	defer j.telling.Unlock()
	if err := m.launch(j); err != nil {
		e := m.startError(spec.Mode, err)
		if k == Foreground || e.Code == CodeInvalidArgument || e.Code == CodeWorkdirUnusable {
			m.strike(j)
			m.cancelStart(j)
			return nil, e
		}
		go m.settleUnstarted(j, e)
	}
	if k == Background {
		m.announce(Started, asAdmitted(j.snapshot(false)))
	}
	return j, nil
}

// briefRun is for how long a run that nobody is promised to find again goes without a record.
const briefRun = 50 * time.Millisecond

// awaitEntry returns when the store has been asked to take the admission. untried: it has not been, and will not be.
func (j *job) awaitEntry() (untried bool) {
	if j.entry != nil && j.entry.Stop() {
		close(j.entered)
		return true
	}
	<-j.entered
	return false
}

// enter records the admission. A run that nobody was promised to find again goes on without a record.
func (m *Manager) enter(j *job, key *Key) error {
	defer close(j.entered)
	if key != nil {
		key = new(keyOf(Caller{Owner: j.spec.Owner}, j.kind(), *key))
	}
	err := m.archive.insert(Record{Run: asAdmitted(j.recordable()), Seq: j.seq}, key)
	j.inserted.Store(err == nil)
	switch {
	case errors.Is(err, ErrKeyTaken): // by what was struck, and could not be deleted yet
		return m.errKeyBusy()
	case err != nil && key != nil:
		return errStore("the idempotency key", err)
	case err != nil && j.kind() == Background:
		return errStore("the task", err)
	}
	return nil
}

// strike takes the record of a command back that did not start, and its key with it.
func (m *Manager) strike(j *job) {
	if j.awaitEntry() {
		return
	}
	if m.archive.delete(j.id) != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.struck) < maxUnsaved {
			m.struck = append(m.struck, j.id) // for the janitor
		}
	}
}

// cancelStart gives back what was taken for a command that did not start.
func (m *Manager) cancelStart(j *job) {
	j.leave()
	m.release(j, false)
	close(j.started)
	close(j.done)
	m.jobs.Done()
}

// yield makes a task of a running foreground run; false: it stays one, or has ended.
func (m *Manager) yield(j *job) bool {
	m.mu.Lock()
	if m.draining || m.tasks[slotOf(&j.spec)] >= m.set.MaxTasksPerOwner {
		m.mu.Unlock()
		return false
	}
	m.count(Background, &j.spec, 1) // holds the place
	m.mu.Unlock()
	at := YieldPoint{Stdout: j.stdout.Stat().Bytes, Stderr: j.stderr.Stat().Bytes}
	j.telling.Lock()
	defer j.telling.Unlock()
	// Recorded first, as for every task: one that its caller was told of can be found after a crash.
	ok := j.inserted.Load() && m.archive.yield(j.id, at) == nil && j.turnBackground(at)
	m.mu.Lock()
	if !ok {
		m.count(Background, &j.spec, -1)
		m.mu.Unlock()
		return false
	}
	m.count(Foreground, &j.spec, -1)
	m.set.Metrics.RunYielded()
	m.mu.Unlock()
	m.announce(Started, m.asYielded(j.snapshot(false)))
	return true
}

// turnBackground is the moment at which a run becomes a task; false: it is ending, as what it was.
func (j *job) turnBackground(at YieldPoint) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.run.Status != StatusRunning || len(j.stop) > 0 || j.settling {
		return false
	}
	j.run.Kind, j.run.Yielded = Background, &at
	j.run.Spec.Timeout = 0
	close(j.lifted)
	return true
}

// asAdmitted is a command as it was when it was admitted, whatever has become of it. So the answer to a
// start is the same each time it is given.
func asAdmitted(r Run) Run {
	return Run{
		ID: r.ID, Owner: r.Owner, Kind: r.Kind, Spec: r.Spec, Status: StatusRunning,
		Sandbox: SandboxFacts{Mode: r.Sandbox.Mode}, StartedAt: r.StartedAt,
	}
}

// asYielded is a command as it was when it became a task.
func (m *Manager) asYielded(r Run) Run {
	at := *r.Yielded
	y := asAdmitted(r)
	y.Yielded = r.Yielded
	y.Stdout = m.grownTo(at.Stdout, r.Spec.StdoutMaxBytes)
	y.Stderr = m.grownTo(at.Stderr, r.Spec.StderrMaxBytes)
	m.advertise(&y)
	return y
}

// grownTo is a task's stream of so many bytes.
func (m *Manager) grownTo(n int64, limit int) Stream {
	s := Stream{Bytes: n, Truncated: n > int64(limit), HasFile: n > 0 && n <= m.set.MaxSpillBytes}
	if !s.HasFile {
		s.RetainedFrom = max(0, n-int64(limit))
	}
	return s
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
