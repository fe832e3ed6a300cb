package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
)

func testInsert(t *testing.T, s exec.Store) {
	wantMissing(t, s, "bash-1")
	r := begun(1)
	insert(t, s, r)
	wantRecord(t, s, r)
	wantMissing(t, s, "bash-2", "", "BASH-1")
}

// testEveryField fails for a field that is forgotten, whether Insert or Settle writes it.
func testEveryField(t *testing.T, s exec.Store) {
	inserted := filled(1)
	insert(t, s, inserted)
	wantRecord(t, s, inserted)

	first := filled(2)
	first.Run.Status = exec.StatusRunning
	insert(t, s, first)
	wantRecord(t, s, first)
	last := filled(3)
	last.Run.ID, last.Run.Owner, last.Run.Spec.Owner = first.Run.ID, first.Run.Owner, first.Run.Owner
	must(t, s.Settle(last))
	last.Seq, last.ReadStdout, last.ReadStderr, last.Reported = first.Seq, first.ReadStdout, first.ReadStderr, first.Reported
	wantRecord(t, s, last)

	// And nothing is made up where there is nothing.
	bare := exec.Record{Seq: 1, Run: exec.Run{ID: "bare", Kind: exec.Foreground, Status: exec.StatusRunning}}
	insert(t, s, bare)
	wantRecord(t, s, bare)
	bare.Run.Status = exec.StatusFailed
	must(t, s.Settle(bare))
	wantRecord(t, s, bare)
}

// testNoSecrets: what must not be kept is not kept, even if handed in.
func testNoSecrets(t *testing.T, s exec.Store) {
	r := begun(1)
	r.Run.Spec.Env = map[string]string{"TOKEN": "canary", "EMPTY": ""}
	r.Run.Spec.Stdin, r.Run.Spec.HasStdin, r.Run.Spec.StdinBytes = []byte("canary"), true, 6
	r.Run.Unrecorded = true
	r.Run.Stdout.SpillPath = "/state/canary"
	insert(t, s, r)
	for range 2 {
		got, err := s.Get(r.Run.ID)
		must(t, err)
		if strings.Contains(fmt.Sprintf("%q", fmt.Sprint(got)), "canary") || got.Run.Spec.Stdin != nil || got.Run.Unrecorded || got.Run.Stdout.SpillPath != "" {
			t.Errorf("kept: %+v", got.Run)
		}
		if v, named := got.Run.Spec.Env["TOKEN"]; !named || v != "" || len(got.Run.Spec.Env) != 2 || got.Run.Spec.StdinBytes != 6 {
			t.Errorf("the names or the length are gone: %+v", got.Run.Spec)
		}
		r.Run.Status = exec.StatusCompleted
		must(t, s.Settle(r))
	}
}

// testNothingIsShared: what the caller does with its record afterwards changes nothing, nor what
// one caller does with what it got.
func testNothingIsShared(t *testing.T, s exec.Store) {
	spoil := func(r exec.Record) {
		r.Run.Stdout.Tail[0], r.Run.Sandbox.Gaps[0], *r.Run.ExitCode, r.Run.Yielded.Stdout, r.Run.Sandbox.Denial.Path = 'X', "X", 99, 99, "X"
		for name := range r.Run.Spec.Env {
			delete(r.Run.Spec.Env, name)
		}
	}
	mine := filled(1)
	insert(t, s, mine)
	spoil(mine)
	wantRecord(t, s, filled(1))
	got, err := s.Get(mine.Run.ID)
	must(t, err)
	spoil(got)
	wantRecord(t, s, filled(1))
}

func testInsertAgain(t *testing.T, s exec.Store) {
	r, k := begun(1), key("k")
	for range 3 {
		must(t, s.Insert(r, &k))
	}
	wantRecord(t, s, r)
	must(t, s.Settle(ended(1)))
	must(t, s.Insert(r, &k))
	wantRecord(t, s, ended(1))
	usage, err := s.Usage()
	must(t, err)
	if len(usage) != 1 || usage[0].Records != 1 {
		t.Errorf("usage: %+v", usage)
	}
}

