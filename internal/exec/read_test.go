package exec_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
	"bashd/internal/output"
)

func (f *fixture) mustRead(tb testing.TB, c exec.Caller, id string, o exec.ReadOptions) exec.Page {
	tb.Helper()
	p, err := f.Output(tb.Context(), c, id, o)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func (f *fixture) mustConsume(tb testing.TB, c exec.Caller, id string) exec.Page {
	tb.Helper()
	p, err := f.Consume(tb.Context(), c, id)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// readAll reads a settled task page by page and puts it together again.
func (f *fixture) readAll(t *testing.T, id string, maxBytes int) (raw, text [2]string, pages int) {
	t.Helper()
	o := exec.ReadOptions{MaxBytes: maxBytes}
	var at [2]int64
	for ; ; pages++ {
		p := f.mustRead(t, alice, id, o)
		if n := len(p.Stdout.Data) + len(p.Stderr.Data); n > maxBytes+2*(utf8.UTFMax-1)+1 || (n == 0 && !p.EOF) {
			t.Fatalf("a page of %d bytes where %d were asked for", n, maxBytes)
		}
		for i, piece := range []exec.Piece{p.Stdout, p.Stderr} {
			if piece.From != at[i] || piece.To-piece.From != int64(len(piece.Data)) {
				t.Fatalf("piece [%d, %d) of %d bytes after %d", piece.From, piece.To, len(piece.Data), at[i])
			}
			at[i] = piece.To
			raw[i] += string(piece.Data)
			text[i] += piece.Text
		}
		if p.Lossy || p.EOF == p.More {
			t.Fatalf("lossy %v, EOF %v, more %v", p.Lossy, p.EOF, p.More)
		}
		if p.EOF {
			return raw, text, pages
		}
		o.Cursor = p.Next
	}
}

// TestPagesReassemble: whatever the size of a page, the pages are the streams, and no character is cut.
func TestPagesReassemble(t *testing.T) {
	f := newFixture(t)
	stdout := "aé€😀\x00\xff€\xe2\x82z\xf0\x9f\x98" // ends within a character
	stderr := "😀😀éé\xc3"
	id := f.mustStart(t, alice, exec.Request{
		Command: `read -r a b < <(cat); printf %b "$a"; printf %b "$b" >&2`,
		Stdin:   []byte(hex(stdout) + " " + hex(stderr) + "\n"), HasStdin: true,
	}).ID
	f.awaitEnd(t, alice, id)
	for size := range 8 {
		raw, text, _ := f.readAll(t, id, max(size, 1))
		if raw != [2]string{stdout, stderr} {
			t.Errorf("pages of %d: %q", size, raw)
		}
		if want := [2]string{output.Text([]byte(stdout), false), output.Text([]byte(stderr), false)}; text != want {
			t.Errorf("pages of %d: %q, want %q", size, text, want)
		}
	}
	if _, _, pages := f.readAll(t, id, 1000); pages != 0 {
		t.Errorf("%d pages before the last, where all fits", pages)
	}
}

// hex writes s with the escapes of printf %b.
func hex(s string) (e string) {
	for _, b := range []byte(s) {
		e += fmt.Sprintf(`\x%02x`, b)
	}
	return e
}

// TestPagesAreFair: neither stream keeps the other from being read, and what one does not need the other has.
func TestPagesAreFair(t *testing.T) {
	f := newFixture(t)
	id := f.finished(t, alice, "printf '%01000d' 0; printf '%0200d' 0 >&2").ID
	for maxBytes, want := range map[int][2]int{100: {50, 50}, 101: {51, 50}, 600: {400, 200}, 1: {1, 0}, 5000: {1000, 200}} {
		p := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: maxBytes})
		if got := [2]int{len(p.Stdout.Data), len(p.Stderr.Data)}; got != want {
			t.Errorf("of %d bytes: %v, want %v", maxBytes, got, want)
		}
	}
}

