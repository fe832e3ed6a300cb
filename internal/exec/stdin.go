package exec

import (
	"context"
	"errors"
	"os"
	"time"
)

// stdinPatience is how long a write to a task's stdin waits for the task to read.
const stdinPatience = 10 * time.Second

// stdin is the write end of a stdin that stays open.
type stdin struct {
	turn   chan struct{} // holds one value while nobody writes
	file   *os.File
	closed bool // guarded by turn
}

// newStdin returns a stdin whose turn is taken: by the bytes of the request.
func newStdin(f *os.File) *stdin { return &stdin{turn: make(chan struct{}, 1), file: f} }

func (s *stdin) done() { s.turn <- struct{}{} }

// WriteStdin writes to a task that was started with StdinOpen, and then closes its stdin
// if asked to. It returns how many bytes the task's pipe took: fewer than given where the task
// has not read for 10 s or ctx ended, and then nothing is closed; the rest is to be sent again. Errors: CodeNotFound; CodeConflict
// where stdin is not open, or not any more.
func (m *Manager) WriteStdin(ctx context.Context, c Caller, id string, data []byte, closeAfter bool) (int, error) {
	f, err := m.find(c, Background, id)
	if err != nil {
		return 0, err
	}
	if f.job == nil || f.job.settled() {
		return 0, conflict("task %q has finished; its stdin is closed", id)
	}
	if !f.job.spec.StdinOpen {
		return 0, conflict("the stdin of task %q is not open; start a task with stdinOpen to write to it", id)
	}
	select {
	case <-f.job.started:
	case <-ctx.Done():
		return 0, nil
	}
	in := f.job.stdin
	if in == nil {
		return 0, conflict("task %q did not start; it has no stdin", id)
	}
	patience := time.NewTimer(m.stdinPatience)
	defer patience.Stop()
	select {
	case <-in.turn:
		defer in.done()
	case <-patience.C:
		return 0, nil
	case <-f.job.done: // the bytes of the request were never read
		return 0, conflict("task %q has finished; its stdin is closed", id)
	case <-ctx.Done():
		return 0, nil
	}
	return in.write(ctx, id, data, closeAfter, m.stdinPatience)
}

// write is called by whoever has the turn.
func (s *stdin) write(ctx context.Context, id string, data []byte, closeAfter bool, patience time.Duration) (n int, err error) {
	if s.closed {
		return 0, conflict("the stdin of task %q was closed", id)
	}
	if len(data) > 0 {
		_ = s.file.SetWriteDeadline(time.Now().Add(patience))
		cut := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = s.file.SetWriteDeadline(time.Now())
			close(cut)
		})
		n, err = s.file.Write(data)
		if !stop() {
			<-cut // else it would cut the next write short
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, nil
	case err != nil: // EPIPE: nobody will read any more; or the task has ended
		s.closed = true
		s.file.Close()
		if n == 0 {
			return 0, conflict("task %q has closed its stdin", id)
		}
		return n, nil
	}
	if closeAfter {
		s.closed = true
		s.file.Close()
	}
	return n, nil
}
