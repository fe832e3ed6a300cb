package output

import (
	"errors"
	"io"
	"sync"
)

// ErrIncomplete says that the stream cannot be had from its first byte: it is
// longer than memory, and its file was withdrawn or closed.
var ErrIncomplete = errors.New("the complete output is no longer available")

// Reader returns the raw stream from its first byte to its end as of the call,
// and that size. It is independent of what happens to the log afterwards, and
// holds the file open until it is closed. Close is idempotent and required; a
// Reader is for one goroutine. Errors: ErrIncomplete.
func (l *Log) Reader() (io.ReadSeekCloser, int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := &snapshot{}
	switch {
	case l.file != nil:
		s.file, s.from = l.file.acquire(), l.flushed
	case l.mem.start() > 0:
		return nil, 0, ErrIncomplete
	}
	s.tail = make([]byte, l.mem.end-s.from)
	l.mem.read(s.tail, s.from)
	return &download{SectionReader: io.NewSectionReader(s, 0, l.mem.end), close: sync.OnceValue(s.close)}, l.mem.end, nil
}

// download is a snapshot with a position.
type download struct {
	*io.SectionReader
	close func() error
}

func (d *download) Close() error { return d.close() }

// snapshot is a stream as it was: the file up to offset from, then a copy of what
// the file lacked.
type snapshot struct {
	file *handle // nil where from is 0
	from int64
	tail []byte
}

// ReadAt implements io.ReaderAt. A file that was cut short meanwhile is
// io.ErrUnexpectedEOF, as io.EOF would present half a stream as a whole one.
func (s *snapshot) ReadAt(p []byte, off int64) (n int, err error) {
	if off < s.from {
		part := p[:min(int64(len(p)), s.from-off)]
		n, err = s.file.f.ReadAt(part, off)
		if n < len(part) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
	}
	if at := off + int64(n) - s.from; n < len(p) && at < int64(len(s.tail)) {
		n += copy(p[n:], s.tail[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (s *snapshot) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.release()
}
