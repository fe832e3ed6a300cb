package exec

import (
	"fmt"
	"time"
)

// perOwner is how many foreground runs one owner may hold.
func (m *Manager) perOwner() int { return max(1, m.set.MaxRunning/2) }

// admit takes a place among the running commands, or refuses. Nothing is spent before. eager: the
// output goes to files from its first byte, as that of a task always does.
func (m *Manager) admit(k Kind, spec Spec, eager bool) (*job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return nil, &Error{Code: CodeShuttingDown, Message: "the server is shutting down", RetryAfter: m.set.Drain + m.set.Grace}
	}
	switch {
	case m.active >= m.set.MaxRunning:
		return nil, errLimit("%d commands are running here, as many as are allowed (BASHD_MAX_RUNNING); wait for one to finish, then retry", m.set.MaxRunning)
	case k == Foreground && m.foreground[spec.Owner] >= m.perOwner():
		return nil, errLimit("%d foreground runs of this owner are running, as many as one owner may hold; wait for one to finish or kill one, then retry", m.perOwner())
	case k == Background && m.tasks[slotOf(&spec)] >= m.set.MaxTasksPerOwner:
		return nil, errTaskLimit(m.set.MaxTasksPerOwner)
	}
	m.seq++
	id := newID()
	j := newJob(id, m.seq, k, spec, func(s StreamName) string { return m.files.spillPath(spec.Owner, id, s) })
	m.openLogs(j, k == Background || eager)
	m.live[id] = j
	m.active++
	m.count(k, &spec, 1)
	m.jobs.Add(1)
	return j, nil
}

// slotOf reads only what never changes: a command that settles loses the input in its Spec.
func slotOf(s *Spec) slot { return slot{s.Owner, s.Session} }

// count adds n to the commands of that kind. The caller holds mu.
func (m *Manager) count(k Kind, s *Spec, n int) {
	if k == Foreground {
		add(m.foreground, s.Owner, n)
	} else {
		add(m.tasks, slotOf(s), n)
	}
}

func add[K comparable](counts map[K]int, key K, n int) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}

func errLimit(format string, args ...any) *Error {
	return &Error{Code: CodeLimitReached, Message: fmt.Sprintf(format, args...), RetryAfter: time.Second}
}

// errTaskLimit has the text that models are told.
func errTaskLimit(limit int) *Error {
	return errLimit("background task limit reached for this owner (limit: %d); use task_kill to stop an unneeded task, wait for it to finish, then retry", limit)
}

// release takes the job's place back. Unless it stays, for want of a record, nobody finds it
// in memory any more.
func (m *Manager) release(j *job, stays bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !stays {
		delete(m.live, j.id)
	}
	m.active--
	m.count(j.kind(), &j.spec, -1)
}
