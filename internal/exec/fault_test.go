package exec_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/store/storetest"
)

// fault has one write fail, or all from one on.
type fault struct {
	at     int  // number of the write
	after  bool // it is done and reported as failed, else not done
	onward bool // and so all that follow
}

func (x fault) String() string {
	return fmt.Sprintf("write %d, done %v, and what follows %v", x.at, x.after, x.onward)
}

var errFault = errors.New("a fault of the medium")

func (x fault) hook(after bool) func(string, int) error {
	return func(_ string, n int) error {
		if after == x.after && (n == x.at || x.onward && n > x.at && x.at > 0) {
			return errFault
		}
		return nil
	}
}

// play is a scene with every kind of write in it, and what its caller was told.
type play struct {
	*fixture
	promised map[string]exec.Kind // ids that were answered
	settled  map[string]exec.Run  // facts that were told as recorded
	consumed map[string]int64     // how much of stdout was delivered for good
	refused  map[string]bool      // names of what was not to run
	deleted  string
	doubtful string // a deletion that failed
}

func newPlay(t *testing.T, x fault) (*play, *storetest.Faulty) {
	t.Helper()
	var faulty *storetest.Faulty
	f := newFixture(t, func(s *exec.Settings) {
		faulty = &storetest.Faulty{Store: s.Store, Before: x.hook(false), After: x.hook(true)}
		s.Store = faulty
	})
	return &play{fixture: f, promised: map[string]exec.Kind{}, settled: map[string]exec.Run{}, consumed: map[string]int64{}, refused: map[string]bool{}}, faulty
}

// took notes what a request was answered. ok: it was taken.
func (p *play) took(t *testing.T, name string, r exec.Run, err error) (ok bool) {
	t.Helper()
	if err != nil {
		p.refused[name] = true
		if e, _ := errors.AsType[*exec.Error](err); e == nil || e.Code != exec.CodeStartFailed || !strings.Contains(e.Message, "nothing was started") {
			t.Errorf("%s was refused with %v", name, err)
		}
		return false
	}
	p.promised[r.ID] = r.Kind
	p.note(r)
	return true
}

func (p *play) note(r exec.Run) {
	if r.Status.Terminal() && !r.Unrecorded {
		p.settled[r.ID] = r
	}
}

func (p *play) consume(t *testing.T, id string) {
	t.Helper()
	page, err := p.Consume(t.Context(), alice, id)
	if err != nil {
		if code(err) != exec.CodeInternal {
			t.Errorf("consume: %v", err)
		}
		return
	}
	if page.Stdout.From != p.consumed[id] || page.Lossy {
		t.Errorf("consumed from %d after %d", page.Stdout.From, p.consumed[id])
	}
	p.consumed[id] = page.Stdout.To
}

// requests are those of the scene that have a key.
func (p *play) requests() (chat, run exec.Request) {
	return exec.Request{Command: p.counting("chat", obedient), StdinOpen: true, Key: key("chat", "b")},
		exec.Request{Command: p.counting("keyed", "echo k"), Key: key("run", "b")}
}

