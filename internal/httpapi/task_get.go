package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// getTask is GET /v1/tasks/{id}.
func (s *Server) getTask(r *http.Request) (reply, error) {
	task, err := s.o.Runner.Get(stateOf(r).caller, exec.Background, chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	return s.asTask(http.StatusOK, task, wholeTask), nil
}

// deleteTask is DELETE /v1/tasks/{id}.
func (s *Server) deleteTask(r *http.Request) (reply, error) {
	if err := s.o.Runner.Delete(r.Context(), stateOf(r).caller, chi.URLParam(r, "id")); err != nil {
		return nil, err
	}
	return noContent, nil
}

// taskStream is GET /v1/tasks/{id}/streams/{stream}: the raw bytes of a stream, so far.
func (s *Server) taskStream(r *http.Request) (reply, error) { return s.stream(r, exec.Background) }
