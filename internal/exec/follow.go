package exec

import (
	"context"
	"errors"
	"io"
	"unicode/utf8"

	"bashd/internal/output"
)

// FollowOptions say from where and how to follow.
type FollowOptions struct {
	Cursor  string // an Event.Cursor of this command, or a Page.Next; empty: from the first byte
	FromEnd bool   // from what there is now on; Cursor must be empty
	Text    bool   // an output event never ends within a character, unless the stream does, and has Text
}

// EventKind is what an [Event] tells.
type EventKind string

// The kinds. Settled is the last one, after every byte.
const (
	EventOutput   EventKind = "output"
	EventGap      EventKind = "gap"      // bytes that can no longer be delivered
	EventStopping EventKind = "stopping" // at most once, and only where it was not stopping from the beginning
	EventSettled  EventKind = "settled"
)

// Event is what a Follower tells next. Data and Text are the Follower's, until it is asked again.
type Event struct {
	Kind      EventKind
	Stream    StreamName // of output and gap
	From, To  int64      // of output and gap: the raw bytes [From, To) of the whole stream
	Data      []byte     // of output
	Text      []byte     // of output that is followed as text: Data as valid UTF-8
	SpillPath string     // of a gap: where the whole stream is, should it be anywhere
	Cursor    string     // where to go on after this event
	Task      Run        // of stopping and settled; without collected output
}

// MinFollowBytes is the least that Next may be asked for: a character in any case.
const MinFollowBytes = utf8.UTFMax

// Follower tells what one command prints and becomes, each byte once and in order, as fast as it is
// asked: from memory, else from the file. It costs the command nothing. One goroutine at a time may use
// it; Close must be called.
type Follower struct {
	m        *Manager
	id       string
	text     bool
	src      source
	streams  [2]followed // stdout, stderr
	turn     int         // the stream that is looked at first
	stopping <-chan struct{}
	over     bool
	buf, out []byte
}

// followed is one stream with the position of its follower.
type followed struct {
	name StreamName
	log  *output.Log
	at   int64 // delivered up to here
	seen int64 // looked at up to here: what is between at and seen is the beginning of a character
	over bool  // nothing more can be read of it
}

// Follow follows a command of any kind, a running or a settled one. Errors: CodeNotFound,
// CodeInvalidArgument for a cursor that was given for no such command.
func (m *Manager) Follow(c Caller, id string, o FollowOptions) (*Follower, error) {
	found, err := m.find(c, AnyKind, id)
	if err != nil {
		return nil, err
	}
	at, err := m.openCursor(id, o.Cursor)
	if err != nil {
		return nil, err
	}
	f := &Follower{m: m, id: id, text: o.Text, src: m.open(found)}
	f.streams = [2]followed{
		{name: Stdout, log: f.src.stdout, at: at.stdout, seen: at.stdout},
		{name: Stderr, log: f.src.stderr, at: at.stderr, seen: at.stderr},
	}
	if found.job != nil {
		select {
		case <-found.job.stopping:
		default:
			f.stopping = found.job.stopping
		}
	}
	if o.FromEnd {
		for i := range f.streams {
			f.streams[i].skipToEnd()
		}
	}
	return f, nil
}

// skipToEnd goes to the end of the stream, or to the beginning of the character that it ends within.
func (s *followed) skipToEnd() {
	end := s.log.Stat().Bytes
	var last [utf8.UTFMax - 1]byte
	c, err := s.log.Read(max(0, end-int64(len(last))), last[:min(end, int64(len(last)))])
	if err == nil && c.From+int64(c.N) == end {
		_, used := output.AppendText(nil, last[:c.N], false)
		end -= int64(c.N - used)
	}
	s.at, s.seen = end, end
}

// Close lets go of the command. Idempotent.
func (f *Follower) Close() {
	f.over = true
	f.src.release()
}

// Task is the command as it is now, without collected output.
func (f *Follower) Task() Run { return f.src.snapshot(false) }

// Cursor is the position after everything that Next has told.
func (f *Follower) Cursor() string {
	return f.m.set.Sealer.Seal(cursorScope(f.id), f.streams[0].at, f.streams[1].at)
}

