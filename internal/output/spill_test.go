package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSpillCap(t *testing.T) {
	const tail = 10
	for _, eager := range []bool{false, true} {
		for _, limit := range []int64{9, 10, 11, 25, 100} {
			for size := limit - 1; size <= limit+1; size++ {
				for _, piece := range []int64{1, 3, size} {
					m := newModel(t, tail, limit, eager)
					for int64(len(m.all)) < size {
						m.append(int(min(piece, size-int64(len(m.all)))))
					}
					m.seal()
					if err := m.check(); err != nil {
						t.Errorf("eager %v, limit %d, size %d in pieces of %d: %v", eager, limit, size, piece, err)
					}
				}
			}
		}
	}
}

// TestNoFileWithoutNeed: a short foreground stream touches no disk, and neither
// does a task that prints nothing.
func TestNoFileWithoutNeed(t *testing.T) {
	for _, tt := range []struct {
		eager bool
		bytes int64
		want  int32
	}{{false, 100, 0}, {false, 101, 1}, {true, 0, 0}, {true, 1, 1}} {
		d := newDisk(t)
		l := New(d.options(100, 1000, tt.eager))
		l.Append(stream(0, tt.bytes))
		l.Close()
		if got := d.created.Load(); got != tt.want {
			t.Errorf("eager %v, %d bytes: %d files made, want %d", tt.eager, tt.bytes, got, tt.want)
		}
	}
}

// TestEagerBytesAreInTheFileFirst reads the file at the moment a follower hears
// of the bytes.
func TestEagerBytesAreInTheFileFirst(t *testing.T) {
	d := newDisk(t)
	l := New(d.options(16, 1<<20, true))
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		buf := make([]byte, 64)
		for from := int64(0); ; {
			c, err := l.Next(t.Context(), from, buf)
			if err != nil {
				return
			}
			from = c.From + int64(c.N)
			if file, _ := os.ReadFile(d.path); int64(len(file)) < from {
				t.Errorf("heard of %d bytes when the file had %d", from, len(file))
			}
		}
	})
	for o := int64(0); o < 4000; o += 8 {
		l.Append(stream(o, o+8))
	}
	l.Seal()
}

// TestTinyAppendsAreBatched pins that a lazy log writes the file in batches and
// has it complete after Seal.
func TestTinyAppendsAreBatched(t *testing.T) {
	d := newDisk(t)
	o := d.options(1000, 1<<20, false)
	writes := 0
	o.OnSpill = func(int) { writes++ }
	l := New(o)
	for i := range int64(20000) {
		l.Append(stream(i, i+1))
	}
	l.Close()
	if writes > 20*3+3 {
		t.Errorf("%d writes for 20 times the memory, want at most 3 each", writes)
	}
	if !bytes.Equal(d.content(t), stream(0, 20000)) {
		t.Error("the file is not the stream")
	}
}

// failingAt returns a file that takes no byte at offset k or later: the kernel
// refuses to grow it.
func failingAt(t *testing.T, k int64) func() (*os.File, error) {
	return func() (*os.File, error) {
		fd, err := unix.MemfdCreate("spill", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "spill")
		if err := f.Truncate(k); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
			t.Fatal(err)
		}
		return f, nil
	}
}

// TestWriteFailureAtEveryPosition: wherever the disk gives up, the command goes
// on, the file is withdrawn once, and readers get exact gaps.
func TestWriteFailureAtEveryPosition(t *testing.T) {
	const tail, size = 16, 100
	for _, eager := range []bool{false, true} {
		for _, piece := range []int64{1, 7, 40} {
			for k := range int64(size + 1) {
				removed := 0
				l := New(Options{
					TailBytes: tail, SpillBytes: 1 << 20, Eager: eager, Create: failingAt(t, k),
					Remove: func() error { removed++; return nil },
				})
				for o := int64(0); o < size; o += piece {
					l.Append(stream(o, min(o+piece, size)))
				}
				l.Seal()
				st, wantFile := l.Stat(), k == size
				if st.HasFile != wantFile || (removed == 0) != wantFile || st.Bytes != size {
					t.Fatalf("eager %v, pieces of %d, failing at %d: %+v, removed %d times", eager, piece, k, st, removed)
				}
				buf := make([]byte, size)
				c, err := l.Read(0, buf)
				if err != nil || c.From+int64(c.N) != size || c.From != st.RetainedFrom || c.Skipped != c.From {
					t.Fatalf("failing at %d: %+v, %v", k, c, err)
				}
				if !bytes.Equal(buf[:c.N], stream(c.From, size)) {
					t.Fatalf("failing at %d: wrong bytes", k)
				}
				l.Close()
			}
		}
	}
}

