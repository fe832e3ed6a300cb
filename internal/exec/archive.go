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

	mu      sync.Mutex
	failing error // guarded by mu; the last failure since the last success, nil: all is well
	since   time.Time
}

func newArchive(s Store, met *metrics.Metrics, log *slog.Logger) *archive {
	return &archive{store: s, met: met, log: log}
}

// did takes note of how a write of the kind op went, and returns err.
func (a *archive) did(op string, err error) error { return a.note(op, err, true) }

// tidied is did for what may find nothing to remove: its success says nothing of the next write.
func (a *archive) tidied(op string, err error) error { return a.note(op, err, false) }

func (a *archive) note(op string, err error, written bool) error {
	if errors.Is(err, ErrKeyTaken) || errors.Is(err, ErrNoRecord) {
		return err // an answer
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

// read takes note of how a read went: it is counted, and nothing follows from it.
func (a *archive) read(op string, err error) error {
	if err != nil && !errors.Is(err, ErrNoRecord) {
		a.met.StoreError(op)
		a.log.Error("the store cannot be read", "op", op, "error", err)
	}
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

func (a *archive) insert(r Record, k *Key) error { return a.did("insert", a.store.Insert(r, k)) }
func (a *archive) settle(r Record) error         { return a.did("settle", a.store.Settle(r)) }
func (a *archive) yield(id string, p YieldPoint) error {
	return a.did("yield", a.store.Yield(id, p))
}

func (a *archive) advance(id string, c cursor, told bool) error {
	return a.did("advance", a.store.Advance(id, c.stdout, c.stderr, told))
}

func (a *archive) delete(ids ...string) error {
	return a.tidied("delete", a.store.Delete(ids...))
}
func (a *archive) probe() error { return a.did("probe", a.store.Probe()) }
func (a *archive) expireKeys(t time.Time) error {
	return a.tidied("key", a.store.ExpireKeys(t))
}

func (a *archive) get(id string) (Record, error) {
	r, err := a.store.Get(id)
	return r, a.read("get", err)
}

func (a *archive) list(q Query) ([]Record, error) {
	rs, err := a.store.List(q)
	return rs, a.read("list", err)
}

func (a *archive) lookupKey(k Key) (KeyUse, error) {
	u, err := a.store.LookupKey(k)
	return u, a.read("key", err)
}

func (a *archive) usage() ([]OwnerUsage, error) {
	u, err := a.store.Usage()
	return u, a.read("retention", err)
}

func (a *archive) oldest(o *Owner, limit int) ([]Stored, error) {
	s, err := a.store.Oldest(o, limit)
	return s, a.read("retention", err)
}

// unknown reports that there is certainly no record of that id.
func (a *archive) unknown(id string) bool {
	_, err := a.get(id)
	return errors.Is(err, ErrNoRecord)
}
