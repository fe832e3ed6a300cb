package httpapi

import (
	"math"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"bashd/internal/exec"
)

// How long one request waits for a task (milliseconds).
const (
	defaultWaitMs = 30_000
	maxWaitMs     = int64(exec.MaxWait / time.Millisecond)
)

// waitTask is GET /v1/tasks/{id}/wait: the task when it settles, or as it is at the timeout, which is
// cut to maxWaitMs.
func (s *Server) waitTask(r *http.Request) (reply, error) {
	var errs fieldErrors
	timeout := min(intQuery(r, "timeoutMs", 1, math.MaxInt64, defaultWaitMs, &errs), maxWaitMs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	ctx, stop := s.watchClient(r)
	defer stop()
	task, err := s.o.Runner.Wait(ctx, stateOf(r).caller, chi.URLParam(r, "id"), time.Duration(timeout)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return s.asTask(http.StatusOK, task, wholeTask), nil
}
