package exec

import (
	"context"
	"time"
)

// MaxWait bounds how long [Manager.Wait] and [Manager.Output] wait.
const MaxWait = 10 * time.Minute

// Wait returns a task when it has settled, or as it is when the time is up or ctx ends. Error: CodeNotFound.
func (m *Manager) Wait(ctx context.Context, c Caller, id string, timeout time.Duration) (Run, error) {
	f, err := m.find(c, Background, id)
	if err != nil {
		return Run{}, err
	}
	if f.job != nil {
		timer := time.NewTimer(min(timeout, MaxWait))
		defer timer.Stop()
		select {
		case <-f.job.done:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return f.snapshot(false), nil
}

// Delete forgets a settled task with its output. Errors: CodeNotFound, CodeConflict while it runs.
func (m *Manager) Delete(_ context.Context, c Caller, id string) error {
	f, err := m.find(c, Background, id)
	if err != nil {
		return err
	}
	if f.job != nil && !f.job.settled() {
		return conflict("task %q is still running; kill it and wait for its end first", id)
	}
	owner := f.snapshot(false).Owner
	m.saving.Lock() // else one that still waits for its record could come back
	defer m.saving.Unlock()
	if _, err := m.find(c, Background, id); err != nil {
		return err // somebody else was faster
	}
	defer m.beginDeleting(id)()
	// Files first: what is left after a failure in between is a record whose output is gone, and not
	// files that nobody knows of.
	if err := m.files.removeRun(owner, id); err != nil {
		return &Error{Code: CodeInternal, Message: "the output cannot be removed", Err: err}
	}
	if err := m.archive.delete(id); err != nil {
		return &Error{Code: CodeInternal, Message: "the record cannot be removed", Err: err}
	}
	m.mu.Lock()
	delete(m.live, id) // where its record was still waiting to be written
	m.mu.Unlock()
	return nil
}

// Consume is a read that moves the task's one consuming cursor, so that no two ever deliver the same. Per
// stream it delivers at most the last Settings.MaxOutputBytes of what is unread; Lossy tells of the
// rest. Errors: CodeNotFound; CodeInternal where the cursor of a recorded task cannot be moved, with nothing consumed.
func (m *Manager) Consume(_ context.Context, c Caller, id string) (Page, error) {
	defer m.consuming.lock(id)()
	f, err := m.find(c, Background, id) // after the lock: the cursor may have moved meanwhile
	if err != nil {
		return Page{}, err
	}
	at, _ := f.consumption()
	src := m.open(f)
	defer src.release()
	p := src.page(at, func(stdout, stderr span) (span, span) {
		return stdout.last(m.set.MaxOutputBytes), stderr.last(m.set.MaxOutputBytes)
	})
	p.Next = m.sealCursor(id, p)
	if p.Lossy {
		if err := m.unlessDeleted(c, Background, id, nil); err != nil {
			return Page{}, err
		}
	}
	next := cursor{p.Stdout.To, p.Stderr.To}
	return p, m.consume(f, next, p.Task.Status.Terminal())
}

// consume records how far a task was read and whether its end was told.
func (m *Manager) consume(f found, to cursor, told bool) error {
	if at, before := f.consumption(); to == at && (before || !told) {
		return nil // nothing new, as of most polls
	}
	if f.job != nil {
		f.job.consumeTo(to, told)
	}
	id := f.snapshot(false).ID
	err := m.archive.advance(id, to, told)
	if err != nil && f.job == nil && !m.consumed(id, to) {
		return &Error{Code: CodeInternal, Message: "the read cannot be recorded", Err: err}
	}
	return nil // a task in memory has its cursor there, and it is recorded when the task settles
}

// consumed tells whether a read is recorded. A write that failed may have happened all the same, and what it
// consumed would then reach nobody.
func (m *Manager) consumed(id string, to cursor) bool {
	rec, err := m.archive.get(id)
	return err == nil && rec.ReadStdout >= to.stdout && rec.ReadStderr >= to.stderr
}

// markTold records that a caller who consumes was told a terminal state. It is a courtesy to the model, who
// would otherwise be told again, so a failure is not the caller's.
func (m *Manager) markTold(f found) {
	r := f.snapshot(false)
	if r.Kind != Background {
		return
	}
	defer m.consuming.lock(r.ID)()
	at, _ := f.consumption()
	_ = m.consume(f, at, true)
}

// consumption is where the next consuming read of a task begins, and whether its end was told.
func (f found) consumption() (at cursor, told bool) {
	if f.job != nil {
		return f.job.consumption()
	}
	return cursor{f.rec.ReadStdout, f.rec.ReadStderr}, f.rec.Reported
}

func (j *job) consumption() (at cursor, told bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.read, j.told
}

// consumeTo moves that forward, never back.
func (j *job) consumeTo(to cursor, told bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.read = cursor{max(j.read.stdout, to.stdout), max(j.read.stderr, to.stderr)}
	j.told = j.told || told
}