// TestUnfinishedCharacterWaits: the beginning of a character is not delivered, wakes nobody, and takes nothing of
// the other stream's share; its end is.
func TestUnfinishedCharacterWaits(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	f.tell(t, alice, id, `o\xe2\x82`, "eerr")
	f.awaitBytes(t, alice, id, 2, 3)
	o := exec.ReadOptions{MaxBytes: 1, Wait: patience}
	var stderr string
	for range 3 {
		p := f.mustRead(t, alice, id, o)
		if p.Stdout.To != 0 {
			t.Fatalf("half a character was delivered: %+v", p.Stdout)
		}
		stderr, o.Cursor = stderr+p.Stderr.Text, p.Next
	}
	if stderr != "err" {
		t.Fatalf("stderr so far: %q", stderr)
	}
	// Nothing to say: the wait takes its time and little else.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o.Wait = 200 * time.Millisecond
	began := time.Now()
	p := f.mustRead(t, alice, id, o)
	runtime.ReadMemStats(&after)
	if took := time.Since(began); took < o.Wait || p.Stdout.To != 0 || p.More || p.EOF {
		t.Errorf("after %v: %+v", took, p)
	}
	if n := after.Mallocs - before.Mallocs; n > 2000 {
		t.Errorf("it spun: %d allocations", n)
	}
	o.Wait = patience
	read := make(chan exec.Page)
	go func() { read <- f.mustRead(t, alice, id, o) }()
	f.tell(t, alice, id, `o\xac`)
	if p := <-read; p.Stdout.Text != "€" || p.Stdout.From != 0 || p.Stdout.To != 3 {
		t.Errorf("its end: %+v", p.Stdout)
	}
}

