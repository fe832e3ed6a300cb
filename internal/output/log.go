package output

import (
	"fmt"
	"os"
	"sync"
)

// Options of a Log.
type Options struct {
	// TailBytes is how many of the last bytes stay in memory, at least 1. Memory
	// is taken as bytes arrive, never more than this.
	TailBytes int
	// SpillBytes is the longest stream that a file is kept for; 0: no file.
	SpillBytes int64
	// Create makes the file that spilled bytes go to: 0600, O_EXCL|O_NOFOLLOW,
	// O_RDWR, without O_APPEND. It is called at most once, by the goroutine that
	// appends. The log owns the descriptor; when Create fails it must leave
	// nothing behind. nil: no file.
	Create func() (*os.File, error)
	// Remove unlinks what Create made. It is called at most once, when the file is
	// withdrawn, from whichever goroutine withdraws it. What to do when unlinking
	// fails is its own business. nil: nothing to unlink.
	Remove func() error
	// OnWithdraw hears, once, that there will be no complete file: before one that was made is
	// unlinked, or when none can be made. Called like Remove. nil: nobody listens.
	OnWithdraw func()
	// Eager: each Append is in the file before a reader hears of it. Otherwise the
	// file starts when the stream first exceeds TailBytes, and may be up to
	// TailBytes behind until Seal.
	Eager bool
	// OnSpill hears how many bytes each successful write put into the file. It is
	// called by the goroutine that appends or seals and must not block. nil: nobody listens.
	OnSpill func(n int)
}

// Log is one output stream of one command. One goroutine calls Append; every
// other method may be called from any goroutine at any time.
type Log struct {
	o Options

	// wmu is held over Append and Seal, file writes included. No reader takes it,
	// so the writer never waits for one.
	wmu sync.Mutex

	// mu is never held over I/O. mem, flushed and sealed change only while wmu is
	// held too, so the holder of wmu reads them without mu.
	mu      sync.RWMutex
	mem     ring
	flushed int64 // the file holds [0, flushed), and flushed ≥ mem.start()
	sealed  bool
	spill   spillState
	file    *handle       // set exactly while spill is spillOpen
	wake    chan struct{} // made by the first reader that waits, closed by the next event
}

// New returns an empty Log. It allocates nothing for the stream and makes no
// file until the first byte. A TailBytes below 1 counts as 1.
func New(o Options) *Log {
	o.TailBytes = max(o.TailBytes, 1)
	l := &Log{o: o, mem: ring{limit: o.TailBytes}}
	if o.Create == nil || o.SpillBytes <= 0 {
		l.spill = spillGone
	}
	return l
}

// Open returns the sealed Log of a stream at rest, such as one that an earlier
// process left: f holds it completely. Of o it uses TailBytes and Remove. The
// log owns f from then on, except when Open fails.
func Open(f *os.File, o Options) (*Log, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening output: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("opening output: %s is not a regular file", info.Name())
	}
	l := New(o)
	size := info.Size()
	l.mem.buf, l.mem.end = make([]byte, min(size, int64(l.o.TailBytes))), size
	start := l.mem.start()
	a, b := l.mem.span(start, size)
	for _, part := range [][]byte{a, b} {
		if _, err := f.ReadAt(part, start); err != nil {
			return nil, fmt.Errorf("opening output: %w", err)
		}
		start += int64(len(part))
	}
	l.flushed, l.sealed = size, true
	l.spill, l.file = spillOpen, newHandle(f)
	return l, nil
}

// AtRest returns the sealed Log of a stream of size bytes of which no file exists and only tail, its last bytes,
// is left. What was before is a gap. It holds no file; tail is not retained.
func AtRest(tail []byte, size int64) *Log {
	l := New(Options{TailBytes: len(tail)})
	l.mem.buf, l.mem.end = make([]byte, len(tail)), size-int64(len(tail))
	l.mem.put(tail)
	l.sealed = true
	return l
}

// Append adds p to the stream. It never fails: a file that cannot be written is
// withdrawn. It never waits for a reader either, but for one that is just copying
// bytes out of memory. Bytes after Seal are dropped. p is not retained.
func (l *Log) Append(p []byte) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.sealed || len(p) == 0 {
		return
	}
	flushed := l.save(p)
	l.publish(p, flushed, false)
}

// Seal ends the stream: no more bytes will come. It brings the file up to date,
// or withdraws it where that fails. Idempotent.
//
// It does not wait for the disk: a file outlives this process without that, and
// after a loss of power a reader is told of a gap.
func (l *Log) Seal() {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.sealed {
		return
	}
	flushed := l.finish()
	l.publish(nil, flushed, true)
}

// publish makes p readable and wakes whoever waits. The caller holds wmu and has
// written to the file what belongs there.
func (l *Log) publish(p []byte, flushed int64, sealed bool) {
	buf := l.mem.grown(len(p)) // outside mu: readers need not wait for an allocation
	l.mu.Lock()
	l.mem.buf = buf
	l.mem.put(p)
	l.flushed, l.sealed = flushed, sealed
	wake := l.wake
	l.wake = nil
	l.mu.Unlock()
	if wake != nil {
		close(wake)
	}
}

// Close seals the log and releases its file, which is neither removed nor
// withdrawn; the descriptor is closed once no reader is inside. What memory holds
// stays readable; bytes before that are a gap from then on, so close when nobody
// is meant to follow any more. Idempotent. The error is that of closing the
// descriptor, which tells nothing about the stream: Seal has checked the file.
func (l *Log) Close() error {
	l.Seal()
	l.mu.Lock()
	h := l.file
	if h != nil {
		l.file, l.spill = nil, spillAtRest
	}
	l.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.release()
}

// Stat describes a Log at one moment.
type Stat struct {
	// Bytes is the length of the whole stream so far.
	Bytes int64
	// RetainedFrom is the first offset that a read can still deliver: 0 while the
	// file is there or memory holds everything, else where memory starts.
	RetainedFrom int64
	// Truncated: the stream is longer than TailBytes, so the tail is not all of it.
	Truncated bool
	// HasFile: a file holds all Bytes. Its path is worth telling when Truncated is
	// set too. Of a running log that is not eager it comes and goes, as the file is
	// written in batches; after Seal it can only turn false.
	HasFile bool
	// FileBytes is the length of the file, 0 without one.
	FileBytes int64
	// Sealed: no more bytes will come.
	Sealed bool
}

// Stat returns the state of the log.
func (l *Log) Stat() Stat {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := Stat{
		Bytes:     l.mem.end,
		Truncated: l.mem.end > int64(l.o.TailBytes),
		Sealed:    l.sealed,
	}
	if l.spill == spillOpen || l.spill == spillAtRest {
		s.FileBytes, s.HasFile = l.flushed, l.flushed == l.mem.end
	}
	if l.spill != spillOpen {
		s.RetainedFrom = l.mem.start()
	}
	return s
}

// Tail returns a copy of the last bytes, at most TailBytes, and the whole-stream
// offset of the first of them.
func (l *Log) Tail() (data []byte, from int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	from = l.mem.start()
	data = make([]byte, l.mem.end-from)
	l.mem.read(data, from)
	return data, from
}
