package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

const maxReasonBytes = 1024

type killRequest struct{ reason string }

type killBody struct {
	Outcome exec.KillOutcome `json:"outcome"`
	Run     runBody          `json:"run"`
}

// decodeKill decodes the body of a kill, which may be absent.
func decodeKill(body []byte) (in killRequest, err error) {
	if len(body) == 0 {
		return in, nil
	}
	var errs fieldErrors
	if err := decodeObject(body, map[string]decoder{"reason": stringValue(&in.reason)}, &errs); err != nil {
		return in, err
	}
	if len(in.reason) > maxReasonBytes {
		errs.add("reason", "is %d bytes long; at most %d are allowed", len(in.reason), maxReasonBytes)
	}
	return in, errs.err()
}

// killRun is POST /v1/runs/{id}/kill.
func (s *Server) killRun(r *http.Request, in killRequest) (reply, error) {
	outcome, run, err := s.o.Runner.Kill(r.Context(), stateOf(r).caller, exec.Foreground, chi.URLParam(r, "id"), in.reason)
	if err != nil {
		return nil, err
	}
	return s.asRun(http.StatusAccepted, run, func(run exec.Run) any { return killBody{outcome, encodeRun(run)} }), nil
}