func TestUnusableFileIsWithdrawn(t *testing.T) {
	open := func(path string, flag int) func() (*os.File, error) {
		return func() (*os.File, error) { return os.OpenFile(path, flag, 0) }
	}
	for _, tt := range []struct {
		name    string
		create  func() (*os.File, error)
		removed int
	}{
		{"disk full", open("/dev/full", os.O_RDWR), 1},
		{"read-only", open(os.DevNull, os.O_RDONLY), 1},
		{"create fails", func() (*os.File, error) { return nil, unix.EMFILE }, 0},
	} {
		for _, eager := range []bool{false, true} {
			created, removed := 0, 0
			l := New(Options{
				TailBytes: 8, SpillBytes: 1000, Eager: eager,
				Create: func() (*os.File, error) { created++; return tt.create() },
				Remove: func() error { removed++; return errors.New("no matter") },
			})
			for range 5 {
				l.Append([]byte("0123456789"))
			}
			l.Withdraw()
			l.Close()
			if st := l.Stat(); st.HasFile || st.FileBytes != 0 || st.RetainedFrom != 42 {
				t.Errorf("%s: %+v", tt.name, st)
			}
			if created != 1 || removed != tt.removed {
				t.Errorf("%s: created %d times, removed %d times", tt.name, created, removed)
			}
		}
	}
}

// TestWithdrawnWhileBeingMade: what Create made after all must not stay.
func TestWithdrawnWhileBeingMade(t *testing.T) {
	d := newDisk(t)
	o := d.options(4, 1000, true)
	var l *Log
	create := o.Create
	o.Create = func() (*os.File, error) {
		l.Withdraw()
		return create()
	}
	l = New(o)
	l.Append([]byte("0123456789"))
	if d.content(t) != nil || l.Stat().HasFile || d.removed.Load() != 1 || openFiles(t, d.path) != 0 {
		t.Errorf("file left behind: %+v, removed %d times", l.Stat(), d.removed.Load())
	}
}

// TestOnWithdraw: that there is no complete file is heard once, before the file goes, and also where none was ever made.
func TestOnWithdraw(t *testing.T) {
	for name, c := range map[string]struct {
		fail   bool
		writes []string
		want   []string
	}{
		"kept":             {writes: []string{"0123"}},
		"outgrown":         {writes: []string{"0123", "456789"}, want: []string{"withdrawn", "removed"}},
		"outgrown at once": {writes: []string{"0123456789", "more"}, want: []string{"withdrawn"}},
		"not made":         {fail: true, writes: []string{"0", "1"}, want: []string{"withdrawn"}},
	} {
		d := newDisk(t)
		o := d.options(4, 8, true)
		var heard []string
		remove := o.Remove
		o.Remove = func() error { heard = append(heard, "removed"); return remove() }
		o.OnWithdraw = func() { heard = append(heard, "withdrawn") }
		if c.fail {
			o.Create = func() (*os.File, error) { return nil, os.ErrPermission }
		}
		l := New(o)
		for _, w := range c.writes {
			l.Append([]byte(w))
		}
		if err := l.Close(); err != nil || !slices.Equal(heard, c.want) {
			t.Errorf("%s: heard %v, want %v; %v", name, heard, c.want, err)
		}
	}
}

// TestAtRest: what is left of a stream without a file reads like the end of any other.
func TestAtRest(t *testing.T) {
	for _, c := range []struct {
		tail string
		size int64
	}{{"", 0}, {"", 7}, {"abc", 3}, {"abc", 10}, {"abcd", 9}} {
		l := AtRest([]byte(c.tail), c.size)
		start := c.size - int64(len(c.tail))
		if st := l.Stat(); st.Bytes != c.size || st.RetainedFrom != start || !st.Sealed || st.HasFile {
			t.Errorf("%q of %d: %+v", c.tail, c.size, st)
		}
		buf := make([]byte, 16)
		if chunk, err := l.Read(0, buf); len(c.tail) > 0 && (err != nil || chunk.From != start || chunk.Skipped != start || string(buf[:chunk.N]) != c.tail) {
			t.Errorf("%q of %d: %+v %q %v", c.tail, c.size, chunk, buf[:chunk.N], err)
		}
		if _, err := l.Read(c.size, buf); !errors.Is(err, io.EOF) {
			t.Errorf("%q of %d: no end: %v", c.tail, c.size, err)
		}
		if _, _, err := l.Reader(); (err != nil) != (start > 0) {
			t.Errorf("%q of %d: complete: %v", c.tail, c.size, err)
		}
	}
}

