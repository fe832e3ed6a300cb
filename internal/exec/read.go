package exec

import (
	"context"
	"errors"
	"strings"
	"time"

	"bashd/internal/output"
)

// ReadOptions say what of a task's output to read.
type ReadOptions struct {
	Cursor   string        // where to begin, a Page.Next of this task; empty: at the start
	MaxBytes int           // raw bytes over both streams, 1 to MaxReadBytes; up to 3 more of each where a character would be cut otherwise
	Wait     time.Duration // how long to wait for output or the end, at most MaxWait; 0: not at all
}

// Page is a piece of a task's output.
type Page struct {
	Stdout, Stderr Piece
	Lossy          bool   // bytes before a Piece were not delivered and, but for a consuming read, are gone
	Next           string // the cursor after this page
	More           bool   // another page is ready
	EOF            bool   // the task has settled and there will be no further page
	Task           Run    // without collected output
}

// Piece is a part of one stream: the raw bytes [From, To) and what they are as text. It never ends within a
// character, unless the stream does.
type Piece struct {
	From, To int64
	Data     []byte
	Text     string

	seen int64 // looked at up to here: what is between To and seen is the beginning of a character
}

// Delta is the page as one text: stdout, then stderr under its heading if there is any.
func (p Page) Delta() string {
	if p.Stderr.Text == "" {
		return p.Stdout.Text
	}
	sep := ""
	if p.Stdout.Text != "" && !strings.HasSuffix(p.Stdout.Text, "\n") {
		sep = "\n"
	}
	return p.Stdout.Text + sep + "[stderr]\n" + p.Stderr.Text
}

// Output reads a task's output from a cursor. It changes nothing: the same cursor gives the same bytes, and later
// ones too. Lossy is set for bytes that are gone for good. Errors: CodeNotFound, CodeInvalidArgument for a cursor
// that no read of this task gave.
func (m *Manager) Output(ctx context.Context, c Caller, id string, o ReadOptions) (Page, error) {
	f, err := m.find(c, Background, id)
	if err != nil {
		return Page{}, err
	}
	at, err := m.openCursor(id, o.Cursor)
	if err != nil {
		return Page{}, err
	}
	s := m.open(f)
	defer s.release()
	timer := time.NewTimer(min(o.Wait, MaxWait))
	defer timer.Stop()
	for {
		p := s.page(at, share(max(1, min(o.MaxBytes, MaxReadBytes))))
		p.Next = m.sealCursor(id, p)
		switch {
		case p.Lossy:
			return p, m.unlessDeleted(c, Background, id, nil)
		case p.delivers() || o.Wait == 0 || !s.await(ctx, timer.C, p):
			return p, nil
		}
	}
}

// delivers reports that the page says something that an empty one does not.
func (p Page) delivers() bool {
	return p.EOF || p.Lossy || len(p.Stdout.Data)+len(p.Stderr.Data) > 0
}

// cursorScope binds a cursor to its task.
func cursorScope(id string) string { return "output/" + id }

func (m *Manager) sealCursor(id string, p Page) string {
	return m.set.Sealer.Seal(cursorScope(id), p.Stdout.To, p.Stderr.To)
}

func (m *Manager) openCursor(id, token string) (cursor, error) {
	if token == "" {
		return cursor{}, nil
	}
	nums, err := m.set.Sealer.Open(cursorScope(id), token)
	if err != nil || len(nums) != 2 {
		return cursor{}, invalid("cursor", "is not one that a read of this task gave")
	}
	return cursor{nums[0], nums[1]}, nil
}

// source is a command whose output is being read.
type source struct {
	found
	stdout, stderr *output.Log
	release        func()
}

func (m *Manager) open(f found) source {
	s := source{found: f}
	s.stdout, s.stderr, s.release = m.streams(f)
	return s
}

// span is a part of a stream, [from, to).
type span struct{ from, to int64 }

func (s span) len() int64 { return max(0, s.to-s.from) }

// last is the end of s, at most n bytes.
func (s span) last(n int) span { return span{max(s.from, s.to-int64(n)), s.to} }

// first is the beginning of s, at most n bytes.
func (s span) first(n int64) span { return span{s.from, min(s.to, s.from+n)} }

