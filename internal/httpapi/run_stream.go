package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// runStream is GET /v1/runs/{id}/streams/{stream}: the raw bytes of a stream.
func (s *Server) runStream(r *http.Request) (reply, error) { return s.stream(r, exec.Foreground) }

func (s *Server) stream(r *http.Request, k exec.Kind) (reply, error) {
	id, stream := chi.URLParam(r, "id"), chi.URLParam(r, "stream")
	if stream != "stdout" && stream != "stderr" {
		return nil, &exec.Error{Code: exec.CodeNotFound, Message: "there are the streams stdout and stderr"}
	}
	content, size, modified, err := s.o.Runner.OpenStream(stateOf(r).caller, k, id, exec.StreamName(stream))
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) {
		defer content.Close()
		s.serveStream(w, r, streamContent{stream, content, size, modified})
	}, nil
}

type streamContent struct {
	name     string
	content  io.ReadSeeker
	size     int64
	modified time.Time
}

// serveStream leaves ranges and conditions to net/http, but for its answer to
// a range outside the stream.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, c streamContent) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+c.name+`"`)
	bytesOnly(r.Header)
	rw := &rangeWriter{ResponseWriter: w}
	http.ServeContent(rw, r, c.name, c.modified, c.content)
	if !rw.refused {
		return
	}
	h.Del("Content-Disposition")
	setCommonHeaders(h, r) // net/http took some of them away
	h.Set("Content-Range", fmt.Sprintf("bytes */%d", c.size))
	s.problem(w, r, &exec.Error{Code: codeRangeNotSatisfiable, Message: fmt.Sprintf("the stream has %d bytes; the range asked for is none of them, or malformed", c.size)})
}

// manyDigits is a number that net/http does not read, beyond the end of every stream.
var manyDigits = regexp.MustCompile(`[0-9]{19,}`)

// bytesOnly leaves of a Range header what net/http understands, which answers 416 to the rest: a unit that is
// not known is to be ignored (RFC 9110, 14.2), and a position far beyond the end is one like any other.
func bytesOnly(h http.Header) {
	spec := h.Get("Range")
	if !strings.HasPrefix(spec, "bytes=") {
		h.Del("Range")
		return
	}
	if spec == "bytes=-0" { // the last no bytes: net/http would send them
		spec = "bytes=999999999999999999-"
	}
	h.Set("Range", manyDigits.ReplaceAllString(spec, "999999999999999999"))
}

// rangeWriter keeps back the 416 of http.ServeContent, which is plain text.
type rangeWriter struct {
	http.ResponseWriter
	refused bool
}

func (w *rangeWriter) WriteHeader(status int) {
	if status == http.StatusRequestedRangeNotSatisfiable {
		w.refused = true
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
