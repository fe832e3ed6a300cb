package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

// model is what a Log must look like from outside: the plain stream, and whether
// it still may have a file.
type model struct {
	t     testing.TB
	o     Options
	d     *disk
	log   *Log
	all   []byte
	gone  bool // there must be no file any more
	ended bool
}

func newModel(t testing.TB, tail int, spill int64, eager bool) *model {
	d := newDisk(t)
	m := &model{t: t, d: d, o: d.options(tail, spill, eager), gone: spill == 0}
	m.log = New(m.o)
	t.Cleanup(func() { m.log.Close() })
	return m
}

func (m *model) append(n int) {
	m.log.Append(stream(int64(len(m.all)), int64(len(m.all)+n)))
	if !m.ended {
		m.all = append(m.all, stream(int64(len(m.all)), int64(len(m.all)+n))...)
	}
	m.gone = m.gone || int64(len(m.all)) > m.o.SpillBytes
}

func (m *model) seal() {
	m.log.Seal()
	m.ended = true
}

func (m *model) withdraw() {
	m.log.Withdraw()
	m.gone = true
}

// retained is the first offset that must be readable.
func (m *model) retained() int64 {
	if !m.gone {
		return 0
	}
	return max(0, int64(len(m.all)-m.o.TailBytes))
}

// check compares everything but reads.
func (m *model) check() error {
	size := int64(len(m.all))
	st := m.log.Stat()
	want := Stat{
		Bytes: size, RetainedFrom: m.retained(), Truncated: len(m.all) > m.o.TailBytes,
		HasFile: st.HasFile, FileBytes: st.FileBytes, Sealed: m.ended,
	}
	if st != want {
		return fmt.Errorf("Stat is %+v, want %+v", st, want)
	}
	if err := m.checkFile(st); err != nil {
		return err
	}
	tail, from := m.log.Tail()
	if wantFrom := max(0, size-int64(m.o.TailBytes)); from != wantFrom || !bytes.Equal(tail, m.all[wantFrom:]) {
		return fmt.Errorf("Tail from %d, %d bytes; want from %d, %d bytes, or they differ", from, len(tail), wantFrom, size-wantFrom)
	}
	return m.checkReader()
}

func (m *model) checkFile(st Stat) error {
	file := m.d.content(m.t)
	must := !m.gone && len(m.all) > 0 && (m.o.Eager || m.ended && st.Truncated)
	switch {
	case m.gone && (file != nil || st.HasFile || st.FileBytes != 0):
		return fmt.Errorf("a file of %d bytes is left: %+v", len(file), st)
	case must && !st.HasFile:
		return fmt.Errorf("no complete file: %+v", st)
	case st.HasFile && !bytes.Equal(file, m.all):
		return fmt.Errorf("HasFile, but the file of %d bytes is not the stream of %d", len(file), len(m.all))
	case int64(len(file)) != st.FileBytes || !bytes.HasPrefix(m.all, file):
		return fmt.Errorf("the file of %d bytes is no prefix of the stream, or not FileBytes %d long", len(file), st.FileBytes)
	case !m.gone && m.d.spilled.Load() != st.FileBytes:
		return fmt.Errorf("OnSpill heard of %d bytes, the file has %d", m.d.spilled.Load(), st.FileBytes)
	case m.d.created.Load() > 1 || m.d.removed.Load() > m.d.created.Load():
		return fmt.Errorf("Create called %d times, Remove %d", m.d.created.Load(), m.d.removed.Load())
	}
	return nil
}

