package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"bashd/internal/exec"
)

// reply writes an answer that nothing can refuse any more.
type reply func(w http.ResponseWriter, r *http.Request)

// endpoint is a handler: it returns an answer, or an error that becomes a problem.
type endpoint func(r *http.Request) (reply, error)

// handle makes a handler of e. query names the query parameters that e reads;
// any other is an error.
func (s *Server) handle(e endpoint, query ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := checkQuery(r, query)
		var answer reply
		if err == nil {
			answer, err = e(r)
		}
		s.finish(w, r, answer, err)
	}
}

// handleBody makes a handler of an endpoint that takes a JSON body. decode is
// also asked about an empty body.
func handleBody[T any](s *Server, decode func([]byte) (T, error), e func(*http.Request, T) (reply, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := checkQuery(r, nil)
		var in T
		if err == nil {
			in, err = readBody(s, w, r, decode)
		}
		var answer reply
		if err == nil {
			answer, err = e(r, in)
		}
		s.finish(w, r, answer, err)
	}
}

func (s *Server) finish(w http.ResponseWriter, r *http.Request, answer reply, err error) {
	if err != nil {
		s.problem(w, r, err)
		return
	}
	answer(w, r)
}

// asJSON answers v. Control characters are escaped, so that no output of a
// command reaches a terminal raw; < and > are not, so that output stays readable.
func asJSON(status int, v any) reply {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, status, "application/json", v) }
}

func asBytes(contentType string, body []byte) reply {
	return func(w http.ResponseWriter, _ *http.Request) { writeBody(w, http.StatusOK, contentType, body) }
}

// writeJSON panics where v cannot be encoded: that is a mistake of ours, and
// nothing was written yet, so the caller gets a 500.
func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	writeBody(w, status, contentType, b.Bytes())
}

// writeBody ignores a failed write: the client is gone, and the connection
// says so by itself.
func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	boundWriting(w, int64(len(body)))
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// boundWriting gives a client the time that a slow one needs for so many bytes, and no
// more: what it does not read is memory of ours. observe lifts the bound for the next request.
func boundWriting(w http.ResponseWriter, size int64) {
	limit := writeTimeout + time.Duration(size/slowestClient)*time.Second
	// Where there is no connection to bound, as in some tests, nothing waits either.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
}

// asRun answers what encode makes of a run.
func (s *Server) asRun(status int, run exec.Run, encode func(exec.Run) any) reply {
	size := len(run.Stdout.Tail) + len(run.Stderr.Tail) + len(run.Spec.Command)
	return s.asSized(status, size, func() any { return encode(run) })
}

// asSized answers what encode makes of size bytes of text. Encoded text takes up to six times its own
// size, so only a few large answers are in memory at once; the others wait with what they hold anyway.
func (s *Server) asSized(status, size int, encode func() any) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		if size > largeAnswer {
			defer s.largeAnswerPlace(r.Context())()
		}
		writeJSON(w, status, "application/json", encode())
	}
}

// largeAnswerPlace takes a place among the large answers; release gives it back. A client that only
// closed its sending side gets its answer where there is a place; nobody is waited for who may be
// gone, and the connection is cut: an empty answer would be taken for a whole one.
func (s *Server) largeAnswerPlace(ctx context.Context) (release func()) {
	release = func() { <-s.largeAnswers }
	select {
	case s.largeAnswers <- struct{}{}:
		return release
	default:
	}
	select {
	case s.largeAnswers <- struct{}{}:
		return release
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// withHeader sets a header field of an answer.
func withHeader(name, value string, answer reply) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		answer(w, r)
	}
}

// noContent answers 204.
func noContent(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

func invalid(field, message string) *exec.Error {
	return &exec.Error{
		Code:    exec.CodeInvalidArgument,
		Message: field + ": " + message,
		Fields:  []exec.FieldError{{Field: field, Message: message}},
	}
}
