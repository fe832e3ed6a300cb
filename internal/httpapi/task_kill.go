package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

type taskKillBody struct {
	Outcome exec.KillOutcome `json:"outcome"`
	Task    taskBody         `json:"task"`
}

// killTask is POST /v1/tasks/{id}/kill.
func (s *Server) killTask(r *http.Request, in killRequest) (reply, error) {
	outcome, task, err := s.o.Runner.Kill(r.Context(), stateOf(r).caller, exec.Background, chi.URLParam(r, "id"), in.reason)
	if err != nil {
		return nil, err
	}
	return s.asTask(http.StatusAccepted, task, func(task exec.Run) any { return taskKillBody{outcome, encodeTask(task)} }), nil
}