// act plays the scene to its end.
func (p *play) act(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	chatRequest, keyedRequest := p.requests()
	chat, _, err := p.Start(ctx, alice, chatRequest)
	talks := p.took(t, "chat", chat, err)
	if talks {
		p.tell(t, alice, chat.ID, "ohello")
		p.awaitBytes(t, alice, chat.ID, 5, 0)
		p.consume(t, chat.ID)
	}
	if doomed, _, err := p.Start(ctx, alice, exec.Request{Command: p.counting("doomed", "exec sleep 60")}); p.took(t, "doomed", doomed, err) {
		eventually(t, "it runs", func() bool { return p.lines(t, "doomed") == 1 })
		p.note(p.kill(t, alice, doomed.ID))
		p.consume(t, doomed.ID)
		if p.Delete(ctx, alice, doomed.ID) == nil {
			p.deleted = doomed.ID
		} else {
			p.doubtful = doomed.ID
		}
	}
	yielded, _, err := p.Run(ctx, alice, exec.Request{Command: p.counting("yielded", "echo y; sleep 0.1"), YieldAfter: 50 * time.Millisecond})
	if !p.took(t, "yielded", yielded, err) {
		t.Error("a run without a key, which needs no record, was refused")
	}
	keyed, _, err := p.Run(ctx, alice, keyedRequest)
	if p.took(t, "keyed", keyed, err) && (*keyed.ExitCode != 0 || string(keyed.Stdout.Tail) != "k\n") {
		t.Errorf("answered: %+v", keyed)
	}
	if talks {
		p.tell(t, alice, chat.ID, "obye", "x3")
		p.note(p.awaitEnd(t, alice, chat.ID))
		p.consume(t, chat.ID)
	}
	if yielded.Kind == exec.Background {
		p.note(p.awaitEnd(t, alice, yielded.ID))
	}
	for _, name := range []string{"chat", "doomed", "yielded", "keyed"} {
		if n := p.lines(t, name); n != 1 && !p.refused[name] || n != 0 && p.refused[name] {
			t.Errorf("%s, refused %v, ran %d times", name, p.refused[name], n)
		}
	}
	for id := range p.promised {
		if id != p.doubtful && id != p.deleted {
			p.awaitEvent(t, id)
			if n := len(p.events.of(id)); n != 1 {
				t.Errorf("%d settlements", n)
			}
		}
	}
}

// check looks whether in the next life everything is as it was told. mended: the store had recovered before.
func (p *play) check(t *testing.T, mended bool) {
	t.Helper()
	for id, kind := range p.promised {
		r, err := p.Get(alice, kind, id)
		switch {
		case id == p.deleted:
			if code(err) != exec.CodeNotFound {
				t.Errorf("deleted, and back: %v", err)
			}
		case id == p.doubtful: // either way
		case kind == exec.Foreground && !mended && code(err) == exec.CodeNotFound: // answered, and told to be unrecorded
			if _, recorded := p.settled[id]; recorded {
				t.Error("a recorded run is lost")
			}
		case err != nil || !r.Status.Terminal() || r.Unrecorded:
			t.Errorf("promised: %+v %v", r, err)
		case mended && r.Status == exec.StatusFailed:
			t.Errorf("nothing was lost, and yet: %+v", r)
		}
		if told, recorded := p.settled[id]; recorded && err == nil && !same(told, withoutTails(r, told.Kind)) {
			t.Errorf("told and then:\n%+v\n%+v", comparable(told), comparable(r))
		}
		if kind == exec.Background && err == nil && mended {
			p.consume(t, id)
		}
	}
	for _, id := range p.tasks(t, alice) {
		if _, known := p.promised[id]; !known {
			t.Errorf("a task that nobody was told of: %s", id)
		}
	}
	p.retry(t)
}

// withoutTails is r as it is told to whoever waits for a task.
func withoutTails(r exec.Run, k exec.Kind) exec.Run {
	if k == exec.Background {
		r.Stdout.Tail, r.Stderr.Tail = nil, nil
	}
	return r
}

// retry asks again with the keys of before: what ran does not run again, what was refused does.
func (p *play) retry(t *testing.T) {
	t.Helper()
	chatRequest, keyedRequest := p.requests()
	chat, replayed, err := p.Start(t.Context(), alice, chatRequest)
	if err != nil || replayed == p.refused["chat"] {
		t.Errorf("chat again, refused at first %v: replayed %v, %v", p.refused["chat"], replayed, err)
	}
	if err == nil && !replayed {
		p.tell(t, alice, chat.ID, "x0")
		p.awaitEnd(t, alice, chat.ID)
	}
	if _, replayed, err := p.Run(t.Context(), alice, keyedRequest); err != nil || replayed == p.refused["keyed"] {
		t.Errorf("keyed again, refused at first %v: replayed %v, %v", p.refused["keyed"], replayed, err)
	}
	for _, name := range []string{"chat", "keyed"} {
		if n := p.lines(t, name); n != 1 {
			t.Errorf("%s ran %d times in all", name, n)
		}
	}
}

