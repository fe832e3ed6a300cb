package exec

import (
	"syscall"
	"time"

	"bashd/internal/output"
	"bashd/internal/sandbox"
)

// ending is how a command ended, as far as its processes tell.
type ending struct {
	status            Status
	exitCode          *int
	signal            syscall.Signal
	cause             Cause
	detail            string
	runnerFailed      bool
	drainIncomplete   bool
	cleanupIncomplete bool
	survivors         int
	usage             sandbox.Usage
}

// how takes bash's own status over and says what the command's is.
func (e *ending) how(p *sandbox.Process) {
	if p.ByItself() {
		e.cause = CauseNone // it was sent for when bash had ended already
	}
	ws, ok := p.Status()
	switch {
	case !ok:
		e.detail = "the runner of this command was killed from outside; everything that the command had started was killed with it"
		e.status = StatusFailed
		return
	case ws.Signaled():
		e.signal, e.status = ws.Signal(), StatusKilled
		return
	}
	code := ws.ExitStatus()
	e.exitCode, e.status = &code, StatusCompleted
	if e.cause != CauseNone {
		e.status = StatusKilled
	}
}

// settleUnstarted settles a task that was admitted and could not be started. Why is readable as its output.
func (m *Manager) settleUnstarted(j *job, why *Error) {
	close(j.started)
	m.set.Metrics.RunStarted(string(j.kind()))
	m.set.Logger.Warn("a task could not be started", "id", j.id, "code", why.Code, "error", why)
	j.stderr.Append([]byte(why.Message + "\n"))
	m.settle(j, ending{status: StatusFailed, detail: why.Message, runnerFailed: why.Code == CodeSandboxUnavailable})
}

// settle makes the facts final: the streams are sealed and readable, the facts recorded, the status
// changed, waiters let go, listeners told, in that order.
func (m *Manager) settle(j *job, e ending) {
	out, errs := m.seal(j, j.stdout, Stdout), m.seal(j, j.stderr, Stderr)
	m.removeTemp(j)
	j.mu.Lock()
	j.settling = true
	j.mu.Unlock()
	r := j.recordable()
	r.Stdout, r.Stderr = out, errs
	r.FinishedAt = time.Now()
	r.Duration = r.FinishedAt.Sub(r.StartedAt)
	r.Status, r.ExitCode, r.Signal, r.Cause, r.Detail = e.status, e.exitCode, e.signal, e.cause, e.detail
	r.DrainIncomplete, r.CleanupIncomplete = e.drainIncomplete, e.cleanupIncomplete
	r.SurvivorsKilled, r.Usage = e.survivors, e.usage
	m.stampSandbox(j, &r, e.runnerFailed)
	if r.Kind == Background {
		r.Stdout.dropTail()
		r.Stderr.dropTail()
	}
	// Nobody consumes between the recording of the cursor and the moment from which it is looked up there: what
	// was read would be read again.
	unlock := m.consuming.lock(j.id)
	r.Unrecorded = !m.keep(j, r)
	j.mu.Lock()
	j.run = r
	j.spec.Stdin, j.spec.Env = nil, nil
	j.mu.Unlock()
	j.leave()
	m.measure(r)
	m.release(j, r.Unrecorded)
	unlock()
	close(j.done)
	m.announceSettled(j, r)
	m.jobs.Done()
}

// dropTail leaves out what a complete file holds anyway.
func (s *Stream) dropTail() {
	if s.HasFile {
		s.Tail = nil
	}
}

// recordable is the run without what no record may hold.
func (j *job) recordable() Run {
	r := j.snapshot(false)
	r.Spec = r.Spec.withoutSecrets()
	return r
}

// recordOverhead is what a record occupies besides its output and command, about.
const recordOverhead = 2 << 10

// recordOf makes the record of a settled command.
func recordOf(seq int64, r Run) Record {
	rec := Record{Run: r, Seq: seq, Bytes: recordOverhead + int64(len(r.Spec.Command)+len(r.Stdout.Tail)+len(r.Stderr.Tail))}
	for _, s := range []Stream{r.Stdout, r.Stderr} {
		if s.HasFile {
			rec.Bytes += s.Bytes
		}
	}
	return rec
}

// keep records a settled command; false: the store did not take it, and the janitor will try again.
func (m *Manager) keep(j *job, r Run) bool {
	rec := recordOf(j.seq, r)
	if !m.write(j, rec) {
		return false
	}
	// Each consuming read has recorded this already, unless the store failed it.
	if c, told := j.consumption(); (told || c != (cursor{})) && m.archive.advance(j.id, c, told) != nil {
		return false
	}
	m.addStored(rec.Bytes)
	return true
}

// write puts the record of a settled command into the store, whatever of it is there already.
func (m *Manager) write(j *job, rec Record) bool {
	untried := j.awaitEntry()
	if !j.inserted.Load() {
		first := rec // a brief run's only record
		if !untried {
			// The admission could not be recorded, or was although it seemed not so. The end is, where that is possible by now.
			first = Record{Run: asAdmitted(rec.Run), Seq: j.seq}
		}
		if m.archive.insert(first, nil) != nil {
			return false
		}
		j.inserted.Store(true)
	}
	return untried || m.archive.settle(rec) == nil
}

// seal ends a log and returns what is known of it.
func (m *Manager) seal(j *job, log *output.Log, name StreamName) Stream {
	log.Seal()
	s := j.peek(log, name, true)
	if s.Bytes > 0 && !s.HasFile && (s.Truncated || j.kind() == Background) && s.Bytes <= m.set.MaxSpillBytes {
		m.set.Logger.Warn("the output file of a command could not be written and was removed; is the disk of the state directory full?", "id", j.id, "stream", name)
	}
	return s
}

func (m *Manager) removeTemp(j *job) {
	if !j.spec.Mode.Confined() || m.set.Sandbox.PrivateTemp(j.spec.Mode) {
		return
	}
	if err := m.files.removeTemp(j.spec.Owner, j.id); err != nil {
		m.set.Logger.Warn("removing a command's temporary directory failed", "id", j.id, "error", err)
	}
}
