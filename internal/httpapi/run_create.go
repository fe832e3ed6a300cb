package httpapi

import (
	"net/http"

	"bashd/internal/exec"
	"bashd/internal/tool"
)

// createRun is POST /v1/runs: it runs a command to its end. The answer is
// written even where the client seems gone: one that only closed its sending
// side still learns that its run was aborted.
func (s *Server) createRun(r *http.Request, in exec.Request) (reply, error) {
	if len(r.Header.Values("Idempotency-Key")) > 0 {
		return nil, invalid("Idempotency-Key", "is not available on this server; nothing was run")
	}
	format := preferred(r.Header.Values("Accept"), "application/json", "text/plain", "text/event-stream")
	if format == "text/event-stream" {
		return nil, invalid("Accept", "this server does not stream runs; accept application/json or text/plain. Nothing was run")
	}
	ctx, stop := s.watchClient(r)
	defer stop()
	run, err := s.o.Runner.Run(ctx, stateOf(r).caller, in)
	if err != nil {
		return nil, err
	}
	if format == "text/plain" {
		// A model gets the text as it is; a person's prompt belongs on a line of its own.
		return asBytes("text/plain; charset=utf-8", []byte(tool.Foreground(run, false)+"\n")), nil
	}
	return s.asRun(http.StatusOK, run, wholeRun), nil
}

func wholeRun(run exec.Run) any { return encodeRun(run) }
