package main

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

const (
	lostTask = "the server stopped before the task finished"
	lostRun  = "the server stopped before the run finished"
)

// oldOnes is how many of the commands of earlier lives are looked at again after each crash.
const oldOnes = 6

// check holds a daemon that has just started to what the client was told by the one before.
func (c *crashClient) check(t *testing.T) {
	t.Helper()
	for _, k := range slices.Clone(c.tasks) {
		switch {
		case k.deleting:
			c.checkDeleting(t, k)
		case !k.checked:
			c.checkTask(t, k)
		}
	}
	for _, r := range c.runs {
		if !r.checked {
			c.checkRun(t, r)
		}
	}
	for _, k := range c.keyed {
		if !k.checked {
			c.checkKeyed(t, k)
		}
	}
	for _, id := range c.gone {
		c.expect(t, nil, http.StatusNotFound, nil, "GET", "/v1/tasks/"+id, "")
	}
	c.gone = nil
	c.checkOld(t, oldOnes)
	c.checkList(t)
}

// checkDeleting: whether a deletion without an answer took place is open, but not half of it.
func (c *crashClient) checkDeleting(t *testing.T, k *crashTask) {
	t.Helper()
	k.deleting = false
	if !c.finds(k.id) {
		c.forget(k)
		return
	}
	c.observe(t, nil, k, "")
	c.expect(t, nil, http.StatusNoContent, nil, "DELETE", "/v1/tasks/"+k.id, "")
	c.forget(k)
}

// checkTask holds the daemon to all that is known of a task.
func (c *crashClient) checkTask(t *testing.T, k *crashTask) {
	t.Helper()
	before := k.final != nil
	now, ok := c.observe(t, nil, k, "")
	if !ok {
		return
	}
	k.checked = true
	if before {
		c.counts[settledBefore]++
	}
	k.endedWell(t, now, before)
	if now.Detail == lostTask {
		c.counts[lostInCrash]++
	}
	size, _ := c.stream(t, nil, k)
	if want := (offsets{now.Stdout.Bytes, now.Stderr.Bytes}); size != want {
		t.Errorf("%s: %s: its streams have %+v bytes, its record says %+v", c.name, k.id, size, want)
	}
	if now.Status == "completed" && (size != offsets{int64(len(k.stdout)), int64(len(k.stderr))}) {
		t.Errorf("%s: %s has completed with %+v bytes of %d and %d", c.name, k.id, size, len(k.stdout), len(k.stderr))
	}
	if k.at != (offsets{}) && k.at != size {
		c.counts[readOnAfter]++
	}
	for range 100 {
		if p, ok := c.readOn(t, nil, k, 0); !ok || p.EOF {
			break
		}
	}
	if k.at != size {
		t.Errorf("%s: %s: its cursor leads to %+v of %+v", c.name, k.id, k.at, size)
	}
	c.consume(t, nil, k)
	if p, ok := c.consume(t, nil, k); ok && (k.consumed != size || !p.EOF || p.Delta != "" || p.Lossy) {
		t.Errorf("%s: %s: after the last consuming read, up to %+v of %+v, another one delivers %.200q", c.name, k.id, k.consumed, size, p.Delta)
	}
}

// endedWell checks how a task of a former life has ended.
func (k *crashTask) endedWell(t *testing.T, now task, before bool) {
	t.Helper()
	good := false
	switch now.Status {
	case "completed":
		good = !k.endless && now.code() == 0
	case "killed":
		good = k.killed && now.Cause == "kill"
	case "failed":
		good = !before && now.Detail == lostTask && now.ExitCode == nil && now.Signal == nil && now.FinishedAt != ""
	}
	if !good {
		t.Errorf("%s (endless %t, kill asked for %t, seen over before %t): %s", k.id, k.endless, k.killed, before, now.raw)
	}
}

// checkRun: an answered run stays as it was.
func (c *crashClient) checkRun(t *testing.T, r *crashRun) {
	t.Helper()
	raw, ok := c.expect(t, nil, http.StatusOK, nil, "GET", "/v1/runs/"+r.id, "")
	switch {
	case !ok:
		return
	case r.final == nil: // the daemon died before it could be looked at, but not before it was answered
		if strings.Contains(string(raw), lostRun) {
			t.Errorf("%s: run %s was answered, and now: %s", c.name, r.id, raw)
		}
		r.final = raw
	case !bytes.Equal(raw, r.final):
		t.Errorf("%s: run %s was %s and is now %s", c.name, r.id, r.final, raw)
	}
	r.checked = true
}

// checkKeyed repeats a request with its key.
func (c *crashClient) checkKeyed(t *testing.T, k *keyedRequest) {
	t.Helper()
	known := k.first != nil
	if c.send(t, nil, k); k.first == nil {
		return
	}
	k.checked = true
	if known {
		return
	}
	if k.first.status == http.StatusOK && strings.Contains(string(k.first.raw), `"completed"`) && content(k.marker) != "x\n" {
		t.Errorf("%s: %s has completed, and its file is %q", c.name, k.key, content(k.marker))
	}
	c.send(t, nil, k) // the answer that came now must stay as well
}

// checkOld looks again at some of what was checked before.
func (c *crashClient) checkOld(t *testing.T, n int) {
	t.Helper()
	for range min(n, len(c.tasks)) {
		k := c.tasks[0]
		c.tasks = append(c.tasks[1:], k) // each gets its turn
		c.observe(t, nil, k, "")
		c.stream(t, nil, k)
	}
	for range min(n, len(c.runs)) {
		r := c.runs[0]
		c.runs = append(c.runs[1:], r)
		c.checkRun(t, r)
	}
}

// checkList pages through all tasks: each is there once.
func (c *crashClient) checkList(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for cursor := ""; ; {
		var list struct {
			Tasks []struct{ ID string }
			Next  string
		}
		if _, ok := c.expect(t, nil, http.StatusOK, &list, "GET", "/v1/tasks?limit=200"+cursor, ""); !ok {
			return
		}
		for _, k := range list.Tasks {
			if seen[k.ID]++; seen[k.ID] == 2 {
				t.Errorf("%s: %s is listed twice", c.name, k.ID)
			}
		}
		if list.Next == "" {
			break
		}
		cursor = "&cursor=" + url.QueryEscape(list.Next)
	}
	for _, k := range c.tasks {
		if seen[k.id] == 0 {
			t.Errorf("%s: %s is not listed", c.name, k.id)
		}
	}
}

// crashCounts counts how often what the test is about has come to pass.
type crashCounts map[string]int

// What is counted.
const (
	lostInCrash   = "tasks that a crash took"
	settledBefore = "tasks that were seen over before a crash"
	readOnAfter   = "cursors that had something to deliver after a crash"
	yielded       = "runs that became tasks"
	deleted       = "deleted tasks"
	replayed      = "repeated answers"
	answeredLate  = "repeated answers of which the first never came"
	skipped       = "consuming reads of which the answer never came"
)

// missing lists what did not come to pass, though it is no matter of chance.
func (n crashCounts) missing() []string {
	all := []string{lostInCrash, settledBefore, readOnAfter, yielded, deleted, replayed, answeredLate}
	return slices.DeleteFunc(all, func(what string) bool { return n[what] > 0 })
}
