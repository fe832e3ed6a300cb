package storetest

import (
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
)

// wantUse fails unless k was used for id, with that body.
func wantUse(t *testing.T, s exec.Store, k exec.Key, id string, body [32]byte) exec.KeyUse {
	t.Helper()
	use, err := s.LookupKey(k)
	must(t, err)
	if use.ID != id || use.Body != body {
		t.Errorf("key %q: got %+v, want %s", k.Name, use, id)
	}
	return use
}

func testKeyTaken(t *testing.T, s exec.Store) {
	k := key("k")
	_, err := s.LookupKey(k)
	wantErr(t, err, exec.ErrNoRecord)
	before := time.Now().Add(-time.Second)
	must(t, s.Insert(begun(1), &k))
	use := wantUse(t, s, k, "bash-1", k.Body)
	if use.TakenAt.Before(before) || use.TakenAt.After(time.Now().Add(time.Second)) {
		t.Errorf("taken at %v", use.TakenAt)
	}
	for _, body := range [][32]byte{k.Body, {9}} {
		again := k
		again.Body = body
		wantErr(t, s.Insert(begun(2), &again), exec.ErrKeyTaken)
		wantUse(t, s, again, "bash-1", k.Body)
	}
	wantMissing(t, s, "bash-2")
	if last, err := s.LastSeq(); err != nil || last != 1 {
		t.Errorf("something was done: last number %d, %v", last, err)
	}
	// The same record with another body is not the same call.
	other := k
	other.Body = [32]byte{9}
	wantErr(t, s.Insert(begun(1), &other), exec.ErrKeyTaken)
	wantRecord(t, s, begun(1))
}

func testKeyIdentity(t *testing.T, s exec.Store) {
	keys := []exec.Key{
		key("k"), key("K"), key("k2"), key(strings.Repeat("~", exec.MaxKeyBytes)),
		{Owner: "bob", Route: exec.Background, Name: "k"},
		{Owner: "", Route: exec.Background, Name: "k"},
		{Owner: "alice", Route: exec.Foreground, Name: "k"},
	}
	for i, k := range keys {
		must(t, s.Insert(begun(int64(i+1)), &k))
	}
	for i, k := range keys {
		wantUse(t, s, k, begun(int64(i+1)).Run.ID, k.Body)
	}
	_, err := s.LookupKey(exec.Key{Owner: "bob", Route: exec.Foreground, Name: "k"})
	wantErr(t, err, exec.ErrNoRecord)
}

func testKeyCascade(t *testing.T, s exec.Store) {
	a, b, c := key("a"), key("b"), key("c")
	must(t, s.Insert(begun(1), &a))
	must(t, s.Insert(begun(1), &b)) // a second key for the same record
	must(t, s.Insert(begun(2), &c))
	must(t, s.Delete("bash-1"))
	for _, k := range []exec.Key{a, b} {
		_, err := s.LookupKey(k)
		wantErr(t, err, exec.ErrNoRecord)
	}
	wantUse(t, s, c, "bash-2", c.Body)
	must(t, s.Insert(begun(3), &a))
	wantUse(t, s, a, "bash-3", a.Body)
}

func testExpireKeys(t *testing.T, s exec.Store) {
	old, young := key("old"), key("young")
	must(t, s.Insert(begun(1), &old))
	time.Sleep(time.Millisecond)
	must(t, s.Insert(begun(2), &young))
	border := wantUse(t, s, young, "bash-2", young.Body).TakenAt
	must(t, s.ExpireKeys(border))
	_, err := s.LookupKey(old)
	wantErr(t, err, exec.ErrNoRecord)
	wantUse(t, s, young, "bash-2", young.Body)
	wantRecord(t, s, begun(1))
	must(t, s.Insert(begun(3), &old)) // free again
	must(t, s.ExpireKeys(time.Now().Add(time.Hour)))
	for _, k := range []exec.Key{old, young} {
		_, err := s.LookupKey(k)
		wantErr(t, err, exec.ErrNoRecord)
	}
	must(t, s.ExpireKeys(time.Now().Add(time.Hour)))
	wantRecord(t, s, begun(2))
}
