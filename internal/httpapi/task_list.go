package httpapi

import (
	"net/http"

	"bashd/internal/exec"
)

type taskList struct {
	Tasks []taskBody `json:"tasks"`
	Next  string     `json:"next,omitempty"`
}

// listTasks is GET /v1/tasks.
func (s *Server) listTasks(r *http.Request) (reply, error) {
	tasks, next, err := s.list(r, exec.Background)
	if err != nil {
		return nil, err
	}
	list := taskList{Tasks: make([]taskBody, len(tasks)), Next: next}
	for i, task := range tasks {
		list.Tasks[i] = encodeListedTask(task)
	}
	return asJSON(http.StatusOK, list), nil
}
