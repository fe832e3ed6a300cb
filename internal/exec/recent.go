package exec

import (
	"slices"
	"time"
)

// recent remembers settled runs, oldest first, within bounds of number, age, memory
// and disk. Its owner locks.
type recent struct {
	keepFor  time.Duration
	maxSpill int64
	forget   func(*job) // removes what the run left on disk

	jobs  []*settled
	byID  map[string]*settled
	bytes int64 // collected output of all
	spill int64 // spill files of all
}

// settled is one remembered run.
type settled struct {
	job          *job
	at           time.Time
	bytes, spill int64
}

func (rs *recent) get(id string) *job {
	if s := rs.byID[id]; s != nil {
		return s.job
	}
	return nil
}

// add remembers j as settled now and forgets what that is too much.
func (rs *recent) add(j *job, r Run) {
	s := &settled{job: j, at: r.FinishedAt, bytes: int64(len(r.Stdout.Tail) + len(r.Stderr.Tail) + len(r.Spec.Command) + len(r.Spec.Stdin))}
	for _, st := range []Stream{r.Stdout, r.Stderr} {
		if st.SpillPath != "" {
			s.spill += st.Bytes
		}
	}
	if rs.byID == nil {
		rs.byID = map[string]*settled{}
	}
	rs.jobs = append(rs.jobs, s)
	rs.byID[j.id] = s
	rs.bytes += s.bytes
	rs.spill += s.spill
	rs.expire(r.FinishedAt)
	for len(rs.jobs) > maxRecentRuns || rs.bytes > maxRecentBytes || rs.spill > rs.maxSpill {
		rs.drop()
	}
}

// expire forgets what is older than keepFor.
func (rs *recent) expire(now time.Time) {
	for len(rs.jobs) > 0 && now.Sub(rs.jobs[0].at) > rs.keepFor {
		rs.drop()
	}
}

// drop forgets the oldest.
func (rs *recent) drop() {
	s := rs.jobs[0]
	rs.jobs = slices.Delete(rs.jobs, 0, 1)
	delete(rs.byID, s.job.id)
	rs.bytes -= s.bytes
	rs.spill -= s.spill
	if s.spill > 0 {
		rs.forget(s.job)
	}
}

// forget removes the spill files of a run that is remembered no more.
func (m *Manager) forget(j *job) {
	if err := m.files.removeRun(j.spec.Owner, j.id); err != nil {
		m.set.Logger.Warn("removing old output failed", "id", j.id, "error", err)
	}
}
