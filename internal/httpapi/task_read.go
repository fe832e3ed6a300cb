package httpapi

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// defaultReadBytes is how many raw bytes a read returns unless asked otherwise.
const defaultReadBytes = 64 << 10

// readTaskOutput is GET /v1/tasks/{id}/output: what follows a cursor. It moves nothing, so that the
// same request may be sent again.
func (s *Server) readTaskOutput(r *http.Request) (reply, error) {
	var errs fieldErrors
	options := exec.ReadOptions{
		Cursor:   oneQuery(r, "cursor", &errs),
		MaxBytes: int(intQuery(r, "maxBytes", 1, exec.MaxReadBytes, defaultReadBytes, &errs)),
		Wait:     time.Duration(intQuery(r, "waitMs", 0, maxWaitMs, 0, &errs)) * time.Millisecond,
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	ctx, stop := s.watchClient(r)
	defer stop()
	page, err := s.o.Runner.Output(ctx, stateOf(r).caller, chi.URLParam(r, "id"), options)
	if err != nil {
		return nil, err
	}
	return s.asPage(page), nil
}

// consumeTaskOutput is POST /v1/tasks/{id}/read: what no such read has delivered yet.
func (s *Server) consumeTaskOutput(r *http.Request, _ struct{}) (reply, error) {
	page, err := s.o.Runner.Consume(r.Context(), stateOf(r).caller, chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	return s.asPage(page), nil
}

// decodeNothing decodes a body without fields, which may be absent.
func decodeNothing(body []byte) (nothing struct{}, err error) {
	if len(body) == 0 {
		return nothing, nil
	}
	var errs fieldErrors
	if err := decodeObject(body, nil, &errs); err != nil {
		return nothing, err
	}
	return nothing, errs.err()
}

// asPage answers a page, in which its text is twice.
func (s *Server) asPage(p exec.Page) reply {
	size := 2 * (len(p.Stdout.Data) + len(p.Stderr.Data))
	return s.asSized(http.StatusOK, size, func() any { return encodePage(p) })
}
