package exec_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"bashd/internal/exec"
)

// key is an idempotency key whose request has that body.
func key(name, body string) *exec.Key {
	return &exec.Key{Name: name, Body: sha256.Sum256([]byte(body))}
}

// lines counts the lines of a file in the test's workspace: how often something ran.
func (f *fixture) lines(tb testing.TB, name string) int {
	tb.Helper()
	data, err := os.ReadFile(f.ws + "/" + name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// counting is a command that notes that it ran.
func (f *fixture) counting(name, rest string) string {
	return "echo ran >> " + f.ws + "/" + name + "; " + rest
}

// comparable is a snapshot as an answer has it: to the millisecond, without what no record holds.
func comparable(r exec.Run) exec.Run {
	r.StartedAt, r.FinishedAt, r.Duration = r.StartedAt.Truncate(time.Millisecond).UTC(), r.FinishedAt.Truncate(time.Millisecond).UTC(), 0
	r.Spec.Stdin, r.Spec.Env = nil, nil
	if len(r.Stdout.Tail) == 0 {
		r.Stdout.Tail = nil
	}
	if len(r.Stderr.Tail) == 0 {
		r.Stderr.Tail = nil
	}
	if len(r.Sandbox.Gaps) == 0 {
		r.Sandbox.Gaps = nil
	}
	return r
}

func same(a, b exec.Run) bool { return reflect.DeepEqual(comparable(a), comparable(b)) }

// TestReplayRun: the same key and body give the same answer, now and in the next life, and nothing runs again.
func TestReplayRun(t *testing.T) {
	f := newFixture(t)
	r := exec.Request{Command: f.counting("n", "echo out; echo err >&2; exit 3"), Key: key("k", "b"), Env: map[string]string{"V": "canary"}}
	first, replayed, err := f.Run(t.Context(), alice, r)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	for range 2 {
		again, replayed, err := f.Run(t.Context(), alice, r)
		if err != nil || !replayed || !same(first, again) {
			t.Errorf("again: %v %v\n%+v\n%+v", replayed, err, comparable(first), comparable(again))
		}
		f.restart(t)
	}
	if n := f.lines(t, "n"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	r.Key = key("k", "other")
	_, _, err = f.Run(t.Context(), alice, r)
	if e, _ := errors.AsType[*exec.Error](err); e == nil || e.Code != exec.CodeConflict || e.RetryAfter != 0 {
		t.Errorf("another body: %v", err)
	}
}

// TestKeysAreApart: a key is an owner's, for one of the two POSTs.
func TestKeysAreApart(t *testing.T) {
	f := newFixture(t)
	k := key("k", "b")
	r := exec.Request{Command: f.counting("n", "true"), Key: k}
	for i, c := range []exec.Caller{alice, bob, none} {
		run, replayed, err := f.Run(t.Context(), c, r)
		if err != nil || replayed || run.Owner != c.Owner {
			t.Errorf("run of %q: %v %v", c.Owner, replayed, err)
		}
		task, replayed, err := f.Start(t.Context(), c, r)
		if err != nil || replayed {
			t.Errorf("task of %q: %v %v", c.Owner, replayed, err)
		}
		f.awaitEnd(t, c, task.ID)
		if n := f.lines(t, "n"); n != 2*(i+1) {
			t.Errorf("%d ran", n)
		}
	}
	if k.Owner != "" || k.Route != "" {
		t.Error("the caller's key was changed")
	}
}

// TestReplayTask: the answer to a start is the task as it was admitted, whatever has become of it.
func TestReplayTask(t *testing.T) {
	f := newFixture(t)
	r := exec.Request{Command: f.counting("n", obedient), StdinOpen: true, Key: key("k", "b")}
	first, replayed, err := f.Start(t.Context(), alice, r)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	again := func(when string) {
		t.Helper()
		task, replayed, err := f.Start(t.Context(), alice, r)
		if err != nil || !replayed || !same(first, task) {
			t.Errorf("%s: %v %v\n%+v\n%+v", when, replayed, err, comparable(first), comparable(task))
		}
	}
	f.tell(t, alice, first.ID, "ohello")
	f.awaitBytes(t, alice, first.ID, 5, 0)
	again("running")
	f.tell(t, alice, first.ID, "x3")
	f.awaitEnd(t, alice, first.ID)
	again("settled")
	f.restart(t)
	again("after a restart")
	if n := f.lines(t, "n"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if err := f.Delete(t.Context(), alice, first.ID); err != nil {
		t.Fatal(err)
	}
	if task, replayed, err := f.Start(t.Context(), alice, r); err != nil || replayed || task.ID == first.ID {
		t.Errorf("after it was deleted: %v %v", replayed, err)
	}
}

// TestReplayYielded: the answer is the task that the run had become.
func TestReplayYielded(t *testing.T) {
	f := newFixture(t)
	r := exec.Request{Command: f.counting("n", "echo early; exec sleep 60"), YieldAfter: 100 * time.Millisecond, Key: key("k", "b")}
	first, _, err := f.Run(t.Context(), alice, r)
	if err != nil || first.Kind != exec.Background {
		t.Fatal(first.Kind, err)
	}
	for _, when := range []string{"running", "settled", "after a restart"} {
		again, replayed, err := f.Run(t.Context(), alice, r)
		if err != nil || !replayed || !same(first, again) {
			t.Errorf("%s: %v %v\n%+v\n%+v", when, replayed, err, comparable(first), comparable(again))
		}
		f.kill(t, alice, first.ID)
		if when == "settled" {
			f.restart(t)
		}
	}
	if n := f.lines(t, "n"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestKeyedRunOutlivesItsClient: so that a retry gets the answer; before it is there the retry is told to wait.
func TestKeyedRunOutlivesItsClient(t *testing.T) {
	f := newFixture(t)
	r := exec.Request{Command: f.counting("n", "sleep 0.2; echo end"), Key: key("k", "b")}
	ctx, cancel := context.WithCancel(t.Context())
	_, result := f.inBackground(t, ctx, alice, r)
	cancel()
	_, _, err := f.Run(t.Context(), alice, r)
	if e, _ := errors.AsType[*exec.Error](err); e == nil || e.Code != exec.CodeConflict || e.RetryAfter <= 0 {
		t.Errorf("while it runs: %v", err)
	}
	first := <-result
	if first.Aborted() || string(first.Stdout.Tail) != "end\n" {
		t.Errorf("it was cut short: %+v", first)
	}
	if again, replayed, err := f.Run(t.Context(), alice, r); err != nil || !replayed || !same(first, again) {
		t.Errorf("the retry: %v %v", replayed, err)
	}
	if n := f.lines(t, "n"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestTwins: of requests with one key at the same moment one starts something, and takes one place.
func TestTwins(t *testing.T) {
	f := newFixture(t)
	for _, k := range []exec.Kind{exec.Background, exec.Foreground} {
		r := exec.Request{Command: f.counting(string(k), "sleep 0.1"), Key: key("k", "b")}
		start := f.Run
		if k == exec.Background {
			start = f.Start
		}
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				run, replayed, err := start(t.Context(), alice, r)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					ids[run.ID] = true
					if !replayed {
						fresh++
					}
				case k == exec.Background || code(err) != exec.CodeConflict:
					t.Errorf("%s: %v", k, err)
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || fresh != 1 {
			t.Errorf("%s: %d ids, %d fresh answers", k, len(ids), fresh)
		}
		for id := range ids {
			if k == exec.Background {
				f.awaitEnd(t, alice, id)
			}
		}
		if n := f.lines(t, string(k)); n != 1 {
			t.Errorf("%s: it ran %d times", k, n)
		}
	}
	f.hasRoom(t, alice, f.settings.MaxTasksPerOwner)
}

// TestFailedStartFreesTheKey: an error is not an answer that is replayed.
func TestFailedStartFreesTheKey(t *testing.T) {
	broken := brokenSandbox(t)
	f := newFixture(t, func(s *exec.Settings) { s.Sandbox = broken })
	r := exec.Request{Command: "true", Key: key("k", "b")}
	for _, body := range []string{"b", "other"} {
		r.Key = key("k", body)
		if _, _, err := f.Run(t.Context(), alice, r); code(err) != exec.CodeStartFailed {
			t.Errorf("a start that fails: %v", err)
		}
	}
	f.settings.Sandbox = f.sandbox
	f.restart(t)
	if run, replayed, err := f.Run(t.Context(), alice, r); err != nil || replayed || *run.ExitCode != 0 {
		t.Errorf("a start that succeeds: %v %v", replayed, err)
	}
	// What is refused takes no key.
	refused := exec.Request{Command: "true", Workdir: "/nonexistent", Key: key("w", "b")}
	if _, _, err := f.Run(t.Context(), alice, refused); code(err) != exec.CodeWorkdirUnusable {
		t.Error(err)
	}
	if _, replayed, err := f.Run(t.Context(), alice, exec.Request{Command: "true", Key: key("w", "mended")}); err != nil || replayed {
		t.Errorf("a mended request: %v %v", replayed, err)
	}
}

// TestReplayAfterACrash: a run that the server's death cut short is not run again.
func TestReplayAfterACrash(t *testing.T) {
	var c cut
	f := newFixture(t, cuttable(&c))
	r := exec.Request{Command: f.counting("n", "echo up; exec sleep 60"), Key: key("k", "b")}
	id, result := f.inBackground(t, t.Context(), alice, r)
	f.awaitOutput(t, alice, id, "up")
	f.crash(t, &c)
	<-result
	run, replayed, err := f.Run(t.Context(), alice, r)
	if err != nil || !replayed || run.ID != id || run.Status != exec.StatusFailed || run.Detail != "the server stopped before the run finished" {
		t.Errorf("got %+v %v %v", run, replayed, err)
	}
	if n := f.lines(t, "n"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestKeysExpire: a day later a key is as one that was never used.
func TestKeysExpire(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Retention = 1000 * time.Hour })
	r := exec.Request{Command: f.counting("n", "true"), Key: key("k", "b")}
	for want := 1; want <= 2; want++ {
		run, replayed, err := f.Run(t.Context(), alice, r)
		if err != nil || replayed || f.lines(t, "n") != want {
			t.Errorf("%v %v, %d ran", replayed, err, f.lines(t, "n"))
		}
		f.Sweep(time.Now().Add(exec.KeyLifetime - time.Minute))
		if _, replayed, err := f.Run(t.Context(), alice, r); err != nil || !replayed {
			t.Errorf("a day later but a minute: %v %v", replayed, err)
		}
		f.Sweep(time.Now().Add(exec.KeyLifetime + time.Minute))
		if _, err := f.Get(alice, exec.Foreground, run.ID); err != nil {
			t.Errorf("its record went too: %v", err)
		}
	}
}
