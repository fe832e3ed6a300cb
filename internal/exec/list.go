package exec

import (
	"cmp"
	"slices"
	"time"
)

// Bounds of a page of runs.
const (
	DefaultPage = 50
	MaxPage     = 200
)

// ListOptions select runs.
type ListOptions struct {
	Statuses []Status // empty: all
	Limit    int      // 1 to MaxPage; 0: DefaultPage
	Before   int64    // a position that List returned; 0: from the newest
}

// List returns the caller's and nobody's runs, newest first, without collected output. next is where to
// go on, 0 when that was all.
func (m *Manager) List(c Caller, o ListOptions) (runs []Run, next int64, err error) {
	if o.Limit == 0 {
		o.Limit = DefaultPage
	}
	if o.Limit < 0 || o.Limit > MaxPage {
		return nil, 0, invalid("limit", "expected an integer from 1 to %d", MaxPage)
	}
	runs = []Run{}
	for _, j := range m.known(c) {
		if o.Before > 0 && j.seq >= o.Before {
			continue
		}
		r := j.snapshot(false)
		if len(o.Statuses) > 0 && !slices.Contains(o.Statuses, r.Status) {
			continue
		}
		if len(runs) == o.Limit {
			return runs, next, nil
		}
		runs = append(runs, r)
		next = j.seq
	}
	return runs, 0, nil
}

// known lists every job that c may see, newest first.
func (m *Manager) known(c Caller) []*job {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent.expire(time.Now())
	var jobs []*job
	for _, j := range m.running {
		if visible(c, j.spec.Owner) {
			jobs = append(jobs, j)
		}
	}
	for _, s := range m.recent.jobs {
		if visible(c, s.job.spec.Owner) {
			jobs = append(jobs, s.job)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(b.seq, a.seq) })
	return jobs
}
