package exec

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/output"
	"bashd/internal/sandbox"
)

// Bounds of the end of a command.
const (
	drainIdle = 200 * time.Millisecond // how long the pipes may be silent after bash has exited
	drainMax  = time.Second            // how long they are read at most after that
	killBound = 10 * time.Second       // how long to wait for a killed tree to be gone
)

// launch starts the job's command and the goroutine that supervises it. It knows no
// request: a caller that has gone away meanwhile finds its run started and aborted, and not lost.
func (m *Manager) launch(j *job) error {
	began := time.Now()
	policy, err := m.policy(j.spec, j.id)
	if err != nil {
		return err
	}
	j.policy = policy
	temp := ""
	if j.spec.Mode.Confined() {
		if err := m.files.makeTemp(j.spec.Owner, j.id); err != nil {
			return errPlace("the command's temporary directory cannot be made", err)
		}
		temp = m.files.tempPath(j.spec.Owner, j.id)
	}
	j.proc, err = m.set.Sandbox.Start(context.Background(), sandbox.Command{
		Policy: policy, Script: j.spec.Command, Workdir: j.spec.Workdir,
		Env: m.environment(&j.spec, j.id, temp), WantStdin: j.spec.HasStdin, MergeStderr: j.spec.MergeStderr,
	})
	if err != nil {
		m.removeTemp(j)
		return err
	}
	m.set.Metrics.Spawned(string(j.spec.Mode), time.Since(began))
	m.set.Metrics.RunStarted(kindForeground)
	m.set.Logger.Debug("command started", "id", j.id, "pid", j.proc.Pid(), "mode", j.spec.Mode, "command", j.spec.Command)
	j.mu.Lock()
	j.stdout = m.newLog(j, Stdout, j.spec.StdoutMaxBytes)
	j.stderr = m.newLog(j, Stderr, j.spec.StderrMaxBytes)
	j.mu.Unlock()
	go m.supervise(j)
	return nil
}

const kindForeground = "foreground"

// newLog makes the log of one stream, which spills into the owner's directory.
func (m *Manager) newLog(j *job, name StreamName, tail int) *output.Log {
	return output.New(output.Options{
		TailBytes: tail, SpillBytes: m.set.MaxSpillBytes,
		Create:  func() (*os.File, error) { return m.files.createSpill(j.spec.Owner, j.id, name) },
		Remove:  func() error { return m.files.removeSpill(j.spec.Owner, j.id, name) },
		OnSpill: m.set.Metrics.SpilledBytes,
	})
}

// supervise follows one command from its start to its settlement. It is the
// only goroutine that decides anything about it.
func (m *Manager) supervise(j *job) {
	pumps := m.startPumps(j)
	cause := m.awaitEnd(j)
	if cause == CauseNone {
		// Bash ended by itself. What it left may still be writing; what is left after
		// the drain is killed without a grace, since nothing survives.
		pumps.drain()
		if !j.proc.Alone() {
			j.proc.Kill()
		}
	}
	cleaned := m.awaitGone(j)
	if cause != CauseNone {
		pumps.drain() // nobody is left to hold the pipes
	}
	pumps.finish()
	m.settle(j, cause, pumps.cut, cleaned)
}

// awaitEnd returns when bash has exited by itself (CauseNone), or when a cause
// has cut it short and its tree is gone or was sent SIGKILL. The cause is fixed before the first signal is sent.
func (m *Manager) awaitEnd(j *job) Cause {
	timeout := time.NewTimer(j.spec.Timeout)
	defer timeout.Stop()
	var cause Cause
	select {
	case <-j.proc.Exited():
		return CauseNone
	case cause = <-j.stop:
	case <-timeout.C:
		cause = CauseTimeout
	}
	select {
	case <-j.proc.Exited(): // it was faster after all
		return CauseNone
	default:
	}
	j.mu.Lock()
	j.run.Cause = cause
	j.mu.Unlock()
	j.become(StatusStopping)
	j.proc.Terminate()
	grace := time.NewTimer(m.set.Grace)
	defer grace.Stop()
	select {
	case <-j.proc.Gone():
	case <-grace.C:
	case <-j.hurry:
	}
	j.proc.Kill()
	return cause
}

// awaitGone waits until nothing of the tree is left; false: it gave up.
func (m *Manager) awaitGone(j *job) bool {
	bound := time.NewTimer(killBound)
	defer bound.Stop()
	select {
	case <-j.proc.Gone():
		return true
	case <-bound.C:
		m.set.Logger.Error("a killed command's processes did not end", "id", j.id, "pid", j.proc.Pid())
		j.proc.Abandon()
		<-j.proc.Gone()
		return false
	}
}

// pumps move a command's bytes: its streams into their logs, the given stdin into
// it.
type pumps struct {
	readers []*pump
	stdin   *os.File
	readWG  sync.WaitGroup
	writeWG sync.WaitGroup
	cut     bool // after drain: a stream did not end
}

// pump reads one stream. While bash runs it has no deadline.
type pump struct {
	file *os.File
	log  *output.Log
	mu   sync.Mutex
	last time.Time // guarded by mu; zero while bash runs, else when reading must end
	cut  bool      // after the reader has returned
}

func (m *Manager) startPumps(j *job) *pumps {
	p := &pumps{stdin: j.proc.Stdin}
	p.add(j.proc.Stdout, j.stdout, m.set.Metrics.OutputBytes, Stdout)
	if j.proc.Stderr != nil {
		p.add(j.proc.Stderr, j.stderr, m.set.Metrics.OutputBytes, Stderr)
	}
	if p.stdin != nil {
		p.writeWG.Go(func() {
			// A command that reads nothing of it, or not all, is no error.
			_, _ = p.stdin.Write(j.spec.Stdin)
			p.stdin.Close()
		})
	}
	return p
}

