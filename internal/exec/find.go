package exec

import (
	"errors"
)

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
	if run.ID == "" || k != AnyKind && run.Kind != k || !visible(c, run.Owner) {
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