// TestEveryWriteFails: whichever write fails, before or after it is done, alone or with all that follow: what
// was promised is there in the next life, what was refused did not run, and nothing runs twice.
func TestEveryWriteFails(t *testing.T) {
	clean, _ := newPlay(t, fault{})
	clean.act(t)
	writes := clean.store.Writes()
	clean.restart(t)
	clean.check(t, true)
	if len(clean.refused) > 0 || writes < 10 {
		t.Fatalf("without a fault: refused %v, %d writes", clean.refused, writes)
	}
	for n := 1; n <= writes; n++ {
		for _, x := range []fault{{at: n}, {at: n, after: true}, {at: n, onward: true}} {
			t.Run(x.String(), func(t *testing.T) {
				t.Parallel()
				failing(t, x)
			})
		}
	}
}

func failing(t *testing.T, x fault) {
	t.Helper()
	p, store := newPlay(t, x)
	p.act(t)
	tells := slices.ContainsFunc(p.Ready(), func(reason string) bool { return strings.HasPrefix(reason, "store: ") })
	if x.onward {
		if store.Writes() >= x.at && !tells {
			t.Errorf("ready: %q", p.Ready())
		}
		shut(p.Manager) // as a crash: nothing more is recorded
	} else {
		p.CatchUp()
		if reasons := p.Ready(); len(reasons) > 0 {
			t.Errorf("not ready after the store has recovered: %q", reasons)
		}
		shut(p.Manager)
	}
	store.Before, store.After = nil, nil
	p.open(t)
	p.check(t, !x.onward)
}

// TestTidyingIsNoWrite: a deletion that finds nothing to delete succeeds on a full disk too. The store is not taken to
// work again for that.
func TestTidyingIsNoWrite(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) {
		s.Store = &storetest.Faulty{Store: s.Store, Before: func(op string, _ int) error {
			if op == "Delete" || op == "ExpireKeys" {
				return nil
			}
			return errCut
		}}
	})
	if _, _, err := f.Start(t.Context(), alice, exec.Request{Command: "true"}); code(err) != exec.CodeStartFailed {
		t.Errorf("a task: %v", err)
	}
	if len(f.Ready()) == 0 {
		t.Error("ready, though nothing can be recorded")
	}
}

// TestStoreComesBack: while the store fails, runs are answered and found, tasks refused, and readiness says
// why; what was not recorded is, as soon as it works again.
func TestStoreComesBack(t *testing.T) {
	var c cut
	f := newFixture(t, cuttable(&c))
	running := f.obey(t, alice)
	c.off.Store(true)
	run := f.mustRun(t, alice, exec.Request{Command: "echo answered"})
	if !run.Unrecorded || string(run.Stdout.Tail) != "answered\n" {
		t.Errorf("answered: %+v", run)
	}
	if _, _, err := f.Start(t.Context(), alice, exec.Request{Command: f.counting("n", "true")}); code(err) != exec.CodeStartFailed {
		t.Errorf("a task: %v", err)
	}
	f.tell(t, alice, running, "ohello", "x0")
	if r := f.awaitEnd(t, alice, running); r.Status != exec.StatusCompleted || !r.Unrecorded {
		t.Errorf("a task from before: %+v", r)
	}
	if p := f.mustConsume(t, alice, running); p.Stdout.Text != "hello" {
		t.Errorf("its output: %+v", p)
	}
	if reasons := f.Ready(); len(reasons) != 1 || !strings.HasPrefix(reasons[0], "store: ") {
		t.Errorf("ready: %q", reasons)
	}
	if !f.ids(t, alice)[run.ID] || !slices.Equal(f.tasks(t, alice), []string{running}) {
		t.Error("they are not listed")
	}
	c.off.Store(false)
	eventually(t, "it is ready", func() bool { return len(f.Ready()) == 0 })
	eventually(t, "all is recorded", func() bool {
		a, _ := f.Get(alice, exec.Foreground, run.ID)
		b, _ := f.Get(alice, exec.Background, running)
		return !a.Unrecorded && !b.Unrecorded
	})
	for life := range 2 {
		if r, err := f.Get(alice, exec.Foreground, run.ID); err != nil || r.Unrecorded || string(r.Stdout.Tail) != "answered\n" {
			t.Errorf("life %d, the run: %+v %v", life, r, err)
		}
		if p := f.mustConsume(t, alice, running); p.Delta() != "" || !p.EOF || p.Task.Unrecorded {
			t.Errorf("life %d, the task is read again: %+v", life, p)
		}
		f.restart(t)
	}
	if f.lines(t, "n") != 0 {
		t.Error("the refused task ran")
	}
	for _, op := range []string{"insert", "settle", "advance"} {
		if line := fmt.Sprintf(`bashd_store_errors_total{op=%q} `, op); strings.Contains(f.metrics(t), line+"0") {
			t.Errorf("the metrics have %s0", line)
		}
	}
}

