package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"bashd/internal/exec"
)

// Run tests that a Store does what exec.Store says. open returns an empty Store each time, and has
// it closed at the end of the test.
//
// Beyond what exec.Store says, it asks for this, which callers that repeat a call rely on: the same
// Insert again is no error and changes nothing, and so is the same Yield; a Yield of anything but a running
// foreground run is exec.ErrNoRecord; a Settle with a status that is not terminal is refused; an Advance of an unknown id is no error.
func Run(t *testing.T, open func(t *testing.T) exec.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, exec.Store)
	}{
		{"what is inserted is there", testInsert},
		{"every field is kept", testEveryField},
		{"a list has every fact", testListedFacts},
		{"no secret is kept", testNoSecrets},
		{"nothing is shared with the caller", testNothingIsShared},
		{"an insert can be repeated", testInsertAgain},
		{"an id and a number are taken once", testInsertTaken},
		{"a key is taken once", testKeyTaken},
		{"what identifies a key", testKeyIdentity},
		{"a key goes with its record", testKeyCascade},
		{"keys expire", testExpireKeys},
		{"yield", testYield},
		{"yield of what is no running run", testYieldRefused},
		{"settle", testSettle},
		{"settle decides the kind", testSettleKind},
		{"terminal is terminal", testSettleTwice},
		{"settle of what is not there", testSettleUnknown},
		{"advance", testAdvance},
		{"unsettled", testUnsettled},
		{"delete", testDelete},
		{"list", testList},
		{"list of an owner and of nobody", testListOwners},
		{"list with filters", testListFilters},
		{"list page by page while others insert", testListPages},
		{"oldest", testOldest},
		{"usage", testUsage},
		{"last number", testLastSeq},
		{"probe", testProbe},
		{"large command", testLargeCommand},
		{"listed command", testListedCommand},
		{"binary output", testBinaryOutput},
		{"odd text", testOddText},
		{"many at once", testConcurrency},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// begun is the record of a running task.
func begun(seq int64, change ...func(*exec.Record)) exec.Record {
	r := exec.Record{Seq: seq, Run: exec.Run{
		ID: fmt.Sprintf("bash-%d", seq), Owner: "alice", Kind: exec.Background, Status: exec.StatusRunning,
		Spec:      exec.Spec{Command: fmt.Sprintf("echo %d", seq), Workdir: "/w"},
		StartedAt: at(seq),
	}}
	for _, c := range change {
		c(&r)
	}
	r.Run.Spec.Owner = r.Run.Owner
	return r
}

// ended is the record of a task that has exited.
func ended(seq int64, change ...func(*exec.Record)) exec.Record {
	return begun(seq, append([]func(*exec.Record){func(r *exec.Record) {
		r.Run.Status, r.Run.ExitCode, r.Run.FinishedAt, r.Run.Duration, r.Bytes = exec.StatusCompleted, new(0), at(seq+1000), time.Second, 100
	}}, change...)...)
}

// at is a point in time, another for each n.
func at(n int64) time.Time { return time.UnixMicro(1_700_000_000_000_000 + 1000*n).UTC() }

func owner(o exec.Owner) func(*exec.Record) { return func(r *exec.Record) { r.Run.Owner = o } }

func kind(k exec.Kind) func(*exec.Record) { return func(r *exec.Record) { r.Run.Kind = k } }

func session(s string) func(*exec.Record) { return func(r *exec.Record) { r.Run.Spec.Session = s } }

func status(s exec.Status) func(*exec.Record) { return func(r *exec.Record) { r.Run.Status = s } }

func size(n int64) func(*exec.Record) { return func(r *exec.Record) { r.Bytes = n } }

func command(c string) func(*exec.Record) { return func(r *exec.Record) { r.Run.Spec.Command = c } }

func key(name string) exec.Key {
	return exec.Key{Owner: "alice", Route: exec.Background, Name: name, Body: [32]byte{1, 2, 3}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func insert(t *testing.T, s exec.Store, rs ...exec.Record) {
	t.Helper()
	for _, r := range rs {
		must(t, s.Insert(r, nil))
	}
}

// wantRecord fails unless the store has exactly this under want's id.
func wantRecord(t *testing.T, s exec.Store, want exec.Record) {
	t.Helper()
	got, err := s.Get(want.Run.ID)
	must(t, err)
	wantSame(t, got, kept(want))
}

func wantSame(t *testing.T, got, want exec.Record) {
	t.Helper()
	if got, want := plainly(got), plainly(want); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
		diff(t, "Record", reflect.ValueOf(got), reflect.ValueOf(want))
	}
}

// diff names the fields that differ.
func diff(t *testing.T, path string, got, want reflect.Value) {
	t.Helper()
	if got.Kind() == reflect.Struct && got.Type() != reflect.TypeFor[time.Time]() {
		for i := range got.NumField() {
			diff(t, path+"."+got.Type().Field(i).Name, got.Field(i), want.Field(i))
		}
		return
	}
	if !reflect.DeepEqual(got.Interface(), want.Interface()) {
		t.Errorf("%s differs", path)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func wantMissing(t *testing.T, s exec.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		r, err := s.Get(id)
		wantErr(t, err, exec.ErrNoRecord)
		if !reflect.ValueOf(r).IsZero() {
			t.Errorf("%s: a record came with the error", id)
		}
	}
}

// wantList fails unless q finds exactly the records with those numbers, in that order.
func wantList(t *testing.T, s exec.Store, q exec.Query, want ...int64) {
	t.Helper()
	if q.Kind == "" {
		q.Kind = exec.Background
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	found, err := s.List(q)
	must(t, err)
	wantSeqs(t, fmt.Sprintf("%+v", q), found, want...)
}

func wantSeqs(t *testing.T, what string, found []exec.Record, want ...int64) {
	t.Helper()
	got := []int64{}
	for _, r := range found {
		got = append(got, r.Seq)
	}
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
