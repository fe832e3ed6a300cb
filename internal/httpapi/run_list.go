package httpapi

import (
	"net/http"
	"slices"

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
	runs, next, err := s.list(r, exec.Foreground)
	if err != nil {
		return nil, err
	}
	list := runList{Runs: make([]runBody, len(runs)), Next: next}
	for i, run := range runs {
		list.Runs[i] = encodeListedRun(run)
	}
	return asJSON(http.StatusOK, list), nil
}

// list returns the page of runs or tasks that a query asks for, and the cursor of the next one.
func (s *Server) list(r *http.Request, k exec.Kind) (runs []exec.Run, cursor string, err error) {
	caller := stateOf(r).caller
	options, err := s.listOptions(r, caller, k)
	if err != nil {
		return nil, "", err
	}
	runs, next, err := s.o.Runner.List(caller, options)
	if next > 0 {
		cursor = s.o.Sealer.Seal(listScope(caller, k), next)
	}
	return runs, cursor, err
}

// listScope binds a cursor to the list and to who got it.
func listScope(c exec.Caller, k exec.Kind) string { return "list/" + string(k) + "/" + string(c.Owner) }

func (s *Server) listOptions(r *http.Request, c exec.Caller, k exec.Kind) (exec.ListOptions, error) {
	var errs fieldErrors
	o := exec.ListOptions{Kind: k, Limit: int(intQuery(r, "limit", 1, maxListLimit, defaultListLimit, &errs))}
	known := []exec.Status{exec.StatusRunning, exec.StatusStopping, exec.StatusCompleted, exec.StatusKilled, exec.StatusFailed}
	for _, v := range r.URL.Query()["status"] {
		if !slices.Contains(known, exec.Status(v)) {
			errs.add("status", "must be one of %s, %s, %s, %s, %s", known[0], known[1], known[2], known[3], known[4])
			continue
		}
		o.Statuses = append(o.Statuses, exec.Status(v))
	}
	if r.URL.Query().Has("session") {
		errs.add("session", notAvailable)
	}
	if v := oneQuery(r, "cursor", &errs); v != "" {
		nums, err := s.o.Sealer.Open(listScope(c, k), v)
		if err != nil || len(nums) != 1 {
			errs.add("cursor", "is not one that this list gave to this caller")
		} else {
			o.Before = nums[0]
		}
	}
	return o, errs.err()
}