func testInsertTaken(t *testing.T, s exec.Store) {
	insert(t, s, begun(1), begun(2))
	for name, r := range map[string]exec.Record{
		"the id":            begun(3, func(r *exec.Record) { r.Run.ID = "bash-1" }),
		"the number":        begun(1, func(r *exec.Record) { r.Run.ID = "bash-3" }),
		"both, of two":      begun(1, func(r *exec.Record) { r.Run.ID = "bash-2" }),
		"the id of another": begun(2, func(r *exec.Record) { r.Run.ID = "bash-1" }),
	} {
		k := key(name)
		if s.Insert(r, &k) == nil {
			t.Errorf("%s: taken twice", name)
		}
		_, err := s.LookupKey(k)
		wantErr(t, err, exec.ErrNoRecord)
	}
	wantRecord(t, s, begun(1))
	wantRecord(t, s, begun(2))
	wantMissing(t, s, "bash-3")
}

func testYield(t *testing.T, s exec.Store) {
	run := begun(1, kind(exec.Foreground))
	insert(t, s, run)
	must(t, s.Yield("bash-1", exec.YieldPoint{Stdout: 10, Stderr: 0}))
	run.Run.Kind, run.Run.Yielded = exec.Background, &exec.YieldPoint{Stdout: 10}
	wantRecord(t, s, run)
	// The same call again, and one that comes too late.
	must(t, s.Yield("bash-1", exec.YieldPoint{Stdout: 10, Stderr: 0}))
	must(t, s.Yield("bash-1", exec.YieldPoint{Stdout: 20, Stderr: 20}))
	wantRecord(t, s, run)
	wantList(t, s, exec.Query{Owner: "alice"})
	task := ended(1)
	task.Run.Yielded = run.Run.Yielded
	must(t, s.Settle(task))
	wantRecord(t, s, task)
	wantList(t, s, exec.Query{Owner: "alice"}, 1)
	wantList(t, s, exec.Query{Owner: "alice", Kind: exec.Foreground})
}

func testYieldRefused(t *testing.T, s exec.Store) {
	insert(t, s, begun(1), begun(2, kind(exec.Foreground)), begun(3, kind(exec.Foreground), status(exec.StatusStopping)))
	must(t, s.Settle(ended(2, kind(exec.Foreground))))
	for _, id := range []string{"bash-1", "bash-2", "bash-9"} {
		wantErr(t, s.Yield(id, exec.YieldPoint{Stdout: 1, Stderr: 1}), exec.ErrNoRecord)
	}
	wantRecord(t, s, begun(1))
	wantRecord(t, s, ended(2, kind(exec.Foreground)))
	wantMissing(t, s, "bash-9")
}

func testSettle(t *testing.T, s exec.Store) {
	insert(t, s, begun(1))
	must(t, s.Advance("bash-1", 5, 6, true))
	r := ended(1, status(exec.StatusKilled), command("another"), session("s"))
	r.Run.Stdout.Tail, r.Run.Spec.Timeout = []byte("out"), time.Minute
	r.Seq, r.ReadStdout, r.ReadStderr, r.Reported = 77, 1, 1, false // not what Settle replaces
	must(t, s.Settle(r))
	r.Seq, r.ReadStdout, r.ReadStderr, r.Reported = 1, 5, 6, true
	wantRecord(t, s, r)
	wantList(t, s, exec.Query{Owner: "alice", Session: "s"}, 1)
}

