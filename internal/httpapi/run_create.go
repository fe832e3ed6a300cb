package httpapi

import (
	"net/http"

	"bashd/internal/exec"
	"bashd/internal/tool"
)

// createRun is POST /v1/runs: it runs a command to its end, or until it becomes a task. The answer is
// written even where the client seems gone: one that only closed its sending side still learns that
// its run was aborted, or with an idempotency key, how it went.
func (s *Server) createRun(r *http.Request, in exec.Request) (reply, error) {
	format := preferred(r.Header.Values("Accept"), "application/json", "text/plain", "text/event-stream")
	if format == "text/event-stream" {
		return nil, invalid("Accept", "this server does not stream runs; accept application/json or text/plain. Nothing was run")
	}
	ctx, stop := s.watchClient(r)
	defer stop()
	run, replayed, err := s.o.Runner.Run(ctx, stateOf(r).caller, in)
	switch plain := format == "text/plain"; {
	case err != nil:
		return nil, err
	case run.Kind == exec.Background && plain:
		return replay(replayed, located(run, asText(http.StatusAccepted, "started background task "+run.ID))), nil
	case run.Kind == exec.Background:
		return replay(replayed, located(run, s.asTask(http.StatusAccepted, run, yieldedTask))), nil
	case plain:
		return replay(replayed, asText(http.StatusOK, tool.Foreground(run, false))), nil
	}
	return replay(replayed, s.asRun(http.StatusOK, run, wholeRun)), nil
}

func wholeRun(run exec.Run) any { return encodeRun(run) }

type yieldBody struct {
	Task taskBody `json:"task"`
}

func yieldedTask(task exec.Run) any { return yieldBody{encodeTask(task)} }

// asText answers what a model would see: the text as it is, but for a newline at its end, since a
// person's prompt belongs on a line of its own.
func asText(status int, text string) reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeBody(w, status, "text/plain; charset=utf-8", []byte(text+"\n"))
	}
}
