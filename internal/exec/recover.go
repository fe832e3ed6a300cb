package exec

import "time"

// recoverState brings what an earlier life left into order, before anything is admitted: nothing of it runs any
// more. Its tasks are settled as failed, with their output as far as it went; of a run that was in the middle nothing was
// promised to last but that it took place.
func (m *Manager) recoverState() error {
	var err error
	if m.seq, err = m.archive.store.LastSeq(); err != nil {
		return err
	}
	unsettled, err := m.archive.store.Unsettled()
	if err != nil {
		return err
	}
	for _, rec := range unsettled {
		m.settleLost(rec)
	}
	if len(unsettled) > 0 {
		m.set.Logger.Warn("the server stopped before some commands had finished; they are settled as failed", "commands", len(unsettled))
	}
	return m.files.clearTemp()
}

// settleLost settles a command that the death of the server took with it. A store that does not take that, for want
// of space, keeps nobody from starting: the command waits in memory for being recorded, like any other.
func (m *Manager) settleLost(rec Record) {
	r := asAdmitted(rec.Run)
	if r.Yielded = rec.Run.Yielded; r.Yielded != nil {
		r.Spec.Timeout = 0 // was lifted then
	}
	r.Status, r.FinishedAt = StatusFailed, time.Now()
	r.Duration = max(0, r.FinishedAt.Sub(r.StartedAt)) // the clock may have been set meanwhile
	if r.Kind == Background {
		r.Detail = "the server stopped before the task finished"
		r.Stdout = m.leftOf(r, Stdout, r.Spec.StdoutMaxBytes)
		r.Stderr = m.leftOf(r, Stderr, r.Spec.StderrMaxBytes)
	} else {
		r.Detail = "the server stopped before the run finished"
		if err := m.files.removeRun(r.Owner, r.ID); err != nil { // not complete, so of no use
			m.set.Logger.Warn("removing the output of a lost run failed", "id", r.ID, "error", err)
		}
	}
	if m.archive.settle(recordOf(rec.Seq, r)) != nil {
		r.Unrecorded = true
		m.live[r.ID] = settledJob(rec, r)
	}
}

// settledJob is a command that has settled and of which only the record is missing.
func settledJob(rec Record, r Run) *job {
	j := newJob(r.ID, rec.Seq, r.Kind, r.Spec, nil)
	j.run, j.closed, j.read, j.told = r, true, cursor{rec.ReadStdout, rec.ReadStderr}, rec.Reported
	j.inserted.Store(true)
	close(j.entered)
	close(j.started)
	close(j.done)
	return j
}

// leftOf is a stream of a lost task, as its file has it.
func (m *Manager) leftOf(r Run, name StreamName, limit int) Stream {
	size, complete := m.files.sizeOf(r.Owner, r.ID, name)
	s := Stream{Bytes: size, Truncated: size > int64(limit), HasFile: complete && size > 0}
	if !complete {
		s.RetainedFrom = size
	}
	return s
}
