package exec

import (
	"slices"
	"time"
)

// recent remembers settled runs, oldest first, within bounds of number, age, memory
// and disk. What is too much goes at the expense of the owner who takes most, so that
// nobody can have another's runs forgotten. Whoever holds it locks.
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
	s := &settled{job: j, at: r.FinishedAt, bytes: int64(len(r.Stdout.Tail) + len(r.Stderr.Tail) + len(r.Spec.Command))}
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
	for len(rs.jobs) > maxRecentRuns {
		rs.dropFromLargest(func(*settled) int64 { return 1 })
	}
	for rs.bytes > maxRecentBytes {
		rs.dropFromLargest(func(s *settled) int64 { return s.bytes })
	}
	for rs.spill > rs.maxSpill {
		rs.dropFromLargest(func(s *settled) int64 { return s.spill })
	}
}

// dropFromLargest forgets the oldest run that counts, of the owner whose runs count most.
func (rs *recent) dropFromLargest(weight func(*settled) int64) {
	taken := map[Owner]int64{}
	var largest Owner
	for _, s := range rs.jobs {
		owner := s.job.spec.Owner
		taken[owner] += weight(s)
		if taken[owner] > taken[largest] {
			largest = owner
		}
	}
	rs.drop(slices.IndexFunc(rs.jobs, func(s *settled) bool { return s.job.spec.Owner == largest && weight(s) > 0 }))
}

// expire forgets what is older than keepFor.
func (rs *recent) expire(now time.Time) {
	for len(rs.jobs) > 0 && now.Sub(rs.jobs[0].at) > rs.keepFor {
		rs.drop(0)
	}
}

// drop forgets the run at i.
func (rs *recent) drop(i int) {
	s := rs.jobs[i]
	rs.jobs = slices.Delete(rs.jobs, i, i+1)
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