// TestReadWaits: for output, for the end, and for the caller's patience.
func TestReadWaits(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	read := func(ctx context.Context, cursor string) <-chan exec.Page {
		got := make(chan exec.Page, 1)
		go func() {
			p, err := f.Output(ctx, alice, id, exec.ReadOptions{Cursor: cursor, MaxBytes: 100, Wait: patience})
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
		return got
	}
	first := read(t.Context(), "")
	f.tell(t, alice, id, "eone")
	p := <-first
	if p.Stderr.Text != "one" || p.EOF || p.Task.Status != exec.StatusRunning {
		t.Errorf("for output: %+v", p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if p := <-read(ctx, p.Next); p.EOF || len(p.Stdout.Data)+len(p.Stderr.Data) > 0 {
		t.Errorf("for a caller that goes away: %+v", p)
	}
	end := read(t.Context(), p.Next)
	f.tell(t, alice, id, "x0")
	if p := <-end; !p.EOF || p.Task.Status != exec.StatusCompleted || len(p.Stderr.Data) > 0 {
		t.Errorf("for the end: %+v", p)
	}
	if p := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: 100, Wait: patience}); p.Delta() != "[stderr]\none" || !p.EOF {
		t.Errorf("after the end, from the start: %+v", p)
	}
}

// TestCursorsAreChecked: one that is forged, or another task's, is the caller's mistake.
func TestCursorsAreChecked(t *testing.T) {
	f := newFixture(t)
	id, other := f.finished(t, alice, "echo a").ID, f.finished(t, alice, "echo a").ID
	foreign := f.mustRead(t, alice, other, exec.ReadOptions{MaxBytes: 10}).Next
	for name, cursor := range map[string]string{"odd": "x", "foreign": foreign, "changed": foreign + "A"} {
		_, err := f.Output(t.Context(), alice, id, exec.ReadOptions{Cursor: cursor, MaxBytes: 10})
		e, _ := errors.AsType[*exec.Error](err)
		if e == nil || e.Code != exec.CodeInvalidArgument || len(e.Fields) != 1 || e.Fields[0].Field != "cursor" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConsume: reads that consume never overlap, and go on after the end and after a restart.
func TestConsume(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	if p := f.mustConsume(t, alice, id); p.Delta() != "" || p.Lossy || p.EOF {
		t.Errorf("before any output: %+v", p)
	}
	for _, text := range []string{"one", "two"} {
		f.tell(t, alice, id, "o"+text, "e"+text)
		r := f.mustConsume(t, alice, id) // may come before it is there
		f.awaitBytes(t, alice, id, r.Stdout.To-int64(len(r.Stdout.Data))+3, r.Stderr.To-int64(len(r.Stderr.Data))+3)
		rest := f.mustConsume(t, alice, id)
		if got := r.Stdout.Text + rest.Stdout.Text + r.Stderr.Text + rest.Stderr.Text; got != text+text {
			t.Errorf("got %q, want %q twice", got, text)
		}
	}
	f.tell(t, alice, id, `olast\xe2\x82`, "x0")
	f.awaitEnd(t, alice, id)
	if p := f.mustConsume(t, alice, id); p.Stdout.Text != "last\uFFFD" || !p.EOF {
		t.Errorf("the end: %+v", p)
	}
	f.restart(t)
	if p := f.mustConsume(t, alice, id); p.Delta() != "" || !p.EOF || p.Lossy {
		t.Errorf("again, after a restart: %+v", p)
	}
	if p := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: 100}); p.Stdout.Text != "onetwolast\uFFFD" {
		t.Errorf("a read from the start is another matter: %+v", p)
	}
}

// TestConsumeParallel: of many readers each byte goes to exactly one.
func TestConsumeParallel(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: "for i in {1..300}; do echo $i; done"}).ID
	type span struct{ from, to int64 }
	spans := make(chan span)
	for range 4 {
		go func() {
			for {
				p, err := f.Consume(t.Context(), alice, id)
				if err != nil || p.Lossy {
					t.Errorf("lossy %v, %v", p.Lossy, err)
				}
				spans <- span{p.Stdout.From, p.Stdout.To}
				if p.EOF || err != nil {
					spans <- span{-1, -1}
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	seen := map[int64]bool{}
	for ended := 0; ended < 4; {
		s := <-spans
		if s.from < 0 {
			ended++
		}
		for at := s.from; at < s.to; at++ {
			if seen[at] {
				t.Fatalf("byte %d was delivered twice", at)
			}
			seen[at] = true
		}
	}
	if r := f.awaitEnd(t, alice, id); int64(len(seen)) != r.Stdout.Bytes {
		t.Errorf("%d of %d bytes were delivered", len(seen), r.Stdout.Bytes)
	}
}

// TestConsumeFlood: of a flood the last bytes are delivered, whole characters, and it is told; what comes next is
// not lossy.
func TestConsumeFlood(t *testing.T) {
	f := newFixture(t)
	id := f.mustStart(t, alice, exec.Request{Command: `printf '€%.0s' {1..50001}; printf 'é%.0s' {1..40000} >&2; IFS= read -r l; printf %s "$l"`, StdinOpen: true}).ID
	f.awaitBytes(t, alice, id, 150003, 80000)
	p := f.mustConsume(t, alice, id)
	for _, piece := range []exec.Piece{p.Stdout, p.Stderr} {
		if len(piece.Data) > 64000 || len(piece.Data) < 64000-3 || strings.Contains(piece.Text, "\uFFFD") || len(piece.Text) != len(piece.Data) {
			t.Errorf("%d bytes, as text %d", len(piece.Data), len(piece.Text))
		}
	}
	if !p.Lossy || p.EOF || p.More || p.Stdout.To != 150003 {
		t.Errorf("lossy %v, EOF %v, more %v, to %d", p.Lossy, p.EOF, p.More, p.Stdout.To)
	}
	if p.Task.Stdout.SpillPath == "" || p.Task.Stdout.RetainedFrom != 0 {
		t.Errorf("where the rest is: %+v", p.Task.Stdout)
	}
	f.tell(t, alice, id, "more")
	f.awaitEnd(t, alice, id)
	if p := f.mustConsume(t, alice, id); p.Lossy || p.Stdout.Text != "more" || !p.EOF {
		t.Errorf("after the flood: %.100q, lossy %v", p.Stdout.Text, p.Lossy)
	}
}

// TestCappedOutput: what a task prints past its file's cap is lost from the front, and a read says so.
func TestCappedOutput(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxOutputBytes, s.MaxSpillBytes = 100, 1000 })
	id := f.obey(t, alice)
	f.tell(t, alice, id, "o"+strings.Repeat("a", 600))
	f.awaitBytes(t, alice, id, 600, 0)
	at := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: 600}).Next
	f.tell(t, alice, id, "o"+strings.Repeat("b", 600))
	f.awaitBytes(t, alice, id, 1200, 0)
	for range 2 { // running, then settled
		p := f.mustRead(t, alice, id, exec.ReadOptions{Cursor: at, MaxBytes: 1000})
		if !p.Lossy || p.Stdout.From != 1100 || p.Stdout.Text != strings.Repeat("b", 100) || p.Task.Stdout.RetainedFrom != 1100 {
			t.Errorf("got %+v of %+v", p.Stdout, p.Task.Stdout)
		}
		if p = f.mustRead(t, alice, id, exec.ReadOptions{Cursor: p.Next, MaxBytes: 1000}); p.Lossy {
			t.Errorf("the loss is told twice: %+v", p)
		}
		f.kill(t, alice, id)
	}
}
