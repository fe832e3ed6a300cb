package output

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// spillState is what became of the file. It only ever moves down this list.
type spillState int

const (
	spillPending spillState = iota // not made yet
	spillOpen                      // complete up to flushed, and readable
	spillAtRest                    // complete and on disk, but no longer open here
	spillGone                      // withdrawn, or never to be
)

// handle is a file shared by the log and the readers inside it. It closes with
// the last reference, so nobody reads from a descriptor that was closed, or worse, reused.
type handle struct {
	f    *os.File
	refs atomic.Int32
}

// newHandle returns a handle with one reference: the log's.
func newHandle(f *os.File) *handle {
	h := &handle{f: f}
	h.refs.Store(1)
	return h
}

// acquire adds a reference. The caller must hold one, or the lock under which
// the log holds its own.
func (h *handle) acquire() *handle {
	h.refs.Add(1)
	return h
}

// release gives a reference back. The last one closes the file.
func (h *handle) release() error {
	if h.refs.Add(-1) > 0 {
		return nil
	}
	return h.f.Close()
}

// settle reports a write that the file system accepted and could not keep. NFS
// and FUSE tell that when a descriptor is closed, and closing any duplicate does;
// the descriptor itself stays, as readers use it.
func (h *handle) settle() error {
	conn, err := h.f.SyscallConn()
	if err != nil {
		return err
	}
	var closed error
	if err := conn.Control(func(fd uintptr) {
		var dup int
		if dup, closed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); closed == nil {
			closed = unix.Close(dup)
		}
	}); err != nil {
		return err
	}
	return closed
}

// save puts into the file what belongs there before p is published, and returns
// how far the file reaches then. The caller holds wmu.
func (l *Log) save(p []byte) int64 {
	end := l.mem.end + int64(len(p))
	switch {
	case end > l.o.SpillBytes:
		l.giveUp()
	case l.o.Eager || end-l.flushed > int64(l.o.TailBytes):
		if h := l.writable(); h != nil {
			defer h.release()
			return l.write(h, p)
		}
	}
	return l.flushed
}

// giveUp withdraws the file of a stream that has become too long for one. The
// caller holds wmu.
func (l *Log) giveUp() {
	l.mu.RLock()
	gone := l.spill == spillGone // as for most of a long stream: readers keep running
	l.mu.RUnlock()
	if !gone {
		l.Withdraw()
	}
}

// write appends to the file what it lacks and then p, and returns how far it
// reaches then. Where that fails the file, now incomplete, is withdrawn. The
// caller holds wmu and a reference to h.
func (l *Log) write(h *handle, p []byte) int64 {
	at := l.flushed
	a, b := l.mem.span(l.flushed, l.mem.end)
	for _, part := range [...][]byte{a, b, p} {
		if len(part) == 0 {
			continue
		}
		if _, err := h.f.WriteAt(part, at); err != nil {
			l.Withdraw()
			return l.flushed
		}
		at += int64(len(part))
		if l.o.OnSpill != nil {
			l.o.OnSpill(len(part))
		}
	}
	return at
}

// finish brings an existing file up to date at the end of the stream, and
// returns how far it reaches then. The caller holds wmu.
func (l *Log) finish() int64 {
	h, _ := l.hold()
	if h == nil {
		return l.flushed
	}
	defer h.release()
	flushed := l.write(h, nil)
	if h.settle() != nil {
		l.Withdraw()
	}
	return flushed
}

// hold returns the open file with a reference for the caller, or nil, and
// whether it could still be made.
func (l *Log) hold() (h *handle, pending bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.file != nil {
		h = l.file.acquire()
	}
	return h, l.spill == spillPending
}

// writable returns the file with a reference for the caller, made if need be, or
// nil where there is none. The caller holds wmu.
func (l *Log) writable() *handle {
	h, pending := l.hold()
	if !pending {
		return h
	}
	f, err := l.o.Create()
	if err != nil {
		l.Withdraw()
		return nil
	}
	h = newHandle(f)
	l.mu.Lock()
	if l.spill == spillPending {
		l.spill, l.file = spillOpen, h.acquire()
		l.mu.Unlock()
		return h
	}
	l.mu.Unlock()
	// Withdrawn while Create ran: that found nothing to remove, so it falls to us.
	_ = h.release()
	l.remove()
	return nil
}

// Withdraw drops the file for good and unlinks it: after its retention, when the
// stream outgrew it, or when it could not be written or read. Readers inside finish
// what they began; later reads that would need it are told of a gap. Idempotent.
func (l *Log) Withdraw() {
	l.mu.Lock()
	h, was := l.file, l.spill
	l.file, l.spill = nil, spillGone
	l.mu.Unlock()
	made := was == spillOpen || was == spillAtRest
	if was != spillGone && l.o.OnWithdraw != nil {
		l.o.OnWithdraw()
	}
	if made {
		l.remove()
	}
	if h != nil {
		_ = h.release() // nothing depends on what was in it
	}
}

// remove unlinks the file. A failure is the callback's to report: the log has
// already stopped naming the file, and nothing here could mend it.
func (l *Log) remove() {
	if l.o.Remove != nil {
		_ = l.o.Remove()
	}
}