// Over reports that Next has told EventSettled, and nothing more will come.
func (f *Follower) Over() bool { return f.over }

// Next returns what there is to tell now, without waiting: of output at most n raw bytes, n being at least
// MinFollowBytes. false: nothing now, or nothing ever again. The streams take turns.
func (f *Follower) Next(n int) (Event, bool) {
	if f.over {
		return Event{}, false
	}
	ended := f.ended() // first: where it has, the streams are complete
	if e, ok := f.stops(ended); ok {
		return e, true
	}
	for range f.streams {
		s := &f.streams[f.turn]
		f.turn = 1 - f.turn
		if e, ok := f.read(s, n); ok {
			e.Stream, e.Cursor = s.name, f.Cursor()
			return e, true
		}
	}
	if !ended {
		return Event{}, false
	}
	return f.settle(), true
}

func (f *Follower) ended() bool {
	if f.src.job == nil {
		return true
	}
	select {
	case <-f.src.job.done:
		return true
	default:
		return false
	}
}

// stops tells, once, that the command is being stopped; of one that has settled that is no news.
func (f *Follower) stops(ended bool) (Event, bool) {
	select {
	case <-f.stopping: // nil where it was told
		f.stopping = nil
		task := f.Task()
		return Event{Kind: EventStopping, Task: task, Cursor: f.Cursor()}, !ended && task.Status == StatusStopping
	default:
		return Event{}, false
	}
}

// read tells what a stream has to tell.
func (f *Follower) read(s *followed, n int) (Event, bool) {
	if s.over || s.log.Wait(s.seen) != nil { // which spares a buffer, most of the time
		return Event{}, false
	}
	if cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	from := s.at
	c, err := s.log.Read(from, f.buf[:n])
	switch {
	case errors.Is(err, output.ErrBeyondEnd):
		// The end came to lie before the cursor: power was lost, and what was delivered is not here any more.
		s.over = true
		return f.gap(s, c.From, from), true
	case errors.Is(err, io.EOF):
		s.over = true
		return Event{}, false
	}
	data := f.buf[:c.N]
	if c.Skipped > 0 {
		to := c.From
		if f.text {
			to += int64(output.TrimTail(data))
		}
		s.at, s.seen = to, to
		return f.gap(s, from, to), true
	}
	end := c.From + int64(c.N)
	s.seen = end
	e := Event{Kind: EventOutput, From: from}
	if f.text {
		st := s.log.Stat()
		var used int
		f.out, used = output.AppendText(f.out[:0], data, st.Sealed && end == st.Bytes)
		data, e.Text = data[:used], f.out
	}
	s.at += int64(len(data))
	e.To, e.Data = s.at, data
	return e, len(data) > 0
}

func (f *Follower) gap(s *followed, from, to int64) Event {
	return Event{Kind: EventGap, Stream: s.name, From: from, To: to, SpillPath: f.Task().stream(s.name).SpillPath}
}

// settle tells the end, after a gap where a stream is shorter than its record says: somebody cut its file, or
// it lost its end with the power.
func (f *Follower) settle() Event {
	task := f.Task()
	for i := range f.streams {
		s := &f.streams[i]
		if from, to := s.at, task.stream(s.name).Bytes; from < to {
			s.at, s.over = to, true
			e := f.gap(s, from, to)
			e.Cursor = f.Cursor()
			return e
		}
	}
	f.over = true
	return Event{Kind: EventSettled, Task: task, Cursor: f.Cursor()}
}

// Await waits until Next has something to tell. Its error is that of ctx, or io.EOF where there will be nothing.
// Nothing but Close, which may then not be called, is safe to call beside it.
func (f *Follower) Await(ctx context.Context) error {
	if f.over {
		return io.EOF
	}
	if f.src.job == nil {
		return ctx.Err()
	}
	var wake [2]<-chan struct{}
	for i, s := range f.streams {
		if s.over {
			continue // nil blocks
		}
		if wake[i] = s.log.Wait(s.seen); wake[i] == nil {
			return ctx.Err()
		}
	}
	select {
	case <-wake[0]:
	case <-wake[1]:
	case <-f.stopping:
	case <-f.src.job.done:
	case <-ctx.Done():
	}
	return ctx.Err()
}