// testSettleKind: a run whose yield was recorded and then did not come about ends as what it was.
func testSettleKind(t *testing.T, s exec.Store) {
	insert(t, s, begun(1, kind(exec.Foreground)))
	must(t, s.Yield("bash-1", exec.YieldPoint{Stdout: 1, Stderr: 1}))
	must(t, s.Settle(ended(1, kind(exec.Foreground))))
	wantRecord(t, s, ended(1, kind(exec.Foreground)))
	wantList(t, s, exec.Query{Owner: "alice", Kind: exec.Foreground}, 1)
	wantList(t, s, exec.Query{Owner: "alice"})
}

func testSettleTwice(t *testing.T, s exec.Store) {
	insert(t, s, begun(1))
	must(t, s.Settle(ended(1)))
	must(t, s.Settle(ended(1)))
	must(t, s.Settle(ended(1, status(exec.StatusFailed), size(5), command("late"))))
	wantRecord(t, s, ended(1))
	if err := s.Settle(begun(1)); err == nil {
		t.Error("settled as running")
	}
	insert(t, s, begun(2))
	for _, st := range []exec.Status{exec.StatusRunning, exec.StatusStopping, ""} {
		if err := s.Settle(ended(2, status(st))); err == nil {
			t.Errorf("settled as %q", st)
		}
	}
	wantRecord(t, s, begun(2))
}

func testSettleUnknown(t *testing.T, s exec.Store) {
	insert(t, s, begun(1))
	must(t, s.Settle(ended(1, func(r *exec.Record) { r.Run.ID = "bash-9" })))
	wantMissing(t, s, "bash-9")
	wantRecord(t, s, begun(1))
}

func testAdvance(t *testing.T, s exec.Store) {
	r := begun(1)
	insert(t, s, r, begun(2))
	for _, step := range []struct {
		stdout, stderr         int64
		reported               bool
		wantStdout, wantStderr int64
		wantReported           bool
	}{
		{10, 3, false, 10, 3, false},
		{9, 4, false, 10, 4, false}, // each stream by itself, never back
		{0, 0, true, 10, 4, true},
		{12, 4, false, 12, 4, true}, // reported stays
		{12, 4, true, 12, 4, true},
		{1 << 40, 1 << 41, true, 1 << 40, 1 << 41, true},
	} {
		must(t, s.Advance("bash-1", step.stdout, step.stderr, step.reported))
		r.ReadStdout, r.ReadStderr, r.Reported = step.wantStdout, step.wantStderr, step.wantReported
		wantRecord(t, s, r)
	}
	must(t, s.Settle(ended(1)))
	must(t, s.Advance("bash-1", 1<<42, 0, false))
	done := ended(1)
	done.ReadStdout, done.ReadStderr, done.Reported = 1<<42, 1<<41, true
	wantRecord(t, s, done)
	wantRecord(t, s, begun(2))
	must(t, s.Advance("bash-9", 1, 1, true))
	wantMissing(t, s, "bash-9")
}

func testDelete(t *testing.T, s exec.Store) {
	must(t, s.Delete())
	must(t, s.Delete("bash-1"))
	insert(t, s, ended(1), ended(2), begun(3), ended(4), begun(5))
	must(t, s.Delete("bash-1", "bash-9", "bash-3"))
	wantMissing(t, s, "bash-1", "bash-3")
	wantRecord(t, s, ended(2))
	wantRecord(t, s, begun(5))
	wantList(t, s, exec.Query{Owner: "alice"}, 4, 2)
	must(t, s.Delete("bash-1", "bash-2", "bash-2"))
	wantList(t, s, exec.Query{Owner: "alice"}, 4)
	// What was deleted can be inserted again.
	insert(t, s, begun(1))
	wantRecord(t, s, begun(1))
}

func testProbe(t *testing.T, s exec.Store) {
	insert(t, s, begun(1), ended(2))
	must(t, s.Probe())
	must(t, s.Probe())
	wantRecord(t, s, begun(1))
	wantRecord(t, s, ended(2))
	last, err := s.LastSeq()
	must(t, err)
	if last != 2 {
		t.Errorf("last number %d", last)
	}
}
