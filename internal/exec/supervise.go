package exec

import (
	"context"
	"os"
	"time"

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
	temp, err := m.makeTemp(j)
	if err != nil {
		return errPlace("the command's temporary directory cannot be made", err)
	}
	j.proc, err = m.set.Sandbox.Start(context.Background(), sandbox.Command{
		Policy: policy, Script: j.spec.Command, Workdir: j.spec.Workdir,
		Env: m.environment(&j.spec, j.id, temp), WantStdin: j.spec.HasStdin || j.spec.StdinOpen, MergeStderr: j.spec.MergeStderr,
	})
	if err != nil {
		m.removeTemp(j)
		return err
	}
	if j.spec.StdinOpen {
		j.stdin = newStdin(j.proc.Stdin)
	}
	m.set.Metrics.Spawned(string(j.spec.Mode), time.Since(began))
	m.set.Metrics.RunStarted(string(j.kind()))
	m.set.Logger.Debug("command started", "id", j.id, "runner", j.proc.Runner(), "mode", j.spec.Mode, "command", j.spec.Command)
	close(j.started)
	go m.supervise(j)
	return nil
}

// makeTemp returns the command's TMPDIR, made where the sandbox has none for it; empty under full access.
func (m *Manager) makeTemp(j *job) (string, error) {
	switch {
	case !j.spec.Mode.Confined():
		return "", nil
	case m.set.Sandbox.PrivateTemp(j.spec.Mode):
		return "/tmp", nil
	}
	return m.files.tempPath(j.spec.Owner, j.id), m.files.makeTemp(j.spec.Owner, j.id)
}

// openLogs makes the logs of both streams, which go to files in the owner's directory: those of a task with their first
// byte, so that they survive a crash; those of a run when they outgrow memory.
func (m *Manager) openLogs(j *job, eager bool) {
	j.stdout = m.newLog(j, Stdout, j.spec.StdoutMaxBytes, eager)
	j.stderr = m.newLog(j, Stderr, j.spec.StderrMaxBytes, eager)
}

func (m *Manager) newLog(j *job, name StreamName, tail int, eager bool) *output.Log {
	var log *output.Log
	o := output.Options{
		TailBytes: tail, SpillBytes: m.set.MaxSpillBytes, Eager: eager,
		Create:  func() (*os.File, error) { return m.files.createSpill(j.spec.Owner, j.id, name) },
		Remove:  func() error { return m.files.removeSpill(j.spec.Owner, j.id, name) },
		OnSpill: m.set.Metrics.SpilledBytes,
	}
	if eager {
		o.OnWithdraw = func() {
			if err := m.files.noteDropped(j.spec.Owner, j.id, name, log.Stat().Bytes); err != nil {
				m.set.Logger.Warn("that a task's output is incomplete could not be noted", "id", j.id, "stream", name, "error", err)
			}
		}
	}
	log = output.New(o)
	return log
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
	end := ending{cause: cause, drainIncomplete: pumps.cut, cleanupIncomplete: !cleaned, usage: j.proc.Usage()}
	if cause == CauseNone { // else the tree was killed as a whole; nothing outlived its shell
		end.survivors = j.proc.Survivors()
	}
	end.how(j.proc)
	m.settle(j, end)
}

// awaitEnd returns when bash has exited by itself (CauseNone), or when a cause
// has cut it short and its tree is gone or was sent SIGKILL. The cause is fixed before the first signal is sent.
func (m *Manager) awaitEnd(j *job) Cause {
	var timeout <-chan time.Time
	if j.spec.Timeout > 0 {
		timer := time.NewTimer(j.spec.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	var cause Cause
	for lifted := j.lifted; cause == CauseNone; {
		select {
		case <-j.proc.Exited():
			return CauseNone
		case cause = <-j.stop:
		case <-timeout:
			cause = CauseTimeout
		case <-lifted:
			timeout, lifted = nil, nil
			continue
		}
		select {
		case <-j.proc.Exited(): // it was faster after all
			return CauseNone
		default:
		}
		if !j.fix(cause) {
			cause = CauseNone // the timeout of a run that has just become a task
		}
	}
	j.proc.Terminate()
	m.announceStopping(j)
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
		m.set.Logger.Error("a killed command's processes did not end", "id", j.id, "runner", j.proc.Runner())
		j.proc.Abandon()
		<-j.proc.Gone()
		return false
	}
}
