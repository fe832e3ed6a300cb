package storetest

import (
	"sync"
	"time"

	"bashd/internal/exec"
)

// Faulty is a Store whose writes fail on demand. Reads go through as they are. The fields are set before
// it is used; hooks may be called by several goroutines at once.
type Faulty struct {
	exec.Store // that it wraps

	// Before is called before each write: with its name (Insert, Yield, Settle, Advance, Delete, ExpireKeys, Probe) and
	// its number, from 1. Where it returns an error, that is the write's, and nothing was done. nil: never fails.
	Before func(op string, n int) error
	// After is called after each write that succeeded. Where it returns an error, that is the write's, although
	// it was done. nil: never fails.
	After func(op string, n int) error

	mu     sync.Mutex
	writes int // guarded by mu
}

// Writes is how many writes were asked for.
func (f *Faulty) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

func (f *Faulty) write(op string, do func() error) error {
	f.mu.Lock()
	f.writes++
	n := f.writes
	f.mu.Unlock()
	if f.Before != nil {
		if err := f.Before(op, n); err != nil {
			return err
		}
	}
	if err := do(); err != nil || f.After == nil {
		return err
	}
	return f.After(op, n)
}

// Insert is a write.
func (f *Faulty) Insert(r exec.Record, key *exec.Key) error {
	return f.write("Insert", func() error { return f.Store.Insert(r, key) })
}

// Yield is a write.
func (f *Faulty) Yield(id string, at exec.YieldPoint) error {
	return f.write("Yield", func() error { return f.Store.Yield(id, at) })
}

// Settle is a write.
func (f *Faulty) Settle(r exec.Record) error {
	return f.write("Settle", func() error { return f.Store.Settle(r) })
}

// Advance is a write.
func (f *Faulty) Advance(id string, stdout, stderr int64, reported bool) error {
	return f.write("Advance", func() error { return f.Store.Advance(id, stdout, stderr, reported) })
}

// Delete is a write.
func (f *Faulty) Delete(ids ...string) error {
	return f.write("Delete", func() error { return f.Store.Delete(ids...) })
}

// ExpireKeys is a write.
func (f *Faulty) ExpireKeys(before time.Time) error {
	return f.write("ExpireKeys", func() error { return f.Store.ExpireKeys(before) })
}

// Probe is a write.
func (f *Faulty) Probe() error {
	return f.write("Probe", f.Store.Probe)
}
