package exec

import (
	"cmp"
	"slices"
)

// Bounds of a page of commands.
const (
	DefaultPage = 50
	MaxPage     = 200
)

// ListOptions select commands.
type ListOptions struct {
	Kind     Kind     // empty: foreground
	Session  string   // empty: any
	Statuses []Status // empty: all
	Limit    int      // 1 to MaxPage; 0: DefaultPage
	Before   int64    // a position that List returned; 0: from the newest
}

// listed is a command with its place in the list.
type listed struct {
	seq int64
	run Run
}

// List returns the caller's and nobody's commands, newest first, without collected output; of a settled one
// only the first ListedCommandBytes of the command. next is where to go on, 0 when that was all. Errors: CodeInvalidArgument, CodeInternal.
func (m *Manager) List(c Caller, o ListOptions) (runs []Run, next int64, err error) {
	if o.Limit == 0 {
		o.Limit = DefaultPage
	}
	if o.Limit < 0 || o.Limit > MaxPage {
		return nil, 0, invalid("limit", "expected an integer from 1 to %d", MaxPage)
	}
	if o.Kind == "" {
		o.Kind = Foreground
	}
	// What is in memory first: what settles meanwhile is then found at rest, and maybe twice, but not missed.
	all := m.listLive(c, o)
	atRest, err := m.listAtRest(c, o)
	if err != nil {
		return nil, 0, err
	}
	all = append(all, atRest...)
	slices.SortStableFunc(all, func(a, b listed) int { return cmp.Compare(b.seq, a.seq) })
	all = slices.CompactFunc(all, func(a, b listed) bool { return a.seq == b.seq })
	if len(all) > o.Limit {
		all = all[:o.Limit]
		next = all[o.Limit-1].seq
	}
	runs = make([]Run, len(all))
	for i, l := range all {
		runs[i] = l.run
	}
	return runs, next, nil
}

// listLive lists what runs, and what is settled and not recorded yet.
func (m *Manager) listLive(c Caller, o ListOptions) (all []listed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.live {
		if !visible(c, j.spec.Owner) || o.Before > 0 && j.seq >= o.Before || o.Session != "" && j.spec.Session != o.Session {
			continue
		}
		r := j.snapshot(false)
		if r.Kind == o.Kind && (len(o.Statuses) == 0 || slices.Contains(o.Statuses, r.Status)) {
			all = append(all, listed{j.seq, r})
		}
	}
	return all
}

// listAtRest lists recorded commands, one more than asked for, so that the end shows.
func (m *Manager) listAtRest(c Caller, o ListOptions) (all []listed, err error) {
	terminal := slices.DeleteFunc(slices.Clone(o.Statuses), func(s Status) bool { return !s.Terminal() })
	if len(o.Statuses) > 0 && len(terminal) == 0 {
		return nil, nil
	}
	recs, err := m.archive.list(Query{
		Owner: c.Owner, Kind: o.Kind, Session: o.Session, Statuses: terminal, Before: o.Before, Limit: o.Limit + 1,
	})
	if err != nil {
		return nil, &Error{Code: CodeInternal, Message: "the records cannot be read", Err: err}
	}
	for _, rec := range recs {
		m.advertise(&rec.Run)
		all = append(all, listed{rec.Seq, rec.Run})
	}
	return all, nil
}