func (p *pumps) add(f *os.File, log *output.Log, count func(string, int), name StreamName) {
	r := &pump{file: f, log: log}
	p.readers = append(p.readers, r)
	p.readWG.Go(func() { r.read(func(n int) { count(string(name), n) }) })
}

// readBuffer is the size of one read: what a pipe holds.
const readBuffer = 64 << 10

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// read appends to the log until the stream ends or its deadline passes with nothing
// to read.
func (r *pump) read(count func(int)) {
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := r.file.Read(buf[:])
		if n > 0 {
			r.log.Append(buf[:n])
			count(n)
			r.extend()
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !r.lastLook(buf[:], count) {
				return
			}
		default: // io.EOF
			return
		}
	}
}

// lastLook is for a deadline that has passed: it also passes while this
// goroutine waits for a processor, with bytes in the pipe that were written in time. true: read on.
func (r *pump) lastLook(buf []byte, count func(int)) bool {
	n, ended := r.takeReady(buf, count)
	if n > 0 && !ended && r.extend() {
		return true
	}
	if n > 0 && !ended {
		// The bound has passed, and what a full pipe holds was taken. Whether that was
		// all shows at a second look; a writer that goes on is cut off.
		_, ended = r.takeReady(buf, count)
	}
	r.cut = !ended
	return false
}

// takeReady appends what is there without waiting.
func (r *pump) takeReady(buf []byte, count func(int)) (n int, ended bool) {
	n, ended = readReady(r.file, buf)
	if n > 0 {
		r.log.Append(buf[:n])
		count(n)
	}
	return n, ended
}

// extend grants another idle time, within the bound; false: the bound has passed.
func (r *pump) extend() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		return true
	}
	now := time.Now()
	if !now.Before(r.last) {
		return false
	}
	next := now.Add(drainIdle)
	if next.After(r.last) {
		next = r.last
	}
	_ = r.file.SetReadDeadline(next)
	return true
}

// readReady reads what is there without waiting, whatever the deadline.
func readReady(f *os.File, buf []byte) (n int, ended bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, true
	}
	var got error
	if raw.Control(func(fd uintptr) { n, got = unix.Read(int(fd), buf) }) != nil {
		return 0, true
	}
	return max(n, 0), n == 0 && got == nil
}

// drain waits for the streams to end, or for drainIdle without a byte, or for drainMax in all.
func (p *pumps) drain() {
	for _, r := range p.readers {
		r.mu.Lock()
		r.last = time.Now().Add(drainMax)
		r.mu.Unlock()
		r.extend()
	}
	p.readWG.Wait()
	for _, r := range p.readers {
		p.cut = p.cut || r.cut
	}
}

// finish closes what is open. Nothing of the command is left to use it.
func (p *pumps) finish() {
	if p.stdin != nil {
		p.stdin.Close() // ends a writer that still waits
	}
	p.writeWG.Wait()
	for _, r := range p.readers {
		r.file.Close()
	}
}

// settle makes the facts final, remembers the run and lets the waiters go, in
// that order.
func (m *Manager) settle(j *job, cause Cause, cut, cleaned bool) {
	out, errs := m.seal(j, j.stdout, Stdout), m.seal(j, j.stderr, Stderr)
	m.removeTemp(j)
	r := j.snapshot(false)
	r.Stdout, r.Stderr = out, errs
	r.Spec = j.spec.withoutSecrets()
	r.FinishedAt = time.Now()
	r.Duration = r.FinishedAt.Sub(r.StartedAt)
	r.Cause, r.DrainIncomplete, r.CleanupIncomplete = cause, cut, !cleaned
	r.SurvivorsKilled, r.Usage = j.proc.Survivors(), j.proc.Usage()
	if cause != CauseNone {
		r.SurvivorsKilled = 0 // the tree was killed as a whole; nothing outlived its shell
	}
	r.Status = outcome(j.proc, cause, &r)
	m.stampSandbox(j, &r)
	j.mu.Lock()
	j.run = r
	j.stdout, j.stderr = nil, nil
	j.spec.Stdin, j.spec.Env = nil, nil
	j.mu.Unlock()
	m.count(r)
	m.release(j, func() { m.recent.add(j, r) })
	close(j.done)
}

// outcome puts bash's own status into r and says what the run's is.
func outcome(p *sandbox.Process, cause Cause, r *Run) Status {
	ws, ok := p.Status()
	switch {
	case !ok:
		r.Detail = "the runner of this command was killed from outside; everything that the command had started was killed with it"
		return StatusFailed
	case ws.Signaled():
		r.Signal = ws.Signal()
		return StatusKilled
	}
	code := ws.ExitStatus()
	r.ExitCode = &code
	if cause != CauseNone {
		return StatusKilled
	}
	return StatusCompleted
}

// seal ends a log and returns what is kept of it.
func (m *Manager) seal(j *job, log *output.Log, name StreamName) Stream {
	log.Seal()
	s := j.peek(log, name, true)
	if s.Truncated && s.SpillPath == "" && s.Bytes <= m.set.MaxSpillBytes {
		m.set.Logger.Warn("the output file of a command could not be written and was removed; is the disk of the state directory full?", "id", j.id, "stream", name)
	}
	if err := log.Close(); err != nil {
		m.set.Logger.Warn("closing a spill file failed", "id", j.id, "error", err)
	}
	return s
}

func (m *Manager) removeTemp(j *job) {
	if !j.spec.Mode.Confined() {
		return
	}
	if err := m.files.removeTemp(j.spec.Owner, j.id); err != nil {
		m.set.Logger.Warn("removing a command's temporary directory failed", "id", j.id, "error", err)
	}
}
