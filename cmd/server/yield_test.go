package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"bashd/internal/httpapi/apitest"
)

// TestYield is about runs that become tasks because their caller does not want to wait for longer.
func TestYield(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"goes on", caseYield},
		{"has ended before", caseYieldEnded},
		{"at the limit", caseYieldAtLimit},
		{"client hangs up", caseYieldHangUp},
	})
}

// yielded checks that a run has become a task, and returns that.
func (d *daemon) yielded(tb testing.TB, a answered) task {
	tb.Helper()
	if a.err != nil || a.resp.StatusCode != http.StatusAccepted {
		tb.Fatalf("%v: %s; want 202", a.err, a.raw)
	}
	apitest.Validate(tb, a.req, a.resp, a.raw)
	var body struct{ Task task }
	if err := json.Unmarshal(a.raw, &body); err != nil {
		tb.Fatal(err)
	}
	k := body.Task
	if location := a.resp.Header.Get("Location"); location != "/v1/tasks/"+k.ID || k.Status != "running" || k.stamped {
		tb.Errorf("Location %q, %s; want a running task and where it is", location, k.raw)
	}
	return k
}

// A run that takes too long for its caller goes on as a task: the same command, all of its output, and no
// timeout any more.
func caseYield(t *testing.T, d *daemon) {
	a := <-d.post(t, in{
		"command": "echo first; echo wrong >&2; sleep 3; echo last; exit 4", "yieldAfterMs": 500, "timeoutMs": 2000,
	}).answer
	k := d.yielded(t, a)
	if status, raw := d.request(t, "GET", "/v1/runs/"+k.ID, ""); status != http.StatusNotFound {
		t.Errorf("it is a run still: %d %s", status, raw)
	}
	if _, bounded := k.Spec["timeoutMs"]; bounded {
		t.Errorf("its timeout holds still: %s", k.raw)
	}
	for _, r := range d.list(t) {
		if r.ID == k.ID {
			t.Errorf("it is in the list of runs")
		}
	}
	end := d.waitTask(t, k.ID)
	end.exited(t, 4)
	d.printedInAll(t, k.ID, "first\nlast\n", "wrong\n")
	p := d.read(t, k.ID)
	p.delivered(t, "first\nlast\n", "wrong\n")
	if p.Lossy || !p.EOF || p.Delta != "first\nlast\n[stderr]\nwrong\n" {
		t.Errorf("lossy %t, eof %t, delta %q", p.Lossy, p.EOF, p.Delta)
	}
	a = <-d.post(t, in{"command": "sleep 1", "yieldAfterMs": 200}, "Accept: text/plain").answer
	id := idIn(a.raw)
	if a.err != nil || a.resp.StatusCode != http.StatusAccepted || string(a.raw) != "started background task "+id+"\n" {
		t.Fatalf("as text: %v %s", a.err, a.raw)
	}
	d.waitTask(t, id).exited(t, 0)
}

// A run that ends before that time is answered as ever, and by its own timeout too.
func caseYieldEnded(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "echo quick; exit 3", "yieldAfterMs": 20000})
	r.exited(t, 3)
	r.printed(t, "quick\n", "")
	r = d.run(t, in{"command": "sleep 6120", "yieldAfterMs": 20000, "timeoutMs": 300})
	r.wasTimedOut(t)
	if status, _ := d.request(t, "GET", "/v1/tasks/"+r.ID, ""); status != http.StatusNotFound {
		t.Errorf("it became a task: %d", status)
	}
}

// Where its owner has as many tasks as it may, a run stays one.
func caseYieldAtLimit(t *testing.T, _ *daemon) {
	d := start(t, "BASHD_MAX_TASKS_PER_OWNER=1")
	k := d.task(t, in{"command": "sleep 6121"})
	p := d.refusedTask(t, in{"command": "true"}, http.StatusTooManyRequests, "LIMIT_REACHED")
	const text = "background task limit reached for this owner (limit: 1); use task_kill to stop an unneeded task, wait for it to finish, then retry"
	if p.Detail != text {
		t.Errorf("detail %q; want %q", p.Detail, text)
	}
	r := d.run(t, in{"command": "sleep 1; echo run", "yieldAfterMs": 100})
	r.exited(t, 0)
	r.printed(t, "run\n", "")
	d.killTask(t, k.ID)
	d.waitTask(t, k.ID).wasKilled(t)
	k = d.yielded(t, <-d.post(t, in{"command": "sleep 1; echo task", "yieldAfterMs": 100}).answer)
	d.waitTask(t, k.ID).exited(t, 0)
	if n := len(d.listTasks(t)); n != 2 {
		t.Errorf("%d tasks; want 2: what was refused is none", n)
	}
}

// Until it yields, a run ends with its caller; afterwards it has none.
func caseYieldHangUp(t *testing.T, d *daemon) {
	p := d.begin(t, in{"command": "sleep 6122", "yieldAfterMs": 20000})
	p.hangUp()
	d.settled(t, p.id).wasAborted(t)
	d.noneAlive(t, "sleep 6122")

	p = d.post(t, in{"command": "sleep 2; echo end", "yieldAfterMs": 200})
	k := d.yielded(t, <-p.answer)
	p.hangUp()
	http.DefaultClient.CloseIdleConnections()
	d.waitTask(t, k.ID).exited(t, 0)
	d.printedInAll(t, k.ID, "end\n", "")
}
