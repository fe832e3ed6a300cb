package exec

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"bashd/internal/metrics"
)

// archive is the Store as the Manager uses it: every failure is counted, and remembered until
// a write succeeds again, so that readiness tells of it.
type archive struct {
	store Store
	met   *metrics.Metrics
	log   *slog.Logger
	mend  func() bool // undoes what commands did to the modes of the store's files; true: there was something

	mu      sync.Mutex
	failing error // guarded by mu; the last failure since the last success, nil: all is well
	since   time.Time
}

func newArchive(s Store, met *metrics.Metrics, log *slog.Logger, mend func() bool) *archive {
	return &archive{store: s, met: met, log: log, mend: mend}
}

// write does a write of the kind op.
func (a *archive) write(op string, do func() error) error { return a.note(op, a.mended(do), true) }

// tidy does a write that may find nothing to remove: its success says nothing of the next write.
func (a *archive) tidy(op string, do func() error) error { return a.note(op, a.mended(do), false) }

// mended does do again where it failed and there was something to mend. A Store may be asked the same again.
func (a *archive) mended(do func() error) error {
	err := do()
	if err != nil && !isAnswer(err) && a.mend() {
		err = do()
	}
	return err
}

// isAnswer tells what a Store says when it works.
func isAnswer(err error) bool { return errors.Is(err, ErrKeyTaken) || errors.Is(err, ErrNoRecord) }

// note takes note of how a write went, and returns err.
func (a *archive) note(op string, err error, written bool) error {
	if isAnswer(err) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		if a.failing != nil && written {
			a.log.Info("the store takes writes again", "failedFor", time.Since(a.since).Round(time.Millisecond))
			a.failing = nil
		}
		return nil
	}
	a.met.StoreError(op)
	if a.failing == nil {
		a.since = time.Now()
		a.log.Error("the store fails; tasks are refused and results are kept in memory until it works again", "op", op, "error", err)
	}
	a.failing = err
	return err
}

// trouble says why the store is not to be relied on; "": it is.
func (a *archive) trouble() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failing == nil {
		return ""
	}
	return "it does not take writes; new tasks are refused, and results are not durable: " + a.failing.Error()
}

func (a *archive) insert(r Record, k *Key) error {
	return a.write("insert", func() error { return a.store.Insert(r, k) })
}

func (a *archive) settle(r Record) error {
	return a.write("settle", func() error { return a.store.Settle(r) })
}

func (a *archive) yield(id string, p YieldPoint) error {
	return a.write("yield", func() error { return a.store.Yield(id, p) })
}

func (a *archive) advance(id string, c cursor, told bool) error {
	return a.write("advance", func() error { return a.store.Advance(id, c.stdout, c.stderr, told) })
}

func (a *archive) probe() error { return a.write("probe", a.store.Probe) }

func (a *archive) delete(ids ...string) error {
	return a.tidy("delete", func() error { return a.store.Delete(ids...) })
}

func (a *archive) expireKeys(t time.Time) error {
	return a.tidy("key", func() error { return a.store.ExpireKeys(t) })
}

// read does a read of the kind op. That it fails is counted and logged, and nothing follows from it.
func read[T any](a *archive, op string, do func() (T, error)) (found T, err error) {
	err = a.mended(func() error {
		found, err = do()
		return err
	})
	if err != nil && !isAnswer(err) {
		a.met.StoreError(op)
		a.log.Error("the store cannot be read", "op", op, "error", err)
	}
	return found, err
}

func (a *archive) get(id string) (Record, error) {
	return read(a, "get", func() (Record, error) { return a.store.Get(id) })
}

func (a *archive) list(q Query) ([]Record, error) {
	return read(a, "list", func() ([]Record, error) { return a.store.List(q) })
}

func (a *archive) lookupKey(k Key) (KeyUse, error) {
	return read(a, "key", func() (KeyUse, error) { return a.store.LookupKey(k) })
}

func (a *archive) usage() ([]OwnerUsage, error) {
	return read(a, "retention", a.store.Usage)
}

func (a *archive) oldest(o *Owner, limit int) ([]Stored, error) {
	return read(a, "retention", func() ([]Stored, error) { return a.store.Oldest(o, limit) })
}

// unknown reports that there is certainly no record of that id.
func (a *archive) unknown(id string) bool {
	_, err := a.get(id)
	return errors.Is(err, ErrNoRecord)
}
