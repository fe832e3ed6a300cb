package exec

import (
	"slices"
	"time"
)

const (
	sweepEvery   = time.Minute            // how often what has grown too old is looked for, at most
	orphansEvery = time.Hour              // how often output without a record is looked for, at most
	retryEvery   = time.Second            // how often a store that fails is tried again
	maxRecords   = 100_000                // settled commands that are remembered, besides Retention and MaxStateBytes
	sweepBatch   = 50                     // records that are removed between two looks at the clock and the sums
	maxUnsaved   = 1000                   // settled runs that are kept in memory because the store fails
	quickSweep   = 200 * time.Millisecond // the least time between two sweeps
	sweepPerAge  = 4                      // sweeps in one Retention, where that is short
)

// keepHouse removes what is to be kept no longer, and writes down what could not be written before, until
// the Manager is closed.
func (m *Manager) keepHouse() {
	m.emptyTrash()
	m.sweep(time.Now())
	m.removeOrphans(time.Now())
	orphans := time.NewTicker(max(orphansEvery, m.set.Retention))
	defer orphans.Stop()
	sweep := time.NewTicker(max(quickSweep, min(sweepEvery, m.set.Retention/sweepPerAge)))
	defer sweep.Stop()
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-m.closed:
			return
		case <-retry.C:
			m.mendState()
			m.catchUp()
		case now := <-orphans.C:
			m.removeOrphans(now)
		case <-sweep.C:
			m.emptyTrash()
			m.sweep(time.Now())
		case <-m.kick:
			m.emptyTrash()
			m.sweep(time.Now())
		}
	}
}

// emptyTrash removes what commands left and nobody waited for to be removed.
func (m *Manager) emptyTrash() {
	if err := m.files.emptyTrash(); err != nil {
		m.set.Logger.Warn("removing what commands left failed", "error", err)
	}
}

// mendState undoes what a command of the same user may do to the modes of our files (the gap "metadata"): it must
// neither open them to others nor keep the next bashd from starting.
func (m *Manager) mendState() (mended bool) {
	names, err := m.files.mendTop()
	if len(names) > 0 {
		m.set.Logger.Warn("the mode of files of the state directory had been changed and was mended; a command did that, or somebody else of this user", "files", names)
	}
	if err != nil {
		m.set.Logger.Error("the modes of the state directory's files cannot be mended", "error", err)
	}
	return len(names) > 0
}

// addStored adds up what records occupy, and wakes the janitor when that is too much.
func (m *Manager) addStored(bytes int64) {
	m.mu.Lock()
	m.stored.Bytes += bytes
	m.stored.Records++
	full := m.stored.Bytes > m.set.MaxStateBytes || m.stored.Records > maxRecords
	m.mu.Unlock()
	if full {
		m.wakeJanitor()
	}
}

// wakeJanitor has it do its round now.
func (m *Manager) wakeJanitor() {
	select {
	case m.kick <- struct{}{}:
	default: // it was woken already
	}
}

// sweep removes what is too old, then what is too much.
func (m *Manager) sweep(now time.Time) {
	if err := m.archive.expireKeys(now.Add(-keyLifetime)); err != nil {
		return
	}
	for {
		oldest, err := m.archive.oldest(nil, sweepBatch)
		if err != nil {
			return
		}
		n := slices.IndexFunc(oldest, func(s Stored) bool { return now.Sub(s.FinishedAt) <= m.set.Retention })
		if n < 0 {
			n = len(oldest)
		}
		if n == 0 || m.remove(oldest[:n]) != nil {
			break
		}
	}
	for m.sweepExcess() {
		select {
		case <-m.closed:
			return
		default:
		}
	}
}

// sweepExcess removes a few of the oldest records of the owner who takes most, if all together take too much: nobody
// can have another's forgotten. false: there is nothing more to do.
func (m *Manager) sweepExcess() bool {
	usage, err := m.archive.usage()
	if err != nil {
		return false
	}
	var all OwnerUsage
	for _, u := range usage {
		all.Bytes += u.Bytes
		all.Records += u.Records
	}
	m.mu.Lock()
	m.stored = all
	m.mu.Unlock()
	weight := func(u OwnerUsage) int64 { return u.Bytes }
	excess := all.Bytes - m.set.MaxStateBytes
	if excess <= 0 {
		weight, excess = func(u OwnerUsage) int64 { return u.Records }, all.Records-maxRecords
	}
	if excess <= 0 {
		return false
	}
	largest := slices.MaxFunc(usage, func(a, b OwnerUsage) int { return int(min(max(weight(a)-weight(b), -1), 1)) })
	oldest, err := m.archive.oldest(&largest.Owner, sweepBatch)
	if err != nil || len(oldest) == 0 {
		return false
	}
	n := 0
	for freed := int64(0); n < len(oldest) && freed < excess; n++ {
		freed += weight(OwnerUsage{Bytes: oldest[n].Bytes, Records: 1})
	}
	return m.remove(oldest[:n]) == nil
}

