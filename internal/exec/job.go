package exec

import (
	"crypto/rand"
	"encoding/base32"
	"sync"
	"sync/atomic"
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

// job is one command from its admission until it is recorded. Its supervising goroutine owns
// what happens to it; others ask it through requestStop and lift, and look through snapshot.
type job struct {
	id       string
	seq      int64
	spec     Spec
	stop     chan Cause    // the first cause; later ones are dropped
	stopping chan struct{} // closed when the cause is fixed and the status says so
	lifted   chan struct{} // closed when the timeout applies no more
	hurry    chan struct{} // closed: do not wait for a grace
	hurried  sync.Once
	entered  chan struct{}           // closed when the store has been asked to take the admission, or will not be
	entry    *time.Timer             // what asks it, unless it is stopped before; nil: it was asked before the start
	started  chan struct{}           // closed when the command runs, or will not
	done     chan struct{}           // closed after everything below is final
	path     func(StreamName) string // where a stream's file is, if there is one

	inserted       atomic.Bool // the store has its record
	proc           *sandbox.Process
	policy         sandbox.Policy
	stdin          *stdin // nil unless it stays open
	stdout, stderr *output.Log

	telling sync.Mutex // held while listeners hear what has become of it; taken before mu

	mu     sync.Mutex
	run    Run    // guarded by mu; its streams are filled in by snapshot while it runs
	users  int    // guarded by mu; who reads the logs, the job itself among them until it has settled
	closed bool   // guarded by mu; the logs are
	read   cursor // guarded by mu; where the next consuming read begins
	told   bool   // guarded by mu; a caller that consumes was told a terminal state

	settling bool // guarded by mu; its facts are being recorded, and its kind changes no more
}

// cursor is a position in both streams.
type cursor struct{ stdout, stderr int64 }

func newJob(id string, seq int64, kind Kind, spec Spec, path func(StreamName) string) *job {
	return &job{
		id: id, seq: seq, spec: spec, path: path,
		stop: make(chan Cause, 1), stopping: make(chan struct{}), lifted: make(chan struct{}), hurry: make(chan struct{}),
		entered: make(chan struct{}), started: make(chan struct{}), done: make(chan struct{}), users: 1,
		run: Run{
			ID: id, Owner: spec.Owner, Kind: kind, Spec: spec, Status: StatusRunning, StartedAt: time.Now(),
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

// fix makes c the cause and moves the status on, before the first signal is sent. false: it is
// not to be stopped for that reason, as a task has no foreground timeout.
func (j *job) fix(c Cause) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c == CauseTimeout && j.run.Yielded != nil || !j.run.Status.CanBecome(StatusStopping) {
		return false
	}
	j.run.Cause, j.run.Status = c, StatusStopping
	close(j.stopping)
	return true
}

// kind is what the job is now: a run can become a task.
func (j *job) kind() Kind {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run.Kind
}

func (j *job) settled() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run.Status.Terminal()
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
	s := Stream{Truncated: st.Truncated, Bytes: st.Bytes, RetainedFrom: st.RetainedFrom, HasFile: st.HasFile}
	if withTail {
		// The stream may have grown since; what is told must fit the tail.
		var from int64
		s.Tail, from = log.Tail()
		s.Truncated, s.Bytes = from > 0, from+int64(len(s.Tail))
	}
	if s.Truncated && s.HasFile {
		s.SpillPath = j.path(name)
	}
	return s
}

// logs hands out the two streams for as long as release is not called, even when the
// job settles meanwhile. ok is false where they are closed already, or there are none.
func (j *job) logs() (stdout, stderr *output.Log, release func(), ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stdout == nil || j.closed {
		return nil, nil, nil, false
	}
	j.users++
	return j.stdout, j.stderr, sync.OnceFunc(j.leave), true
}

// leave gives up the use of the logs; the last one closes them. The files stay.
func (j *job) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.users--; j.users > 0 || j.closed || j.stdout == nil {
		return
	}
	j.closed = true
	// The streams are sealed and their files checked; closing a descriptor tells no more.
	_ = j.stdout.Close()
	_ = j.stderr.Close()
}

func (r Run) stream(n StreamName) Stream {
	if n == Stdout {
		return r.Stdout
	}
	return r.Stderr
}
