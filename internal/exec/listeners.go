package exec

import (
	"slices"
)

// Change is what has become of a command.
type Change string

// The changes. Of one command they are told in this order; stopping only where something of ours stops it.
const (
	Started  Change = "started"  // a task was admitted and launched, or a run has become one
	Stopping Change = "stopping" // a cause was fixed, and signals were sent
	Settled  Change = "settled"  // its last output can be read, and its terminal status is told
)

// OnChange has f called for what becomes of commands from now on: of tasks, and of runs their end only. Calls for
// different commands run concurrently; one that panics is logged and harms nobody. f is not to block, and must not wait for
// the Manager to shut down. The Run has no collected output unless it has settled. cancel may be called at any time; a
// call that has begun is not waited for.
func (m *Manager) OnChange(f func(Change, Run)) (cancel func()) {
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

// announce tells the listeners, in the order in which they came. The caller holds the job's telling, so
// that what becomes of one command is told in order.
func (m *Manager) announce(what Change, r Run) {
	m.mu.Lock()
	numbers := make([]int, 0, len(m.listeners))
	for n := range m.listeners {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	listeners := make([]func(Change, Run), 0, len(numbers))
	for _, n := range numbers {
		listeners = append(listeners, m.listeners[n])
	}
	m.mu.Unlock()
	for _, f := range listeners {
		func() {
			defer func() {
				if v := recover(); v != nil {
					m.set.Logger.Error("a listener for what becomes of commands panicked", "id", r.ID, "panic", v)
				}
			}()
			f(what, r)
		}()
	}
}

// announceStopping tells that a task is being stopped.
func (m *Manager) announceStopping(j *job) {
	j.telling.Lock()
	defer j.telling.Unlock()
	if r := j.snapshot(false); r.Kind == Background && r.Status == StatusStopping {
		m.announce(Stopping, r)
	}
}

// announceSettled tells the end.
func (m *Manager) announceSettled(j *job, r Run) {
	j.telling.Lock()
	defer j.telling.Unlock()
	m.announce(Settled, r)
}