func (m *model) checkReader() error {
	r, size, err := m.log.Reader()
	if m.retained() > 0 {
		if !errors.Is(err, ErrIncomplete) {
			return fmt.Errorf("Reader of an incomplete stream: %v", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("Reader: %w", err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || size != int64(len(m.all)) || !bytes.Equal(got, m.all) {
		return fmt.Errorf("Reader gave %d bytes of %d (size %d), or other ones: %v", len(got), len(m.all), size, err)
	}
	return nil
}

// read compares one Read with what the model says.
func (m *model) read(from int64, n int) error {
	buf := make([]byte, n)
	c, err := m.log.Read(from, buf)
	size := int64(len(m.all))
	switch {
	case from > size:
		if !errors.Is(err, ErrBeyondEnd) || c != (Chunk{From: size}) {
			return fmt.Errorf("Read(%d) past the end %d: %+v, %v", from, size, c, err)
		}
	case from == size && m.ended:
		if !errors.Is(err, io.EOF) || c != (Chunk{From: size}) {
			return fmt.Errorf("Read(%d) at the end: %+v, %v", from, c, err)
		}
	default:
		begin := max(from, m.retained())
		want := Chunk{From: begin, N: int(min(int64(n), size-begin)), Skipped: begin - from}
		if err != nil || c != want || !bytes.Equal(buf[:c.N], m.all[begin:begin+int64(c.N)]) {
			return fmt.Errorf("Read(%d, %d bytes): %+v, %v; want %+v, or the bytes differ", from, n, c, err, want)
		}
	}
	return nil
}

// run interprets ops, two bytes each, and checks every invariant after each.
func (m *model) run(ops []byte) error {
	for i := 0; i+1 < len(ops); i += 2 {
		arg := int(ops[i+1])
		switch ops[i] % 16 {
		case 0:
			m.seal()
		case 1:
			m.withdraw()
		case 2, 3, 4, 5:
			m.append(arg)
		case 6:
			m.append(arg * 37)
		case 7:
			m.append(1)
		default:
			from := int64(arg) * int64(len(m.all)+2) / 255
			if err := m.read(from, int(ops[i])*5); err != nil {
				return fmt.Errorf("op %d: %w", i/2, err)
			}
			continue
		}
		if err := m.check(); err != nil {
			return fmt.Errorf("op %d (%d, %d): %w", i/2, ops[i]%16, arg, err)
		}
	}
	return nil
}

func TestLogAgainstModel(t *testing.T) {
	sizes := []struct {
		tail  int
		spill int64
	}{{1, 0}, {1, 1}, {1, 5000}, {7, 7}, {7, 8}, {64, 63}, {512, 2000}, {700, 1 << 20}, {64000, 1 << 20}, {4000, 4000}}
	for _, eager := range []bool{false, true} {
		for _, s := range sizes {
			t.Run(fmt.Sprintf("tail=%d,spill=%d,eager=%v", s.tail, s.spill, eager), func(t *testing.T) {
				for seed := range uint64(25) {
					rnd := rand.New(rand.NewPCG(seed, 0))
					ops := make([]byte, 2*(10+rnd.IntN(60)))
					for i := range ops {
						ops[i] = byte(rnd.Uint32())
						if i%2 == 0 && ops[i]%16 < 2 && rnd.IntN(8) > 0 {
							ops[i] += 2 // sealing and withdrawing are rare, else nothing follows them
						}
					}
					if err := newModel(t, s.tail, s.spill, eager).run(ops); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
			})
		}
	}
}

func FuzzLogOps(f *testing.F) {
	f.Add(uint16(1), uint16(1), false, []byte{2, 1, 2, 1, 8, 0, 0, 0})
	f.Add(uint16(100), uint16(1000), true, []byte{6, 20, 9, 100, 6, 20, 1, 0, 9, 3, 0, 0, 15, 255})
	f.Add(uint16(64), uint16(0), false, []byte{2, 63, 7, 0, 7, 0, 10, 0})
	f.Add(uint16(600), uint16(60000), false, []byte{2, 255, 3, 255, 4, 255, 14, 128, 0, 0, 2, 5})
	f.Fuzz(func(t *testing.T, tail, spill uint16, eager bool, ops []byte) {
		if len(ops) > 400 {
			t.Skip("long inputs find nothing that short ones do not")
		}
		if err := newModel(t, max(int(tail), 1), int64(spill), eager).run(ops); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOpenServesAStreamAtRest(t *testing.T) {
	for _, size := range []int64{0, 1, 99, 100, 101, 5000} {
		m := newModel(t, 100, 1<<20, true)
		m.append(int(size))
		m.seal()
		m.log.Close()
		f, err := os.OpenFile(m.d.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		log, err := Open(f, m.o)
		if err != nil {
			t.Fatal(err)
		}
		m.log = log
		for from := range size + 2 {
			if err := m.read(from, 150); err != nil {
				t.Fatalf("size %d: %v", size, err)
			}
		}
		if err := m.check(); err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		m.append(10) // dropped
		if err := m.check(); err != nil {
			t.Fatalf("size %d, after Append: %v", size, err)
		}
		m.withdraw()
		if got := m.d.content(t); got != nil {
			t.Fatalf("size %d: withdrawn, yet the file is there", size)
		}
		if err := m.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{TailBytes: 1}); err == nil {
		t.Fatal("a directory was opened")
	}
	if err := dir.Close(); err != nil {
		t.Fatalf("a failed Open must leave the file to its caller: %v", err)
	}
}
