package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// follow reads l to its end with a buffer of n bytes and returns how many bytes
// came and how many were told to be gone. Each must be the right one.
func follow(ctx context.Context, l *Log, n int) (got, skipped int64, err error) {
	buf := make([]byte, n)
	for next := int64(0); ; {
		c, err := l.Next(ctx, next, buf)
		if errors.Is(err, io.EOF) {
			return got, skipped, nil
		}
		if err != nil {
			return got, skipped, err
		}
		if c.From != next+c.Skipped || c.Skipped < 0 || c.N+int(c.Skipped) == 0 {
			return got, skipped, fmt.Errorf("asked for %d, got %+v", next, c)
		}
		for i, b := range buf[:c.N] {
			if o := c.From + int64(i); b != at(o) {
				return got, skipped, fmt.Errorf("wrong byte at %d", o)
			}
		}
		got, skipped, next = got+int64(c.N), skipped+c.Skipped, c.From+int64(c.N)
		if n%2 == 1 {
			runtime.Gosched() // half of the followers lag
		}
	}
}

// TestConcurrentFollowers: with a file everyone gets every byte; without, or
// when it goes away in the middle, gaps account for every missing one.
func TestConcurrentFollowers(t *testing.T) {
	const size = 1 << 18
	for _, tt := range []struct {
		name      string
		spill     int64
		eager     bool
		withdraw  bool
		wantWhole bool
	}{
		{"lazy file", 2 * size, false, false, true},
		{"eager file", 2 * size, true, false, true},
		{"no file", 0, false, false, false},
		{"outgrown", size / 2, true, false, false},
		{"withdrawn", 2 * size, false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDisk(t)
			l := New(d.options(3000, tt.spill, tt.eager))
			var wg sync.WaitGroup
			for _, n := range []int{1 << 16, 1001, 4096, 333, 64, 10000, 2, 77777} {
				wg.Go(func() {
					got, skipped, err := follow(t.Context(), l, n)
					if err != nil || got+skipped != size || tt.wantWhole && skipped > 0 {
						t.Errorf("buffer of %d: %d bytes, %d skipped, %v", n, got, skipped, err)
					}
				})
			}
			if tt.withdraw {
				wg.Go(func() {
					for l.Stat().Bytes < size/2 {
						runtime.Gosched()
					}
					l.Withdraw()
				})
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			for o := int64(0); o < size; {
				n := min(int64(1+rnd.IntN(5000)), size-o)
				l.Append(stream(o, o+n))
				o += n
			}
			l.Seal()
			wg.Wait()
			l.Close()
			if left := openFiles(t, d.path); left != 0 {
				t.Errorf("%d descriptors left", left)
			}
		})
	}
}

// TestReadOvertakenByTheWriter: a read that takes several copies out of memory,
// while the writer laps it, must stop at the gap instead of leaping over it.
func TestReadOvertakenByTheWriter(t *testing.T) {
	const tail, size = 4 * copyBytes, 16 << 20
	l := New(Options{TailBytes: tail})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			buf := make([]byte, tail)
			for !l.Stat().Sealed {
				c, err := l.Read(0, buf)
				if err != nil {
					t.Errorf("%+v, %v", c, err)
					return
				}
				for i := 0; i < c.N; i += 61 {
					if o := c.From + int64(i); buf[i] != at(o) {
						t.Errorf("wrong byte at %d, in %+v", o, c)
						return
					}
				}
			}
		})
	}
	piece := stream(0, size/4)
	for o := int64(0); o < size; o += copyBytes {
		if o%int64(len(piece)) == 0 {
			piece = stream(o, o+int64(len(piece)))
		}
		l.Append(piece[o%int64(len(piece)):][:copyBytes])
		if o%(8*copyBytes) == 0 {
			runtime.Gosched()
		}
	}
	l.Seal()
	wg.Wait()
}

// TestNoLostWakeUp: writer and follower wait for each other at every byte, so a
// single lost wake-up ends the test by its deadline.
func TestNoLostWakeUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := New(Options{TailBytes: 8})
	heard := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(heard)
		for from := int64(0); ; from++ {
			if _, err := l.Next(ctx, from, make([]byte, 1)); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("at %d: %v", from, err)
				}
				return
			}
			heard <- struct{}{}
		}
	})
	for range 20000 {
		l.Append([]byte{'x'})
		if _, ok := <-heard; !ok {
			break
		}
	}
	l.Seal()
	wg.Wait()
}

