package exec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
)

func (f *fixture) mustFollow(tb testing.TB, c exec.Caller, id string, o exec.FollowOptions) *exec.Follower {
	tb.Helper()
	fo, err := f.Follow(c, id, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(fo.Close)
	return fo
}

// heard is what a follower has told so far.
type heard struct {
	tb     testing.TB
	raw    [2]string
	text   [2]string
	at     [2]int64
	gaps   []exec.Event
	others []exec.EventKind
	cursor string
	last   exec.Run
}

func (h *heard) hear(e exec.Event) {
	h.tb.Helper()
	h.cursor = e.Cursor
	i := 0
	if e.Stream == exec.Stderr {
		i = 1
	}
	switch e.Kind {
	case exec.EventOutput:
		if e.From != h.at[i] || e.To-e.From != int64(len(e.Data)) || len(e.Data) == 0 {
			h.tb.Fatalf("output [%d, %d) of %d bytes after %d", e.From, e.To, len(e.Data), h.at[i])
		}
		h.raw[i] += string(e.Data)
		h.text[i] += string(e.Text)
		h.at[i] = e.To
	case exec.EventGap:
		h.gaps = append(h.gaps, e)
		h.at[i] = e.To
	default:
		h.others = append(h.others, e.Kind)
		h.last = e.Task
	}
}

// follow hears a follower to its end, n bytes at a time.
func (h *heard) follow(fo *exec.Follower, n int) *heard {
	h.tb.Helper()
	for {
		e, ok := fo.Next(n)
		if ok {
			h.hear(e)
			continue
		}
		ctx, cancel := context.WithTimeout(h.tb.Context(), patience)
		err := fo.Await(ctx)
		cancel()
		if errors.Is(err, io.EOF) {
			return h
		}
		if err != nil {
			h.tb.Fatalf("nothing more came after %q: %v", h.raw, err)
		}
	}
}

// TestFollow: whoever follows gets every byte once, in order, from the first one on, and then the end, once,
// while the command runs and afterwards; and from each cursor what came after it.
func TestFollow(t *testing.T) {
	f := newFixture(t)
	const command = `for i in $(seq 30); do printf 'é%d ' $i; printf '\xf0\x9f' >&2; sleep 0.01; printf '\x98\x80,' >&2; done; printf '\xe2\x82'; exit 3`
	var want [2]string
	for i := range 30 {
		want[0] += fmt.Sprintf("é%d ", i+1)
		want[1] += "😀,"
	}
	id := f.mustStart(t, alice, exec.Request{Command: command}).ID
	for _, n := range []int{exec.MinFollowBytes, 7, 1 << 10} {
		h := (&heard{tb: t}).follow(f.mustFollow(t, alice, id, exec.FollowOptions{Text: true}), n)
		if h.text[0] != want[0]+"\uFFFD" || h.text[1] != want[1] || len(h.gaps) > 0 {
			t.Errorf("%d at a time: got %q and gaps %v", n, h.text, h.gaps)
		}
		if !slices.Equal(h.others, []exec.EventKind{exec.EventSettled}) || *h.last.ExitCode != 3 {
			t.Errorf("%d at a time: told %v, %+v", n, h.others, h.last)
		}
	}
	fo := f.mustFollow(t, alice, id, exec.FollowOptions{})
	for got := new(heard); ; {
		got.tb = t
		e, ok := fo.Next(11)
		if !ok {
			break
		}
		got.hear(e)
		rest := (&heard{tb: t, at: got.at}).follow(f.mustFollow(t, alice, id, exec.FollowOptions{Cursor: e.Cursor, Text: rand.IntN(2) == 0}), 100)
		for i := range want {
			whole := want[i]
			if i == 0 {
				whole += "\xe2\x82"
			}
			if got.raw[i]+rest.raw[i] != whole {
				t.Fatalf("%q, then from its cursor %q", got.raw[i], rest.raw[i])
			}
		}
	}
}

// TestFollowManyAtOnce: followers that come and go at any byte miss nothing and hear nothing twice.
func TestFollowManyAtOnce(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: `for i in $(seq 200); do echo line $i; echo err $i >&2; [ $((i % 20)) != 0 ] || sleep 0.02; done`}).ID
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			h := &heard{tb: t}
			for len(h.others) == 0 {
				fo := f.mustFollow(t, alice, id, exec.FollowOptions{Cursor: h.cursor, Text: rng.IntN(2) == 0})
				for range rng.IntN(6) {
					if e, ok := fo.Next(exec.MinFollowBytes + rng.IntN(300)); ok {
						h.hear(e)
						continue
					}
					if err := fo.Await(t.Context()); err != nil {
						break
					}
				}
				fo.Close()
			}
			var want [2]string
			for i := range 200 {
				want[0] += fmt.Sprintf("line %d\n", i+1)
				want[1] += fmt.Sprintf("err %d\n", i+1)
			}
			if h.raw != want {
				t.Errorf("seed %d: got %d and %d bytes", seed, len(h.raw[0]), len(h.raw[1]))
			}
		})
	}
}

