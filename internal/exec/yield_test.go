package exec_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/store/storetest"
)

// TestYield: a run that goes on becomes a task with the same id and everything that it printed; its timeout and its
// client matter no more.
func TestYield(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	run, replayed, err := f.Run(ctx, alice, exec.Request{Command: "echo first; sleep 0.4; echo last; exit 5", YieldAfter: 100 * time.Millisecond, Timeout: ms(250)})
	if err != nil || replayed || run.Kind != exec.Background || run.Status != exec.StatusRunning || run.Yielded == nil || run.Spec.Timeout != 0 {
		t.Fatalf("got %+v %v", run, err)
	}
	cancel()
	if run.Yielded.Stdout != 6 || run.Stdout.Bytes != 6 || !run.Stdout.HasFile {
		t.Errorf("it yielded at %+v with %+v", run.Yielded, run.Stdout)
	}
	if _, err := f.Get(alice, exec.Foreground, run.ID); code(err) != exec.CodeNotFound {
		t.Errorf("as a run: %v", err)
	}
	end := f.awaitEnd(t, alice, run.ID)
	if end.Status != exec.StatusCompleted || *end.ExitCode != 5 || end.Cause != exec.CauseNone || end.Duration < 400*time.Millisecond {
		t.Errorf("settled: %+v", end)
	}
	if p := f.mustRead(t, alice, run.ID, exec.ReadOptions{MaxBytes: 100}); p.Stdout.Text != "first\nlast\n" || !p.EOF {
		t.Errorf("its output: %+v", p)
	}
	if e := f.awaitEvent(t, run.ID); e.Kind != exec.Background {
		t.Errorf("told as %s", e.Kind)
	}
	f.restart(t)
	if r, err := f.Get(alice, exec.Background, run.ID); err != nil || r.Status != exec.StatusCompleted || *r.Yielded != *run.Yielded {
		t.Errorf("after a restart: %+v %v", r, err)
	}
}

// TestNoYield: a run that ends before stays a run, with its result, and so does one of an owner at the limit, which its
// client can still abort.
func TestNoYield(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxTasksPerOwner = 1 })
	if run := f.mustRun(t, alice, exec.Request{Command: "echo done", YieldAfter: time.Minute}); run.Kind != exec.Foreground || string(run.Stdout.Tail) != "done\n" || *run.ExitCode != 0 {
		t.Errorf("a short one: %+v", run)
	}
	f.obey(t, alice)
	writes := f.store.Writes()
	ctx, cancel := context.WithCancel(t.Context())
	id, result := f.inBackground(t, ctx, alice, exec.Request{Command: "sleep 60", YieldAfter: 10 * time.Millisecond})
	time.Sleep(60 * time.Millisecond)
	if r, err := f.Get(alice, exec.Foreground, id); err != nil || r.Status != exec.StatusRunning || f.store.Writes() != writes+1 {
		t.Errorf("at the limit: %+v %v after %d writes", r, err, f.store.Writes()-writes)
	}
	cancel()
	if run := <-result; run.Cause != exec.CauseDisconnect || run.Kind != exec.Foreground {
		t.Errorf("its client went away: %+v", run)
	}
}

// TestNoYieldWhileDraining: a server that stops takes no new tasks.
func TestNoYieldWhileDraining(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Drain = patience })
	_, result := f.inBackground(t, t.Context(), alice, exec.Request{Command: "sleep 0.3; echo end", YieldAfter: 150 * time.Millisecond})
	f.Shutdown(t.Context())
	if run := <-result; run.Kind != exec.Foreground || string(run.Stdout.Tail) != "end\n" {
		t.Errorf("got %+v", run)
	}
}

// TestYieldMeetsTimeout: whichever is first, the command is one thing only, and its place is given back.
func TestYieldMeetsTimeout(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxTasksPerOwner = 2 })
	kinds := map[exec.Kind]int{}
	for range 12 {
		run := f.mustRun(t, alice, exec.Request{Command: "sleep 60", YieldAfter: 20 * time.Millisecond, Timeout: ms(20)})
		kinds[run.Kind]++
		if run.Kind == exec.Background {
			if r, err := f.Wait(t.Context(), alice, run.ID, 20*time.Millisecond); err != nil || r.Status != exec.StatusRunning {
				t.Fatalf("a task with the timeout of a run: %+v %v", r, err)
			}
			f.kill(t, alice, run.ID)
		} else if !run.TimedOut() || run.Yielded != nil {
			t.Fatalf("a run: %+v", run)
		}
	}
	t.Log(kinds)
	f.hasRoom(t, alice, 2)
}

// hasRoom checks that so many more tasks may run, and not one more.
func (f *fixture) hasRoom(t *testing.T, c exec.Caller, n int) {
	t.Helper()
	for range n {
		f.obey(t, c)
	}
	if _, _, err := f.Start(t.Context(), c, exec.Request{Command: "true"}); code(err) != exec.CodeLimitReached {
		t.Errorf("one more: %v", err)
	}
}

// TestYieldMeetsTheEnd: a run that is just being recorded as ended does not become a task, which
// nobody would find again.
func TestYieldMeetsTheEnd(t *testing.T) {
	settling, answered := make(chan struct{}), make(chan struct{})
	var first sync.Once
	f := newFixture(t, func(s *exec.Settings) {
		s.MaxTasksPerOwner = 1
		store := &storetest.Faulty{Store: s.Store}
		s.Store = store
		store.After = func(op string, _ int) error {
			if op == "Yield" {
				<-settling // it was recorded as a task; now it ends
			}
			return nil
		}
		store.Before = func(op string, _ int) error {
			if op == "Settle" {
				first.Do(func() {
					close(settling)
					select {
					case <-answered:
					case <-time.After(100 * time.Millisecond):
					}
				})
			}
			return nil
		}
	})
	run := f.mustRun(t, alice, exec.Request{Command: "sleep 0.1; echo end", YieldAfter: time.Millisecond})
	close(answered)
	if run.Kind != exec.Foreground || run.Status != exec.StatusCompleted {
		t.Errorf("answered: %+v", run)
	}
	for range 2 {
		if r, err := f.Get(alice, run.Kind, run.ID); err != nil || r.Status != exec.StatusCompleted {
			t.Errorf("found as: %+v %v", r, err)
		}
		f.hasRoom(t, alice, 1)
		f.restart(t)
	}
}

// TestYieldRaces: at any moment between start and end a yield leads to one thing, found where it was told.
func TestYieldRaces(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxTasksPerOwner = 1 })
	for i := range 20 {
		run := f.mustRun(t, alice, exec.Request{Command: fmt.Sprintf("echo %d; sleep 0.01", i), YieldAfter: time.Duration(i) * 2 * time.Millisecond})
		if run.Kind == exec.Background {
			f.awaitEnd(t, alice, run.ID)
		}
		if r, err := f.Get(alice, run.Kind, run.ID); err != nil || r.Status != exec.StatusCompleted {
			t.Fatalf("the %s: %+v %v", run.Kind, r, err)
		}
	}
	f.hasRoom(t, alice, 1)
}
