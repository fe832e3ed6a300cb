package httpapi

import (
	"net/http"

	"bashd/internal/exec"
)

// createTask is POST /v1/tasks: it starts a command that goes on by itself.
func (s *Server) createTask(r *http.Request, in exec.Request) (reply, error) {
	task, replayed, err := s.o.Runner.Start(r.Context(), stateOf(r).caller, in)
	if err != nil {
		return nil, err
	}
	return replay(replayed, located(task, s.asTask(http.StatusCreated, task, wholeTask))), nil
}

// located tells where the task of an answer is from now on.
func located(task exec.Run, answer reply) reply {
	return withHeader("Location", taskPath(task.ID), answer)
}

// asTask answers what encode makes of a task, in which its command is twice.
func (s *Server) asTask(status int, task exec.Run, encode func(exec.Run) any) reply {
	return s.asSized(status, 2*len(task.Spec.Command), func() any { return encode(task) })
}

func wholeTask(task exec.Run) any { return encodeTask(task) }