// remove forgets settled commands: files first, then records, as in Delete.
func (m *Manager) remove(list []Stored) error {
	ids := make([]string, 0, len(list))
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	defer m.beginDeleting(ids...)()
	for _, s := range list {
		if err := m.files.removeRun(s.Owner, s.ID); err != nil {
			m.set.Logger.Warn("removing old output failed", "id", s.ID, "error", err)
		}
	}
	return m.archive.delete(ids...)
}

// catchUp records what the store did not take before.
func (m *Manager) catchUp() {
	m.mu.Lock()
	struck := m.struck
	m.struck = nil
	var unsaved []*job
	for _, j := range m.live {
		if j.settled() {
			unsaved = append(unsaved, j)
		}
	}
	m.mu.Unlock()
	if len(struck) > 0 && m.archive.delete(struck...) != nil {
		m.mu.Lock()
		m.struck = append(m.struck, struck...)
		m.mu.Unlock()
		return
	}
	slices.SortFunc(unsaved, func(a, b *job) int { return int(a.seq - b.seq) })
	for i, j := range unsaved {
		if !m.saveLate(j) {
			m.shed(unsaved[i:])
			return
		}
	}
	if m.archive.trouble() != "" {
		_ = m.archive.probe()
	}
}

// saveLate records a command that settled before, unless it was deleted meanwhile. false: the store still fails.
func (m *Manager) saveLate(j *job) bool {
	m.saving.Lock()
	defer m.saving.Unlock()
	defer m.consuming.lock(j.id)() // as in settle
	m.mu.Lock()
	_, waits := m.live[j.id]
	m.mu.Unlock()
	if !waits || !j.unrecorded() { // or it is just settling
		return true
	}
	if !m.keep(j, j.recorded()) {
		return false
	}
	m.forget(j)
	return true
}

// shed gives up on recording the oldest of too many runs; their callers have been answered. Tasks, of
// which there cannot be many, are never given up.
func (m *Manager) shed(unsaved []*job) {
	runs := slices.DeleteFunc(slices.Clone(unsaved), func(j *job) bool { return j.kind() == Background })
	for _, j := range runs[:max(0, len(runs)-maxUnsaved)] {
		m.set.Logger.Error("a settled run could not be recorded and is forgotten", "id", j.id)
		if err := m.files.removeRun(j.spec.Owner, j.id); err != nil {
			m.set.Logger.Warn("removing its output failed", "id", j.id, "error", err)
		}
		m.forget(j)
	}
}

func (m *Manager) forget(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, j.id)
}

func (j *job) unrecorded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run.Unrecorded
}

// recorded is the settled run as it is once its record is written.
func (j *job) recorded() Run {
	r := j.snapshot(true)
	r.Unrecorded = false
	return r
}

// removeOrphans removes output that no record names, when it is as old as what is forgotten: of runs that could not be
// recorded. It is not done at once, because it may be the database that is missing.
func (m *Manager) removeOrphans(now time.Time) {
	left := 0
	err := m.files.eachRun(func(o Owner, id string, modified time.Time) bool {
		select {
		case <-m.closed:
			return false
		default:
		}
		m.mu.Lock()
		_, live := m.live[id]
		m.mu.Unlock()
		if live || !m.archive.unknown(id) {
			return true
		}
		if now.Sub(modified) <= m.set.Retention {
			left++
			return true
		}
		m.set.Logger.Info("removing output that no record names", "id", id)
		if err := m.files.removeRun(o, id); err != nil {
			m.set.Logger.Warn("removing output that no record names failed", "id", id, "error", err)
		}
		return true
	})
	if err != nil {
		m.set.Logger.Warn("looking for output that no record names failed", "error", err)
	}
	if left > 0 {
		m.set.Logger.Warn("there is output that no record names; it is removed when it is older than BASHD_RETENTION. Is the database missing?", "commands", left)
	}
}
