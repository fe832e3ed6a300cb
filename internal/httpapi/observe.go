package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// requestState is what is known of a request besides the request. It is
// written by the middleware, in order, and read by what runs below it.
type requestState struct {
	id     string
	caller exec.Caller
}

type stateKey struct{}

func stateOf(r *http.Request) *requestState {
	if st, ok := r.Context().Value(stateKey{}).(*requestState); ok {
		return st
	}
	return &requestState{}
}

func requestIDAttr(ctx context.Context) slog.Attr {
	st, _ := ctx.Value(stateKey{}).(*requestState)
	if st == nil {
		return slog.Attr{}
	}
	return slog.String("requestId", st.id)
}

// observe gives the request its id, and the log and the metrics one entry when
// it is over. It logs the route's pattern and never the path, the query or a
// header: those may hold what a log must not.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		st := &requestState{id: requestID(r)}
		w.Header().Set("X-Request-Id", st.id)
		rec := &recorder{ResponseWriter: w}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the last answer's
		r = r.WithContext(context.WithValue(r.Context(), stateKey{}, st))
		defer func() {
			d := time.Since(start)
			route := routeOf(r)
			s.o.Metrics.HTTPRequest(route, r.Method, rec.status, d)
			attrs := []slog.Attr{
				slog.String("method", methodOf(r)), slog.String("route", route), slog.Int("status", rec.status),
				slog.Duration("duration", d), slog.String("requestId", st.id),
			}
			if owner := st.caller.Owner; owner != "" {
				attrs = append(attrs, slog.String("owner", string(owner[:8])))
			}
			if r.Context().Err() != nil {
				attrs = append(attrs, slog.Bool("clientGone", true))
			}
			s.log.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelInfo, "request", attrs...)
		}()
		next.ServeHTTP(rec, r)
	})
}

// requestID is the caller's, where it is one that a log can hold, else a new one.
func requestID(r *http.Request) string {
	if ids := r.Header.Values("X-Request-Id"); len(ids) == 1 && isRequestID(ids[0]) {
		return ids[0]
	}
	return rand.Text()
}

func isRequestID(s string) bool {
	return len(s) >= 1 && len(s) <= 128 && strings.IndexFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._-", c))
	}) < 0
}

func routeOf(r *http.Request) string {
	if rc := chi.RouteContext(r.Context()); rc != nil && rc.RoutePattern() != "" {
		return rc.RoutePattern()
	}
	return "unmatched"
}

// methodOf keeps a method that a client made up out of the log.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// recorder remembers the status that was sent; 0: none.
type recorder struct {
	http.ResponseWriter
	status int
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// aboutContent are header fields that a handler may have set for an answer that
// was not to be, besides those that a problem sets itself.
var aboutContent = []string{"Accept-Ranges", "Content-Disposition", "Content-Encoding", "Content-Range", "Last-Modified"}

// recoverPanics answers 500 where a handler panicked. Where a part of the
// answer is out already the connection is cut, so that the rest of it is
// never taken for the whole.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			s.log.LogAttrs(r.Context(), slog.LevelError, "panic", requestIDAttr(r.Context()),
				slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			if rec, ok := w.(*recorder); ok && rec.status != 0 {
				panic(http.ErrAbortHandler)
			}
			for _, name := range aboutContent {
				w.Header().Del(name)
			}
			s.problem(w, r, &exec.Error{Code: exec.CodeInternal, Err: errors.New("a handler panicked")})
		}()
		next.ServeHTTP(w, r)
	})
}

// commonHeaders sets what every answer carries, refusals too.
func commonHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setCommonHeaders(w.Header(), r)
		next.ServeHTTP(w, r)
	})
}

func setCommonHeaders(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		h.Set("Cache-Control", "no-store")
		h.Set("Vary", "Accept, Origin")
		return
	}
	h.Set("Vary", "Origin")
}