type answer struct {
	c   Chunk
	err error
}

// crowd is a hundred followers that ask the same and must hear the same.
type crowd struct {
	t       *testing.T
	l       *Log
	answers chan answer
}

func (c crowd) ask(ctx context.Context, from int64, n int) {
	for range cap(c.answers) {
		go func() {
			chunk, err := c.l.Next(ctx, from, make([]byte, n))
			c.answers <- answer{chunk, err}
		}()
	}
	synctest.Wait()
}

func (c crowd) expect(what string, chunk Chunk, err error) {
	c.t.Helper()
	synctest.Wait()
	if len(c.answers) != cap(c.answers) {
		c.t.Fatalf("%s: %d of %d followers woke", what, len(c.answers), cap(c.answers))
	}
	for range cap(c.answers) {
		if got := <-c.answers; got.c != chunk || !errors.Is(got.err, err) {
			c.t.Fatalf("%s: %+v, want %+v, %v", what, got, chunk, err)
		}
	}
}

func (c crowd) expectSilence(what string) {
	c.t.Helper()
	synctest.Wait()
	if n := len(c.answers); n > 0 {
		c.t.Fatalf("%s: %d followers woke for nothing", what, n)
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{TailBytes: 8})
		all := crowd{t, l, make(chan answer, 100)}

		all.ask(t.Context(), 0, 8)
		all.expectSilence("nothing printed")
		l.Append(nil)
		l.Withdraw()
		all.expectSilence("still nothing printed")
		l.Append([]byte("ab"))
		all.expect("bytes", Chunk{N: 2}, nil)

		all.ask(t.Context(), 2, 0)
		all.expectSilence("empty buffer")
		l.Append([]byte("c"))
		all.expect("empty buffer", Chunk{From: 2}, nil)

		all.ask(t.Context(), 3, 8)
		l.Append([]byte("0123456789"))
		all.expect("a gap", Chunk{From: 5, N: 8, Skipped: 2}, nil)
		all.ask(t.Context(), 14, 8)
		all.expect("past the end", Chunk{From: 13}, ErrBeyondEnd)

		all.ask(t.Context(), 13, 8)
		all.expectSilence("at the end so far")
		l.Seal()
		all.expect("the end", Chunk{From: 13}, io.EOF)
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{TailBytes: 8})
		l.Append([]byte("abc"))
		all := crowd{t, l, make(chan answer, 100)}
		timeout, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()

		all.ask(timeout, 3, 8)
		time.Sleep(time.Second - 1)
		all.expectSilence("before the timeout")
		time.Sleep(time.Nanosecond)
		all.expect("timeout", Chunk{From: 3}, context.DeadlineExceeded)
		all.ask(timeout, 0, 8)
		all.expect("an ended context, though there are bytes", Chunk{}, context.DeadlineExceeded)
	})
}

// TestAppendCosts pins that an Append allocates nothing once memory is full,
// that a silent log holds nothing, and that memory keeps its bound.
func TestAppendCosts(t *testing.T) {
	l := New(Options{TailBytes: 1000})
	if l.mem.buf != nil {
		t.Error("a silent log holds memory")
	}
	line := make([]byte, 120)
	l.Append(line)
	if n := len(l.mem.buf); n > firstRing {
		t.Errorf("the first line took %d bytes", n)
	}
	for range 10 {
		l.Append(line)
	}
	if n := len(l.mem.buf); n != 1000 {
		t.Errorf("memory is %d bytes, want 1000", n)
	}
	if n := testing.AllocsPerRun(100, func() { l.Append(line) }); n != 0 {
		t.Errorf("%v allocations an Append", n)
	}
}

func TestNegativeOffsetIsZero(t *testing.T) {
	l := New(Options{TailBytes: 0}) // counts as 1
	l.Append([]byte("ab"))
	for _, read := range []func() (Chunk, error){
		func() (Chunk, error) { return l.Read(-5, make([]byte, 9)) },
		func() (Chunk, error) { return l.Next(t.Context(), -5, make([]byte, 9)) },
	} {
		if c, err := read(); err != nil || c != (Chunk{From: 1, N: 1, Skipped: 1}) {
			t.Errorf("%+v, %v", c, err)
		}
	}
}
