package exec

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/output"
)

// pumps move a command's bytes: its streams into their logs, the given stdin into
// it.
type pumps struct {
	readers []*pump
	stdin   *os.File
	readWG  sync.WaitGroup
	writeWG sync.WaitGroup
	cut     bool // after drain: a stream did not end
}

// pump reads one stream. While bash runs it has no deadline.
type pump struct {
	file  *os.File
	raw   syscall.RawConn // of file
	log   *output.Log
	count func(n int)
	mu    sync.Mutex
	last  time.Time // guarded by mu; zero while bash runs, else when reading must end
	cut   bool      // after the reader has returned
}

func (m *Manager) startPumps(j *job) *pumps {
	p := &pumps{stdin: j.proc.Stdin}
	p.add(j.proc.Stdout, j.stdout, m.set.Metrics.OutputBytes, Stdout)
	if j.proc.Stderr != nil {
		p.add(j.proc.Stderr, j.stderr, m.set.Metrics.OutputBytes, Stderr)
	}
	if p.stdin != nil {
		p.writeWG.Go(func() {
			// A command that reads nothing of it, or not all, is no error.
			_, _ = p.stdin.Write(j.spec.Stdin)
			if j.stdin != nil {
				j.stdin.done() // for WriteStdin
				return
			}
			p.stdin.Close()
		})
	}
	return p
}

func (p *pumps) add(f *os.File, log *output.Log, count func(string, int), name StreamName) {
	raw, err := f.SyscallConn()
	if err != nil {
		return // only a closed file has none
	}
	r := &pump{file: f, raw: raw, log: log, count: func(n int) { count(string(name), n) }}
	p.readers = append(p.readers, r)
	p.readWG.Go(r.read)
}

// readBuffer is the size of one read: what a pipe holds.
const readBuffer = 64 << 10

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// read appends to the log until the stream ends or its deadline passes with nothing
// to read.
func (r *pump) read() {
	for {
		var n int
		var err error
		waited := r.raw.Read(func(fd uintptr) (done bool) {
			n, err = r.take(fd)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case errors.Is(waited, os.ErrDeadlineExceeded):
			if !r.lastLook() {
				return
			}
		case waited != nil || n == 0:
			return
		default:
			r.extend()
		}
	}
}

// take appends what is there, without waiting; nothing and no error is the end. It holds a buffer no longer than
// that: most streams are silent most of the time.
func (r *pump) take(fd uintptr) (n int, err error) {
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	for {
		n, err = unix.Read(int(fd), buf[:])
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if n <= 0 {
		return 0, err
	}
	r.log.Append(buf[:n])
	r.count(n)
	return n, nil
}

// lastLook is for a deadline that has passed: it also passes while this
// goroutine waits for a processor, with bytes in the pipe that were written in time. true: read on.
func (r *pump) lastLook() bool {
	n, ended := r.takeReady()
	if n > 0 && !ended && r.extend() {
		return true
	}
	if n > 0 && !ended {
		// The bound has passed, and what a full pipe holds was taken. Whether that was
		// all shows at a second look; a writer that goes on is cut off.
		_, ended = r.takeReady()
	}
	r.cut = !ended
	return false
}

// takeReady is take whatever the deadline.
func (r *pump) takeReady() (n int, ended bool) {
	var err error
	if r.raw.Control(func(fd uintptr) { n, err = r.take(fd) }) != nil {
		return 0, true
	}
	return n, n == 0 && err == nil
}

// extend grants another idle time, within the bound; false: the bound has passed.
func (r *pump) extend() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		return true
	}
	now := time.Now()
	if !now.Before(r.last) {
		return false
	}
	next := now.Add(drainIdle)
	if next.After(r.last) {
		next = r.last
	}
	_ = r.file.SetReadDeadline(next)
	return true
}

// drain waits for the streams to end, or for drainIdle without a byte, or for drainMax in all.
func (p *pumps) drain() {
	for _, r := range p.readers {
		r.mu.Lock()
		r.last = time.Now().Add(drainMax)
		r.mu.Unlock()
		r.extend()
	}
	p.readWG.Wait()
	for _, r := range p.readers {
		p.cut = p.cut || r.cut
	}
}

// finish closes what is open. Nothing of the command is left to use it.
func (p *pumps) finish() {
	if p.stdin != nil {
		p.stdin.Close() // ends a writer that still waits
	}
	p.writeWG.Wait()
	for _, r := range p.readers {
		r.file.Close()
	}
}
