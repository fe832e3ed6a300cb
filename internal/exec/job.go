package exec

import (
	"crypto/rand"
	"encoding/base32"
	"io"
	"sync"
	"time"

	"bashd/internal/output"
	"bashd/internal/sandbox"
)

// idEncoding is lower-case RFC 4648 base32 without padding.
var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newID makes an id of 128 random bits, which cannot be guessed.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails; it crashes the program instead
	return "bash-" + idEncoding.EncodeToString(b[:])
}

// StreamName names one of the two output streams.
type StreamName string

// The streams.
const (
	Stdout StreamName = "stdout"
	Stderr StreamName = "stderr"
)

// job is one command from its admission on. Its supervising goroutine owns what
// happens to it; others ask through requestStop and look through snapshot.
type job struct {
	id      string
	seq     int64
	spec    Spec
	stop    chan Cause    // the first cause; later ones are dropped
	hurry   chan struct{} // closed: do not wait for a grace
	hurried sync.Once
	done    chan struct{}           // closed after everything below is final
	path    func(StreamName) string // where a stream's spill file is, if there is one

	proc           *sandbox.Process
	policy         sandbox.Policy
	stdout, stderr *output.Log // nil once settled: the run holds the tails

	mu  sync.Mutex
	run Run // guarded by mu; its streams are filled in by snapshot while it runs
}

func newJob(id string, seq int64, spec Spec, path func(StreamName) string) *job {
	return &job{
		id: id, seq: seq, spec: spec, path: path,
		stop: make(chan Cause, 1), hurry: make(chan struct{}), done: make(chan struct{}),
		run: Run{
			ID: id, Owner: spec.Owner, Spec: spec, Status: StatusRunning, StartedAt: time.Now(),
			Sandbox: SandboxFacts{Mode: spec.Mode}, // the rest is stamped when it settles
		},
	}
}

// requestStop fixes the cause, unless one was fixed before. It never waits.
func (j *job) requestStop(c Cause) {
	select {
	case j.stop <- c:
	default:
	}
}

func (j *job) hurryUp() { j.hurried.Do(func() { close(j.hurry) }) }

// become moves the status on; a move that the life-cycle does not know is refused.
func (j *job) become(s Status) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.run.Status.CanBecome(s) {
		j.run.Status = s
	}
}

// snapshot is the run as it is now, with or without the collected output.
func (j *job) snapshot(withTails bool) Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.run
	if !r.Status.Terminal() {
		r.Duration = time.Since(r.StartedAt)
		r.Stdout = j.peek(j.stdout, Stdout, withTails)
		r.Stderr = j.peek(j.stderr, Stderr, withTails)
	}
	if !withTails {
		r.Stdout.Tail, r.Stderr.Tail = nil, nil
	}
	return r
}

// peek is a stream as it is now.
func (j *job) peek(log *output.Log, name StreamName, withTail bool) Stream {
	if log == nil {
		return Stream{}
	}
	st := log.Stat()
	s := Stream{Truncated: st.Truncated, Bytes: st.Bytes}
	if withTail {
		// The stream may have grown since; what is told must fit the tail.
		var from int64
		s.Tail, from = log.Tail()
		s.Truncated, s.Bytes = from > 0, from+int64(len(s.Tail))
	}
	if s.Truncated && st.HasFile {
		s.SpillPath = j.path(name)
	}
	return s
}

// reader opens the stream of a running job, so far; nil where it is incomplete.
func (j *job) reader(name StreamName) (r io.ReadSeekCloser, size int64, running bool) {
	j.mu.Lock()
	log := j.stdout
	if name == Stderr {
		log = j.stderr
	}
	j.mu.Unlock()
	if log == nil {
		return nil, 0, false
	}
	r, size, err := log.Reader()
	if err != nil {
		return nil, 0, true
	}
	return r, size, true
}

func (r Run) stream(n StreamName) Stream {
	if n == Stdout {
		return r.Stdout
	}
	return r.Stderr
}
