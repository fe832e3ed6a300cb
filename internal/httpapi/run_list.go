package httpapi

import (
	"net/http"
	"slices"
	"strconv"

	"bashd/internal/exec"
)

const (
	defaultListLimit = 50
	maxListLimit     = 200
)

type runList struct {
	Runs []runBody `json:"runs"`
	Next string    `json:"next,omitempty"`
}

// listRuns is GET /v1/runs.
func (s *Server) listRuns(r *http.Request) (reply, error) {
	caller := stateOf(r).caller
	options, err := s.listOptions(r, caller)
	if err != nil {
		return nil, err
	}
	runs, next, err := s.o.Runner.List(caller, options)
	if err != nil {
		return nil, err
	}
	list := runList{Runs: make([]runBody, len(runs))}
	for i, run := range runs {
		list.Runs[i] = encodeListedRun(run)
	}
	if next > 0 {
		list.Next = s.o.Sealer.Seal(listScope(caller), next)
	}
	return asJSON(http.StatusOK, list), nil
}

// listScope binds a cursor to who got it.
func listScope(c exec.Caller) string { return "runs/" + string(c.Owner) }

func (s *Server) listOptions(r *http.Request, c exec.Caller) (exec.ListOptions, error) {
	o := exec.ListOptions{Limit: defaultListLimit}
	var errs fieldErrors
	known := []exec.Status{exec.StatusRunning, exec.StatusStopping, exec.StatusCompleted, exec.StatusKilled, exec.StatusFailed}
	for _, v := range r.URL.Query()["status"] {
		if !slices.Contains(known, exec.Status(v)) {
			errs.add("status", "must be one of %s, %s, %s, %s, %s", known[0], known[1], known[2], known[3], known[4])
			continue
		}
		o.Statuses = append(o.Statuses, exec.Status(v))
	}
	if v, err := oneQuery(r, "limit"); err != nil {
		return o, err
	} else if v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxListLimit {
			errs.add("limit", "must be an integer from 1 to %d", maxListLimit)
		}
		o.Limit = n
	}
	if v, err := oneQuery(r, "cursor"); err != nil {
		return o, err
	} else if v != "" {
		nums, err := s.o.Sealer.Open(listScope(c), v)
		if err != nil || len(nums) != 1 {
			errs.add("cursor", "is not one that this list gave to this caller")
		} else {
			o.Before = nums[0]
		}
	}
	return o, errs.err()
}