// share divides n bytes between what there is of both streams: neither can keep the other from being
// read.
func share(n int) func(stdout, stderr span) (span, span) {
	budget := int64(n)
	return func(stdout, stderr span) (span, span) {
		out := min(stdout.len(), max(budget-stderr.len(), (budget+1)/2))
		return stdout.first(out), stderr.first(budget - out)
	}
}

// page reads from at what choose makes of the unread part of each stream.
func (s source) page(at cursor, choose func(stdout, stderr span) (span, span)) Page {
	run := s.snapshot(false) // first: where it is terminal the streams are complete
	unreadErr := unread(s.stderr, at.stderr)
	out, errs := choose(unread(s.stdout, at.stdout), unreadErr)
	a := readPiece(s.stdout, at.stdout, out)
	if len(a.Data) == 0 { // the beginning of a character, which is not to cost stderr its share
		_, errs = choose(span{at.stdout, at.stdout}, unreadErr)
	}
	b := readPiece(s.stderr, at.stderr, errs)
	p := Page{
		Stdout: a.Piece, Stderr: b.Piece, Task: run,
		Lossy: a.lossy || b.lossy, More: a.more || b.more,
		EOF: run.Status.Terminal() && !a.more && !b.more,
	}
	// A file that somebody cut, or that lost its end with the power, is shorter than the record says.
	p.Lossy = p.Lossy || p.EOF && (a.To < run.Stdout.Bytes || b.To < run.Stderr.Bytes)
	// What was read of a running task may be newer than its snapshot.
	p.Task.Stdout.Bytes = max(p.Task.Stdout.Bytes, a.To)
	p.Task.Stderr.Bytes = max(p.Task.Stderr.Bytes, b.To)
	return p
}

func unread(log *output.Log, from int64) span { return span{from, max(from, log.Stat().Bytes)} }

// piece is what was read of one stream.
type piece struct {
	Piece
	lossy bool // bytes between the cursor and From are not there
	more  bool // more than an unfinished character follows
}

// readPiece reads s of a stream that was delivered up to at.
func readPiece(log *output.Log, at int64, s span) piece {
	data, from, final, more := readSpan(log, s)
	seen := from + int64(len(data))
	lossy := from != at
	if lossy {
		n := output.TrimTail(data)
		data, from = data[n:], from+int64(n)
	}
	text, used := output.AppendText(nil, data, final)
	// A page may be smaller than a character; without it there would be no progress.
	for more && used == 0 && len(data) > 0 {
		s.to++
		data, from, final, more = readSpan(log, span{from, s.to})
		seen = from + int64(len(data))
		text, used = output.AppendText(nil, data, final)
	}
	return piece{
		Piece: Piece{From: from, To: from + int64(used), Data: data[:used], Text: string(text), seen: seen},
		lossy: lossy, more: more,
	}
}

// readSpan reads what there is of s. from is where data begins; final says that the
// stream ends with data, more that it goes on behind it.
func readSpan(log *output.Log, s span) (data []byte, from int64, final, more bool) {
	buf := make([]byte, s.len())
	c, err := log.Read(s.from, buf)
	if errors.Is(err, output.ErrBeyondEnd) {
		return nil, c.From, true, false // the end came to lie before the cursor: power was lost
	}
	st := log.Stat()
	end := c.From + int64(c.N)
	return buf[:c.N], c.From, st.Sealed && end == st.Bytes, end < st.Bytes
}

// await waits until there is more than p to tell. false: the time is up, or ctx has ended.
func (s source) await(ctx context.Context, timeout <-chan time.Time, p Page) bool {
	if s.job == nil {
		return true
	}
	outReady, out := news(s.stdout, p.Stdout)
	errReady, errs := news(s.stderr, p.Stderr)
	if outReady || errReady {
		return true
	}
	select {
	case <-out:
	case <-errs:
	case <-s.job.done:
	case <-timeout:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// news tells whether the stream has something after p, else what to wait for: the beginning of a character, which was
// seen, is nothing new. nil: the stream has ended.
func news(log *output.Log, p Piece) (ready bool, wake <-chan struct{}) {
	if st := log.Stat(); st.Sealed {
		return p.To < st.Bytes, nil
	}
	wake = log.Wait(p.seen)
	return wake == nil, wake
}