// TestConsumeMeetsTheEnd: a read that consumes while the cursor is being recorded for good does not come too late to be
// recorded with it: its bytes would be delivered again.
func TestConsumeMeetsTheEnd(t *testing.T) {
	type answer struct {
		page exec.Page
		err  error
	}
	var f *fixture
	var fails atomic.Bool
	var advances atomic.Int64
	answers := make(chan answer, 1)
	consume := func() {
		p, err := f.Consume(t.Context(), alice, f.tasks(t, alice)[0])
		answers <- answer{p, err}
	}
	f = newFixture(t, func(s *exec.Settings) {
		s.Store = &storetest.Faulty{
			Store: s.Store,
			Before: func(op string, _ int) error {
				if op == "Advance" && fails.Load() {
					return errFault
				}
				return nil
			},
			After: func(op string, _ int) error {
				if op == "Advance" && advances.Add(1) == 2 { // that of the end
					fails.Store(true)
					go consume()
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			},
		}
	})
	id := f.obey(t, alice)
	f.tell(t, alice, id, "oone")
	f.awaitBytes(t, alice, id, 3, 0)
	f.mustConsume(t, alice, id)
	f.tell(t, alice, id, "otwo", "x0")
	f.awaitEnd(t, alice, id)
	first := <-answers
	fails.Store(false)
	again := f.mustConsume(t, alice, id)
	if first.err == nil && first.page.Stdout.Text+again.Stdout.Text != "two" || first.err != nil && again.Stdout.Text != "two" {
		t.Errorf("first %q (%v), then %q", first.page.Stdout.Text, first.err, again.Stdout.Text)
	}
}

// TestDeletedBeforeRecorded: a task that is deleted while its record waits for the store does not come back.
func TestDeletedBeforeRecorded(t *testing.T) {
	var c cut
	f := newFixture(t, cuttable(&c))
	id := f.obey(t, alice)
	c.off.Store(true)
	f.tell(t, alice, id, "ohello", "x0")
	f.awaitEnd(t, alice, id)
	if err := f.Delete(t.Context(), alice, id); code(err) != exec.CodeInternal {
		t.Errorf("while the store fails: %v", err)
	}
	c.off.Store(false)
	if err := f.Delete(t.Context(), alice, id); err != nil {
		t.Errorf("after that: %v", err)
	}
	f.CatchUp()
	for range 2 {
		if _, err := f.Get(alice, exec.Background, id); code(err) != exec.CodeNotFound || len(f.spillFiles(t)) != 0 {
			t.Errorf("it is back: %v, %q", err, f.spillFiles(t))
		}
		f.restart(t)
	}
}
