package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
)

// Memory is an exec.Store that keeps everything in memory and looks at every record for every
// answer. It is for tests: nothing survives it. Safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	records map[string]*exec.Record // guarded by mu
	keys    map[keyName]exec.KeyUse // guarded by mu
}

// keyName is what identifies a key.
type keyName struct {
	owner exec.Owner
	route exec.Kind
	name  string
}

var _ exec.Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{records: map[string]*exec.Record{}, keys: map[keyName]exec.KeyUse{}}
}

// Insert is [exec.Store].Insert. The same call again is no error.
func (m *Memory) Insert(r exec.Record, key *exec.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.records[r.Run.ID]
	for _, other := range m.records {
		if (other.Seq == r.Seq) != (other == there) {
			return fmt.Errorf("insert %s: its id or its number %d belongs to another record", r.Run.ID, r.Seq)
		}
	}
	if key != nil {
		use, taken := m.keys[nameOf(*key)]
		if taken && (use.ID != r.Run.ID || use.Body != key.Body) {
			return fmt.Errorf("insert %s: %w", r.Run.ID, exec.ErrKeyTaken)
		}
		if !taken {
			m.keys[nameOf(*key)] = exec.KeyUse{ID: r.Run.ID, Body: key.Body, TakenAt: micro(time.Now())}
		}
	}
	if there == nil {
		m.records[r.Run.ID] = new(kept(r))
	}
	return nil
}

func nameOf(k exec.Key) keyName { return keyName{k.Owner, k.Route, k.Name} }

// Yield is [exec.Store].Yield. Error: exec.ErrNoRecord without a running foreground run of that id.
func (m *Memory) Yield(id string, at exec.YieldPoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[id]
	switch {
	case r != nil && r.Run.Yielded != nil:
	case r == nil || r.Run.Kind != exec.Foreground || r.Run.Status.Terminal():
		return fmt.Errorf("yield %s: %w", id, exec.ErrNoRecord)
	default:
		r.Run.Kind, r.Run.Yielded = exec.Background, &at
	}
	return nil
}

// Settle is [exec.Store].Settle. A status that is not terminal is refused.
func (m *Memory) Settle(r exec.Record) error {
	if !r.Run.Status.Terminal() {
		return fmt.Errorf("settle %s: the status %q is not terminal", r.Run.ID, r.Run.Status)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.records[r.Run.ID]
	if old == nil || old.Run.Status.Terminal() {
		return nil
	}
	owner := old.Run.Owner
	k := kept(r)
	old.Run, old.Bytes = k.Run, k.Bytes
	old.Run.Owner, old.Run.Spec.Owner = owner, owner
	return nil
}

// Advance is [exec.Store].Advance. An unknown id is no error.
func (m *Memory) Advance(id string, stdout, stderr int64, reported bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.records[id]; r != nil {
		r.ReadStdout, r.ReadStderr = max(r.ReadStdout, stdout), max(r.ReadStderr, stderr)
		r.Reported = r.Reported || reported
	}
	return nil
}

// Get is [exec.Store].Get.
func (m *Memory) Get(id string) (exec.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[id]
	if r == nil {
		return exec.Record{}, fmt.Errorf("get %s: %w", id, exec.ErrNoRecord)
	}
	return kept(*r), nil
}

// List is [exec.Store].List. Of a Spec it has the beginning of the command, the description, the timeout, the session and the
// owner.
func (m *Memory) List(q exec.Query) ([]exec.Record, error) {
	if q.Limit < 1 {
		return nil, fmt.Errorf("list: the limit %d is below 1", q.Limit)
	}
	found := m.selected(func(r *exec.Record) bool {
		return r.Run.Status.Terminal() && r.Run.Kind == q.Kind && (r.Run.Owner == q.Owner || r.Run.Owner == "") &&
			(q.Session == "" || r.Run.Spec.Session == q.Session) &&
			(len(q.Statuses) == 0 || slices.Contains(q.Statuses, r.Run.Status)) &&
			(q.Before == 0 || r.Seq < q.Before)
	})
	slices.Reverse(found)
	found = found[:min(len(found), q.Limit)]
	for i := range found {
		found[i] = listed(found[i])
	}
	return found, nil
}

// selected are copies of the records that match, oldest first.
func (m *Memory) selected(match func(*exec.Record) bool) (found []exec.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if match(r) {
			found = append(found, kept(*r))
		}
	}
	slices.SortFunc(found, func(a, b exec.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return found
}

// Unsettled is [exec.Store].Unsettled.
func (m *Memory) Unsettled() ([]exec.Record, error) {
	found := m.selected(func(r *exec.Record) bool { return !r.Run.Status.Terminal() })
	for i := range found {
		found[i].Run.Stdout.Tail, found[i].Run.Stderr.Tail = nil, nil
	}
	return found, nil
}

// Delete is [exec.Store].Delete.
func (m *Memory) Delete(ids ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		delete(m.records, id)
	}
	maps.DeleteFunc(m.keys, func(_ keyName, use exec.KeyUse) bool { return slices.Contains(ids, use.ID) })
	return nil
}

// LookupKey is [exec.Store].LookupKey.
func (m *Memory) LookupKey(k exec.Key) (exec.KeyUse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	use, taken := m.keys[nameOf(k)]
	if !taken {
		return exec.KeyUse{}, fmt.Errorf("look-up of a key: %w", exec.ErrNoRecord)
	}
	return use, nil
}

// ExpireKeys is [exec.Store].ExpireKeys.
func (m *Memory) ExpireKeys(before time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.keys, func(_ keyName, use exec.KeyUse) bool { return use.TakenAt.Before(before) })
	return nil
}