// TestFollowWakes: what a command prints is told when it prints it, and so is that it is being stopped.
func TestFollowWakes(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	fo := f.mustFollow(t, alice, id, exec.FollowOptions{FromEnd: true, Text: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if e, ok := fo.Next(100); ok {
		t.Fatalf("from the end: %+v", e)
	}
	if err := fo.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("of a silent task: %v", err)
	}
	f.tell(t, alice, id, `onew\n`)
	h := &heard{tb: t}
	for h.text[0] != "new\n" {
		if err := fo.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		for e, ok := fo.Next(100); ok; e, ok = fo.Next(100) {
			h.hear(e)
		}
	}
	slow := f.mustStart(t, alice, exec.Request{Command: "trap 'sleep 0.3; exit' TERM; echo up; sleep 60 & wait"}).ID
	f.awaitBytes(t, alice, slow, 3, 0)
	fo, h = f.mustFollow(t, alice, slow, exec.FollowOptions{}), &heard{tb: t}
	if _, _, err := f.Kill(t.Context(), alice, exec.AnyKind, slow, ""); err != nil {
		t.Fatal(err)
	}
	h.follow(fo, 100)
	if want := []exec.EventKind{exec.EventStopping, exec.EventSettled}; !slices.Equal(h.others, want) || h.last.Status != exec.StatusKilled {
		t.Errorf("told %v and %s", h.others, h.last.Status)
	}
}

// TestFollowFromWithinACharacter: who follows from the end of half a character is told it whole.
func TestFollowFromWithinACharacter(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	f.tell(t, alice, id, `oa\xe2\x82`)
	f.awaitBytes(t, alice, id, 3, 0)
	fo := f.mustFollow(t, alice, id, exec.FollowOptions{FromEnd: true, Text: true})
	f.tell(t, alice, id, `o\xac!`, "x0")
	h := (&heard{tb: t, at: [2]int64{1, 0}}).follow(fo, 10)
	if h.text[0] != "€!" {
		t.Errorf("got %q", h.text[0])
	}
}

// TestFollowGap: bytes that are gone are told as a gap that begins and ends where they do, and what follows them begins
// with a character.
func TestFollowGap(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxSpillBytes, s.MaxOutputBytes = 3000, 1000 })
	task := f.finished(t, alice, `for i in $(seq 4000); do printf é; done`)
	h := (&heard{tb: t}).follow(f.mustFollow(t, alice, task.ID, exec.FollowOptions{Text: true}), 64)
	if len(h.gaps) != 1 || h.gaps[0].From != 0 || h.gaps[0].To+int64(len(h.raw[0])) != 8000 || !utf8.ValidString(h.raw[0]) || len(h.raw[0]) < 990 {
		t.Errorf("gaps %+v, then %d bytes", h.gaps, len(h.raw[0]))
	}
	// And where somebody has cut the file.
	f2 := newFixture(t)
	cut := f2.finished(t, alice, "seq 1 100")
	for _, name := range f2.spillFiles(t) {
		if err := os.Truncate(name, 50); err != nil {
			t.Fatal(err)
		}
	}
	h = (&heard{tb: t}).follow(f2.mustFollow(t, alice, cut.ID, exec.FollowOptions{}), 64)
	if len(h.raw[0]) != 50 || len(h.gaps) != 1 || h.gaps[0].From != 50 || h.gaps[0].To != 292 || len(h.others) != 1 {
		t.Errorf("of a file that was cut: %q, %+v, %v", h.raw[0], h.gaps, h.others)
	}
}