// TestFileCutByOthers: a command with full access can truncate its own file.
func TestFileCutByOthers(t *testing.T) {
	d := newDisk(t)
	l := New(d.options(10, 1000, true))
	defer l.Close()
	l.Append(stream(0, 100))
	r, _, err := l.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Truncate(d.path, 50); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, stream(0, 50)) {
		t.Errorf("download gave %d bytes, %v", len(got), err)
	}
	buf := make([]byte, 100)
	c, err := l.Read(40, buf)
	if want := (Chunk{From: 90, N: 10, Skipped: 50}); err != nil || c != want || !bytes.Equal(buf[:10], stream(90, 100)) {
		t.Errorf("got %+v, %v; want %+v", c, err, want)
	}
	if d.content(t) != nil {
		t.Error("the cut file is still there")
	}
}

// TestFollowerMidFileAtWithdrawal: who is inside finishes, who comes later is
// told, and the descriptor goes with the last.
func TestFollowerMidFileAtWithdrawal(t *testing.T) {
	d := newDisk(t)
	l := New(d.options(10, 100, true))
	defer l.Close()
	l.Append(stream(0, 100))
	buf := make([]byte, 30)
	if c, err := l.Next(t.Context(), 0, buf); err != nil || c != (Chunk{N: 30}) {
		t.Fatalf("before: %+v, %v", c, err)
	}
	r, size, err := l.Reader()
	if err != nil || size != 100 {
		t.Fatal(size, err)
	}
	l.Append(stream(100, 101)) // passes the cap

	c, err := l.Next(t.Context(), 30, buf)
	if want := (Chunk{From: 91, N: 10, Skipped: 61}); err != nil || c != want || !bytes.Equal(buf[:10], stream(91, 101)) {
		t.Errorf("after: %+v, %v; want %+v", c, err, want)
	}
	if d.content(t) != nil {
		t.Error("the file is still there")
	}
	if got := openFiles(t, d.path); got != 1 {
		t.Errorf("%d descriptors while a reader is inside, want 1", got)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, stream(0, 100)) {
		t.Errorf("the reader inside got %d bytes, %v", len(got), err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("closing the reader: %v", err)
		}
	}
	if got := openFiles(t, d.path); got != 0 {
		t.Errorf("%d descriptors left", got)
	}
	if _, _, err := l.Reader(); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Reader: %v", err)
	}
}

func TestCloseKeepsTheFileAndTheTail(t *testing.T) {
	d := newDisk(t)
	l := New(d.options(10, 1000, false))
	l.Append(stream(0, 95))
	l.Append(stream(95, 100)) // still in memory only
	r, _, err := l.Reader()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l.Append([]byte("dropped"))
	if want := (Stat{Bytes: 100, RetainedFrom: 90, Truncated: true, HasFile: true, FileBytes: 100, Sealed: true}); l.Stat() != want {
		t.Errorf("%+v, want %+v", l.Stat(), want)
	}
	if !bytes.Equal(d.content(t), stream(0, 100)) {
		t.Error("the file is not the stream")
	}
	if tail, from := l.Tail(); from != 90 || !bytes.Equal(tail, stream(90, 100)) {
		t.Errorf("tail from %d: %d bytes", from, len(tail))
	}
	if c, err := l.Read(0, make([]byte, 100)); err != nil || c != (Chunk{From: 90, N: 10, Skipped: 90}) {
		t.Errorf("read: %+v, %v", c, err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, stream(0, 100)) {
		t.Errorf("the reader inside got %d bytes, %v", len(got), err)
	}
	if err := r.Close(); err != nil || openFiles(t, d.path) != 0 {
		t.Errorf("%v, %d descriptors left", err, openFiles(t, d.path))
	}
	l.Withdraw()
	if d.content(t) != nil || l.Stat().HasFile {
		t.Error("withdrawn after Close, yet the file is there")
	}
}

func TestReaderSeeksAcrossFileAndMemory(t *testing.T) {
	d := newDisk(t)
	l := New(d.options(50, 1000, false))
	defer l.Close()
	l.Append(stream(0, 100))
	l.Append(stream(100, 130)) // the file has 100, memory the rest
	r, size, err := l.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l.Append(stream(130, 200)) // not part of what was asked for
	if size != 130 {
		t.Fatalf("size %d", size)
	}
	for from := range size {
		if _, err := r.Seek(from, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, stream(from, 130)) {
			t.Fatalf("from %d: %d bytes, %v", from, len(got), err)
		}
	}
	if end, err := r.Seek(0, io.SeekEnd); end != 130 || err != nil {
		t.Errorf("end %d, %v", end, err)
	}
}
