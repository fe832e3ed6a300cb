package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// getRun is GET /v1/runs/{id}.
func (s *Server) getRun(r *http.Request) (reply, error) {
	run, err := s.o.Runner.Get(stateOf(r).caller, exec.Foreground, chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	return s.asRun(http.StatusOK, run, wholeRun), nil
}