// Usage is [exec.Store].Usage.
func (m *Memory) Usage() ([]exec.OwnerUsage, error) {
	sums := map[exec.Owner]exec.OwnerUsage{}
	for _, r := range m.selected(func(r *exec.Record) bool { return r.Run.Status.Terminal() }) {
		u := sums[r.Run.Owner]
		sums[r.Run.Owner] = exec.OwnerUsage{Owner: r.Run.Owner, Records: u.Records + 1, Bytes: u.Bytes + r.Bytes}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b exec.OwnerUsage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Owner, b.Owner))
	}), nil
}

// Oldest is [exec.Store].Oldest.
func (m *Memory) Oldest(owner *exec.Owner, limit int) (found []exec.Stored, err error) {
	for _, r := range m.selected(func(r *exec.Record) bool {
		return r.Run.Status.Terminal() && (owner == nil || r.Run.Owner == *owner)
	}) {
		found = append(found, exec.Stored{ID: r.Run.ID, Owner: r.Run.Owner, FinishedAt: r.Run.FinishedAt, Bytes: r.Bytes})
	}
	slices.SortStableFunc(found, func(a, b exec.Stored) int { return a.FinishedAt.Compare(b.FinishedAt) })
	return found[:min(len(found), max(0, limit))], nil
}

// LastSeq is [exec.Store].LastSeq.
func (m *Memory) LastSeq() (last int64, err error) {
	for _, r := range m.selected(func(*exec.Record) bool { return true }) {
		last = max(last, r.Seq)
	}
	return last, nil
}

// Probe is [exec.Store].Probe.
func (m *Memory) Probe() error { return nil }

// kept is what a Store keeps of r, in memory of its own.
func kept(r exec.Record) exec.Record {
	run := &r.Run
	run.Unrecorded = false
	run.Spec.Stdin = nil
	names := make(map[string]string, len(run.Spec.Env))
	for name := range run.Spec.Env {
		names[name] = ""
	}
	run.Spec.Env = names
	for _, s := range []*exec.Stream{&run.Stdout, &run.Stderr} {
		s.SpillPath, s.Tail = "", slices.Clone(s.Tail)
	}
	run.StartedAt, run.FinishedAt = micro(run.StartedAt), micro(run.FinishedAt)
	run.ExitCode, run.Yielded, run.Sandbox.Denial = copied(run.ExitCode), copied(run.Yielded), copied(run.Sandbox.Denial)
	run.Sandbox.Gaps = slices.Clone(run.Sandbox.Gaps)
	return r
}

// listed is what a list has of a kept record.
func listed(r exec.Record) exec.Record {
	s := r.Run.Spec
	r.Run.Spec = exec.Spec{Command: s.Command, Description: s.Description, Timeout: s.Timeout, Session: s.Session, Owner: s.Owner}
	r.Run.Stdout.Tail, r.Run.Stderr.Tail = nil, nil
	if end := exec.ListedCommandBytes; len(s.Command) > end {
		for end > exec.ListedCommandBytes-utf8.UTFMax && !utf8.RuneStart(s.Command[end]) {
			end--
		}
		r.Run.Spec.Command = s.Command[:end]
	}
	return r
}

// micro is t as precise as it is kept.
func micro(t time.Time) time.Time { return t.Truncate(time.Microsecond).UTC() }

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
