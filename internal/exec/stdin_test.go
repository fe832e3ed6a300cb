package exec_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"bashd/internal/exec"
)

// TestStdinStaysOpen: the bytes of the request come first, then what is written, until it is closed.
func TestStdinStaysOpen(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: "cat", Stdin: []byte("first "), HasStdin: true, StdinOpen: true}).ID
	for _, data := range []string{"second ", "third"} {
		if n, err := f.WriteStdin(t.Context(), alice, id, []byte(data), data == "third"); n != len(data) || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := f.WriteStdin(t.Context(), alice, id, []byte("x"), false); n != 0 || code(err) != exec.CodeConflict {
		t.Errorf("after it was closed: %d %v", n, err)
	}
	if end := f.awaitEnd(t, alice, id); *end.ExitCode != 0 {
		t.Errorf("got %+v", end)
	}
	if got, err := f.content(alice, id, exec.Stdout); got != "first second third" || err != nil {
		t.Errorf("it read %q %v", got, err)
	}
	if _, err := f.WriteStdin(t.Context(), alice, id, []byte("x"), false); code(err) != exec.CodeConflict {
		t.Errorf("after its end: %v", err)
	}
	f.restart(t)
	if _, err := f.WriteStdin(t.Context(), alice, id, []byte("x"), false); code(err) != exec.CodeConflict {
		t.Errorf("after a restart: %v", err)
	}
}

// TestStdinNotOpen: a task that was not asked to keep it open has none, and one may close its own.
func TestStdinNotOpen(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: "sleep 60", Stdin: []byte("x"), HasStdin: true}).ID
	if _, err := f.WriteStdin(t.Context(), alice, id, []byte("x"), false); code(err) != exec.CodeConflict {
		t.Errorf("not open: %v", err)
	}
	id = f.mustStart(t, alice, exec.Request{Command: "exec <&-; echo closed; exec sleep 60", StdinOpen: true}).ID
	f.awaitBytes(t, alice, id, 7, 0)
	for range 2 {
		if n, err := f.WriteStdin(t.Context(), alice, id, []byte("x"), false); n != 0 || code(err) != exec.CodeConflict {
			t.Errorf("closed by the task: %d %v", n, err)
		}
	}
}

// TestStdinPatience: a task that does not read costs a writer a bounded time, and the bytes that went in are told.
func TestStdinPatience(t *testing.T) {
	f := newFixture(t)
	f.SetStdinPatience(60 * time.Millisecond)
	big := make([]byte, 1<<20)
	write := func(ctx context.Context, id string, atLeast, atMost int) {
		t.Helper()
		began := time.Now()
		n, err := f.WriteStdin(ctx, alice, id, big, true)
		if took := time.Since(began); n < atLeast || n > atMost || err != nil || took > patience/2 {
			t.Errorf("%d bytes in %v: %v", n, took, err)
		}
	}
	id := f.mustStart(t, alice, exec.Request{Command: "read -r l; cat | wc -c", StdinOpen: true}).ID
	idle := f.mustStart(t, alice, exec.Request{Command: "sleep 60", StdinOpen: true}).ID
	write(t.Context(), idle, 1, len(big)-1)
	write(t.Context(), idle, 0, 0) // full, and not closed by the write that was cut short
	// Behind the bytes of its own request.
	behind := f.mustStart(t, alice, exec.Request{Command: "sleep 60", StdinOpen: true, HasStdin: true, Stdin: big}).ID
	write(t.Context(), behind, 0, 0)
	// The caller's own bound, and what is next is not cut short by it.
	f.SetStdinPatience(patience)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	write(ctx, idle, 0, 0)
	write(ctx, behind, 0, 0)
	if n, err := f.WriteStdin(t.Context(), alice, id, []byte("go\n"), false); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	write(t.Context(), id, len(big), len(big))
	f.awaitEnd(t, alice, id)
	if got, err := f.content(alice, id, exec.Stdout); strings.TrimSpace(got) != "1048576" || err != nil {
		t.Errorf("it read %q bytes, %v", got, err)
	}
}

// TestStdinWritersDoNotMix: what is written in one call is read in one piece.
func TestStdinWritersDoNotMix(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: "cat", StdinOpen: true}).ID
	const writers, blocks, size = 5, 6, 20_000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			block := append(bytes.Repeat([]byte{byte('a' + w)}, size), '\n')
			for range blocks {
				if n, err := f.WriteStdin(t.Context(), alice, id, block, false); n != len(block) || err != nil {
					t.Errorf("%d of %d bytes: %v", n, len(block), err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := f.WriteStdin(t.Context(), alice, id, nil, true); err != nil {
		t.Fatal(err)
	}
	f.awaitEnd(t, alice, id)
	got, err := f.content(alice, id, exec.Stdout)
	if err != nil || len(got) != writers*blocks*(size+1) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for line := range strings.Lines(got) {
		if len(line) != size+1 || strings.Count(line, line[:1]) != size {
			t.Fatalf("a line of %d bytes is mixed", len(line))
		}
	}
}

// TestStdinEndsWithTheTask: who waits for a task to read hears of its end.
func TestStdinEndsWithTheTask(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: "sleep 60", StdinOpen: true}).ID
	behind := f.mustStart(t, alice, exec.Request{Command: "sleep 60", StdinOpen: true, HasStdin: true, Stdin: make([]byte, 1<<20)}).ID
	var wg sync.WaitGroup
	for _, id := range []string{id, id, behind} {
		wg.Go(func() {
			if n, err := f.WriteStdin(t.Context(), alice, id, make([]byte, 1<<20), false); n == 1<<20 || n == 0 && code(err) != exec.CodeConflict {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	f.kill(t, alice, id)
	f.kill(t, alice, behind)
	wg.Wait()
}