// TestFollowRuns: foreground runs are followed as well, those that become tasks meanwhile, and settled ones that no file was
// kept of.
func TestFollowRuns(t *testing.T) {
	f := newFixture(t)
	run := f.mustRun(t, alice, exec.Request{Command: "echo out; echo err >&2; exit 4"})
	h := (&heard{tb: t}).follow(f.mustFollow(t, alice, run.ID, exec.FollowOptions{}), 100)
	if h.raw != [2]string{"out\n", "err\n"} || *h.last.ExitCode != 4 {
		t.Errorf("a settled one: %q %+v", h.raw, h.last)
	}
	task, _, err := f.Run(t.Context(), alice, exec.Request{Command: "echo a; sleep 0.2; echo b", YieldAfter: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h = (&heard{tb: t}).follow(f.mustFollow(t, alice, task.ID, exec.FollowOptions{}), 100)
	if h.raw[0] != "a\nb\n" || h.last.Kind != exec.Background {
		t.Errorf("a yielded one: %q %+v", h.raw, h.last)
	}
}

// TestFollowIsFenced: another's command cannot be told from one that is not there, nor can another command's cursor be used.
func TestFollowIsFenced(t *testing.T) {
	f := newFixture(t)
	mine, other := f.finished(t, alice, "echo x"), f.finished(t, alice, "echo y")
	_, unknown := f.Follow(bob, "bash-aaaaaaaaaaaaaaaaaaaaaaaaaa", exec.FollowOptions{})
	_, foreign := f.Follow(bob, mine.ID, exec.FollowOptions{})
	if code(unknown) != exec.CodeNotFound || code(foreign) != exec.CodeNotFound {
		t.Errorf("unknown: %v, foreign: %v", unknown, foreign)
	}
	cursor := f.mustFollow(t, alice, other.ID, exec.FollowOptions{}).Cursor()
	for _, c := range []string{cursor, "abc", cursor[:len(cursor)-1] + "~"} {
		if _, err := f.Follow(alice, mine.ID, exec.FollowOptions{Cursor: c}); code(err) != exec.CodeInvalidArgument {
			t.Errorf("cursor %q: %v", c, err)
		}
	}
}

// TestChangesAreTold: of a task its start, that it is being stopped, and its end, in this order; of a run its end.
func TestChangesAreTold(t *testing.T) {
	f := newFixture(t)
	type change struct {
		what exec.Change
		kind exec.Kind
	}
	heard := make(chan struct {
		id string
		change
	}, 100)
	f.OnChange(func(what exec.Change, r exec.Run) {
		heard <- struct {
			id string
			change
		}{r.ID, change{what, r.Kind}}
	})
	until := func(id string) (all []change) {
		for {
			select {
			case h := <-heard:
				if h.id != id {
					continue
				}
				if all = append(all, h.change); h.what == exec.Settled {
					return all
				}
			case <-time.After(patience):
				t.Fatalf("told only %v", all)
			}
		}
	}
	const fg, bg = exec.Foreground, exec.Background
	for range 20 {
		if got := until(f.mustStart(t, alice, exec.Request{Command: "true"}).ID); !slices.Equal(got, []change{{exec.Started, bg}, {exec.Settled, bg}}) {
			t.Fatalf("a quick task: %v", got)
		}
	}
	id := f.obey(t, alice)
	f.kill(t, alice, id)
	if got := until(id); !slices.Equal(got, []change{{exec.Started, bg}, {exec.Stopping, bg}, {exec.Settled, bg}}) {
		t.Errorf("a killed task: %v", got)
	}
	if got := until(f.mustRun(t, alice, exec.Request{Command: "true"}).ID); !slices.Equal(got, []change{{exec.Settled, fg}}) {
		t.Errorf("a run: %v", got)
	}
	task, _, err := f.Run(t.Context(), alice, exec.Request{Command: "sleep 0.2", YieldAfter: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if got := until(task.ID); !slices.Equal(got, []change{{exec.Started, bg}, {exec.Settled, bg}}) {
		t.Errorf("a yielded run: %v", got)
	}
}
