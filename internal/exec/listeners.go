package exec

import (
	"slices"
)

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
