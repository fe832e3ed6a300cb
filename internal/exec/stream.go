package exec

import (
	"fmt"
	"io"
	"time"

	"bashd/internal/output"
)

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
