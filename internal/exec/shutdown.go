package exec

import "context"

// Shutdown takes no more work, lets foreground runs finish for the drain time, then stops what is left
// with grace, and returns when nothing runs and everything is recorded, as far as the store takes it. When hurry ends, what waits is
// skipped and everything is killed at once. It may be called again.
func (m *Manager) Shutdown(hurry context.Context) {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	m.drain(hurry)
	idle := make(chan struct{})
	go func() {
		m.jobs.Wait()
		close(idle)
	}()
	m.each(func(j *job) { j.requestStop(CauseShutdown) })
	select {
	case <-idle:
	case <-hurry.Done():
		m.each((*job).hurryUp)
		<-idle
	}
	m.closing.Do(func() {
		close(m.closed)
		m.work.Wait()
		m.mendState()
		m.catchUp()
		m.each(func(j *job) {
			m.set.Logger.Error("a command's end could not be recorded", "id", j.id, "status", j.snapshot(false).Status)
		})
	})
}

// Close lets go of the state directory. Nothing can be read any more; call it after Shutdown, when nobody asks.
func (m *Manager) Close() { m.files.close() }

// drain waits for the foreground runs, within the drain time. None is added meanwhile.
func (m *Manager) drain(hurry context.Context) {
	ctx, cancel := context.WithTimeout(hurry, m.set.Drain)
	defer cancel()
	var runs []*job
	m.each(func(j *job) {
		if j.kind() == Foreground {
			runs = append(runs, j)
		}
	})
	for _, j := range runs {
		select {
		case <-j.done:
		case <-ctx.Done():
			return
		}
	}
}

// each calls f for every command in memory. f must not block.
func (m *Manager) each(f func(*job)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.live {
		f(j)
	}
}
