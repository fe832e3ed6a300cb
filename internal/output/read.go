package output

import (
	"context"
	"errors"
	"io"
)

// ErrBeyondEnd says that the offset lies past the end of the stream, which a
// reader that took its offset from this log never sees. It happens when an
// offset outlives the bytes, after a loss of power; the caller reports a gap and
// goes on from Chunk.From.
var ErrBeyondEnd = errors.New("offset beyond the end of the output")

// copyBytes bounds what is copied from memory under one hold of the lock, and so
// how long the writer can be kept from it: a few microseconds.
const copyBytes = 64 << 10

// Chunk says what a read delivered: buf[:N] are the stream's bytes from offset
// From. The next offset to ask for is From + N.
type Chunk struct {
	From int64
	N    int
	// Skipped is how many bytes between the asked offset and From are gone for
	// good: a gap. From is the asked offset plus Skipped.
	Skipped int64
}

// Read fills buf with the stream from offset from, as far as there are bytes,
// without waiting for more; a negative offset counts as 0. A gap is told before
// the bytes that follow it and never lies within a Chunk.
//
// At the end of a running log the Chunk is empty and the error nil; at the end
// of a sealed one it is io.EOF. Past the end it is ErrBeyondEnd, and Chunk.From the end
// of the stream. There are no other errors: a file that cannot be read is
// withdrawn, and what only it held is a gap.
func (l *Log) Read(from int64, buf []byte) (Chunk, error) {
	from = max(from, 0)
	at, n, err := l.readOnce(from, buf)
	if err != nil {
		return Chunk{From: at}, err
	}
	c := Chunk{From: at, N: n, Skipped: at - from}
	for n > 0 && c.N < len(buf) {
		next := c.From + int64(c.N)
		at, n, err = l.readOnce(next, buf[c.N:])
		if err != nil || at != next {
			break // the end, or a gap: for the next call to tell
		}
		c.N += n
	}
	return c, nil
}

// readOnce delivers one piece, from the file or from memory, and the offset at
// which it begins: from, or after a gap where memory starts.
func (l *Log) readOnce(from int64, buf []byte) (at int64, n int, err error) {
	l.mu.RLock()
	if from < l.mem.start() && l.file != nil {
		h, have := l.file.acquire(), l.flushed-from
		l.mu.RUnlock()
		return l.readFile(h, from, buf[:min(int64(len(buf)), have)])
	}
	defer l.mu.RUnlock()
	switch {
	case from > l.mem.end:
		return l.mem.end, 0, ErrBeyondEnd
	case from == l.mem.end && l.sealed:
		return from, 0, io.EOF
	}
	at = max(from, l.mem.start())
	return at, l.mem.read(buf[:min(len(buf), copyBytes)], at), nil
}

// readFile is readOnce of bytes that the file has and memory has not. It holds
// no lock: the reference to h keeps the bytes readable whatever happens to the
// file meanwhile.
func (l *Log) readFile(h *handle, from int64, buf []byte) (int64, int, error) {
	n, _ := h.f.ReadAt(buf, from)
	_ = h.release()
	if n == len(buf) {
		return from, n, nil
	}
	// Somebody cut the file, or the disk failed: it is not the stream any more.
	l.Withdraw()
	return l.readOnce(from, buf)
}

// Next is Read that waits until there is something to deliver at from: bytes, a
// gap or the end. It returns the error of ctx when that ends first; a context that has
// ended wins over waiting bytes, so that whoever follows a flood can be stopped.
// With an empty buf it only waits.
func (l *Log) Next(ctx context.Context, from int64, buf []byte) (Chunk, error) {
	from = max(from, 0)
	for {
		if err := ctx.Err(); err != nil {
			return Chunk{From: from}, err
		}
		wake := l.Wait(from)
		if wake == nil {
			return l.Read(from, buf)
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// Wait returns a channel that closes when there is something to say at from (bytes, a gap or the end), or
// nil if that is so already. It is for who waits for more than one thing; [Log.Next] is simpler.
//
// All who wait share one channel, which the writer forgets when it closes it: an Append that nobody waits
// for costs no allocation.
func (l *Log) Wait(from int64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from != l.mem.end || l.sealed {
		return nil
	}
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}
