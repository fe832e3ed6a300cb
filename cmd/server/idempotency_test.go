package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestIdempotencyKey: a request with a key can be sent again, and again after the client or the server has died;
// its command runs once.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"of a task", caseKey},
		{"at the same moment", caseKeyAtOnce},
		{"of a run", caseKeyOfRun},
		{"of a run whose client was killed", caseKeyClientKilled},
		{"of a run that yields", caseKeyYield},
		{"after a stop", caseKeyAfterStop},
		{"after a crash", caseKeyAfterCrash},
	})
}

// once is a command that leaves a line in a file of the workspace each time it runs.
func once(t *testing.T, d *daemon, name, then string) (body in, ran func() int) {
	t.Helper()
	log := filepath.Join(subdir(t, d, "keys"), name)
	body = in{"command": "echo ran >>'" + log + "'; echo out; " + then, "sandboxMode": "workspace-write"}
	return body, func() int { return strings.Count(content(log), "ran\n") }
}

// sameAnswer checks that b repeats a, and says so.
func sameAnswer(t *testing.T, a, b answered) {
	t.Helper()
	if a.resp.StatusCode != b.resp.StatusCode || string(a.raw) != string(b.raw) || a.resp.Header.Get("Location") != b.resp.Header.Get("Location") {
		t.Errorf("answered %d, %s\n%s\nand then %d, %s\n%s",
			a.resp.StatusCode, a.resp.Header.Get("Location"), a.raw, b.resp.StatusCode, b.resp.Header.Get("Location"), b.raw)
	}
	if first, second := a.resp.Header.Get("Idempotency-Replayed"), b.resp.Header.Get("Idempotency-Replayed"); first != "" || second != "true" {
		t.Errorf("Idempotency-Replayed %q and then %q", first, second)
	}
}

// caseKey: a task is started once, however often its request is sent.
func caseKey(t *testing.T, d *daemon) {
	const key, other = "Idempotency-Key: h-key", "X-Owner-Token: h-other"
	body, ran := once(t, d, "task", "sleep 0.5; exit 5")
	first := d.exchange(t, "POST", "/v1/tasks", body, key)
	id := idIn(first.raw)
	if first.resp.StatusCode != 201 || first.resp.Header.Get("Location") != "/v1/tasks/"+id {
		t.Fatalf("%d %s", first.resp.StatusCode, first.raw)
	}
	sameAnswer(t, first, d.exchange(t, "POST", "/v1/tasks", body, key)) // while it runs
	d.waitTask(t, id).exited(t, 5)
	sameAnswer(t, first, d.exchange(t, "POST", "/v1/tasks", body, key)) // and afterwards
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times", n)
	}

	another := in{"command": "echo another", "sandboxMode": "workspace-write"}
	d.refusedTask(t, another, 409, "CONFLICT", key)
	// Another owner's key, or another route's, is another key.
	theirs := d.task(t, another, key, other)
	d.waitTask(t, theirs.ID, other).exited(t, 0)
	r := d.run(t, body, key)
	r.exited(t, 5)
	if r.ID == id || theirs.ID == id || ran() != 2 {
		t.Errorf("ids %s, %s, %s; it ran %d times", id, theirs.ID, r.ID, ran())
	}

	// With the record the key is forgotten.
	d.deleteTask(t, id)
	k := d.task(t, body, key)
	d.waitTask(t, k.ID).exited(t, 5)
	if k.ID == id || ran() != 3 {
		t.Errorf("after DELETE: id %s, it ran %d times", k.ID, ran())
	}

	for _, odd := range []string{"", "a b", "é", strings.Repeat("k", 256)} {
		if p := d.refusedTask(t, body, 400, "INVALID_ARGUMENT", "Idempotency-Key: "+odd); len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" {
			t.Errorf("%q: %+v; want the header named", odd, p)
		}
	}
	d.waitTask(t, d.task(t, body, "Idempotency-Key: "+strings.Repeat("k", 255)).ID).exited(t, 5)
}

// caseKeyAtOnce sends one request many times at the same moment.
func caseKeyAtOnce(t *testing.T, _ *daemon) {
	const key, clients = "Idempotency-Key: h-at-once", 8
	d := start(t) // each of them may take a place for a moment, and there are 10
	body, ran := once(t, d, "at-once", "sleep 0.3")
	answers := make(chan answered, clients)
	for range clients {
		go func() { answers <- d.exchange(t, "POST", "/v1/tasks", body, key) }()
	}
	ids, fresh := map[string]int{}, 0
	for range clients {
		a := <-answers
		if a.resp.StatusCode != 201 {
			t.Errorf("%d %s", a.resp.StatusCode, a.raw)
			continue
		}
		ids[idIn(a.raw)]++
		if a.resp.Header.Get("Idempotency-Replayed") == "" {
			fresh++
		}
	}
	if len(ids) != 1 || fresh != 1 {
		t.Errorf("answered with %v, %d of them as new", ids, fresh)
	}
	for id := range ids {
		d.waitTask(t, id).exited(t, 0)
	}
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// caseKeyOfRun: a refusal is not kept; an answer is, and until there is one the key is busy.
func caseKeyOfRun(t *testing.T, d *daemon) {
	const key = "Idempotency-Key: h-run"
	body, ran := once(t, d, "run", "echo err >&2; sleep 1; exit 6")
	body["workdir"] = filepath.Join(d.shared(), "h-run")
	d.refused(t, body, 422, "WORKDIR_UNUSABLE", key)
	subdir(t, d, "h-run")

	p := d.post(t, body, key)
	d.await(t, "the command runs", func() bool { return ran() == 1 })
	if a := d.exchange(t, "POST", "/v1/runs", body, key); a.resp.StatusCode != 409 || a.resp.Header.Get("Retry-After") == "" {
		t.Errorf("while it runs: %d, Retry-After %q, %s", a.resp.StatusCode, a.resp.Header.Get("Retry-After"), a.raw)
	}
	first := <-p.answer
	if first.err != nil || first.resp.StatusCode != 200 {
		t.Fatalf("%v %s", first.err, first.raw)
	}
	r := decode(t, first.raw, 0)
	r.exited(t, 6)
	r.printed(t, "out\n", "err\n")
	for range 2 {
		sameAnswer(t, first, d.exchange(t, "POST", "/v1/runs", body, key))
	}
	body["command"] = "echo another"
	d.refused(t, body, 409, "CONFLICT", key)
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// caseKeyClientKilled: with a key, a run outlives its client, so that the retry gets the answer; but not its
// own timeout.
func caseKeyClientKilled(t *testing.T, d *daemon) {
	const key = "Idempotency-Key: h-killed"
	body, ran := once(t, d, "killed", "sleep 2; echo end; exit 8")
	p := d.post(t, body, key)
	d.await(t, "the command runs", func() bool { return ran() == 1 })
	p.hangUp()
	var answer answered
	d.await(t, "the retry has an answer", func() bool {
		answer = d.exchange(t, "POST", "/v1/runs", body, key)
		return answer.resp.StatusCode != 409
	})
	r := decode(t, answer.raw, 0)
	r.exited(t, 8)
	r.printed(t, "out\nend\n", "")
	if answer.resp.StatusCode != 200 || answer.resp.Header.Get("Idempotency-Replayed") != "true" || ran() != 1 {
		t.Errorf("%d, replayed %q; it ran %d times", answer.resp.StatusCode, answer.resp.Header.Get("Idempotency-Replayed"), ran())
	}

	body, ran = once(t, d, "killed-2", "sleep 6107")
	body["timeoutMs"] = 1500
	p = d.begin(t, body, key+"-2")
	d.await(t, "the command runs", func() bool { return ran() == 1 })
	p.hangUp()
	d.settled(t, p.id).wasTimedOut(t)
	decode(t, d.exchange(t, "POST", "/v1/runs", body, key+"-2").raw, 0).wasTimedOut(t)
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

func caseKeyYield(t *testing.T, d *daemon) {
	const key = "Idempotency-Key: h-yield"
	body, ran := once(t, d, "yield", "sleep 1.5; echo end")
	body["yieldAfterMs"] = 300
	first := d.exchange(t, "POST", "/v1/runs", body, key)
	k := d.yielded(t, first)
	sameAnswer(t, first, d.exchange(t, "POST", "/v1/runs", body, key))
	d.waitTask(t, k.ID).exited(t, 0)
	sameAnswer(t, first, d.exchange(t, "POST", "/v1/runs", body, key))
	d.printedInAll(t, k.ID, "out\nend\n", "")
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// keyed is a task, a run and a yielded run, each with a key, and their answers.
type keyed struct {
	body  in
	path  string
	key   string
	first answered
	ran   func() int
}

func answeredWithKeys(t *testing.T, d *daemon, then string) (all []*keyed) {
	t.Helper()
	for name, path := range map[string]string{"task": "/v1/tasks", "run": "/v1/runs", "yield": "/v1/runs"} {
		k := &keyed{path: path, key: "Idempotency-Key: h-" + name}
		body := "exit 3"
		if name != "run" {
			body = then
		}
		k.body, k.ran = once(t, d, name, body)
		if name == "yield" {
			k.body["yieldAfterMs"] = 100
		}
		k.first = d.exchange(t, "POST", path, k.body, k.key)
		d.await(t, "it has run", func() bool { return k.ran() == 1 })
		all = append(all, k)
	}
	return all
}

// caseKeyAfterStop: keys and their answers outlast the daemon.
func caseKeyAfterStop(t *testing.T, _ *daemon) {
	d := launch(t)
	all := answeredWithKeys(t, d, "sleep 0.5; exit 3")
	for _, k := range d.listTasks(t) {
		d.waitTask(t, k.ID).exited(t, 3)
	}
	d.stop(t)
	again := d.restart(t)
	for _, k := range all {
		sameAnswer(t, k.first, again.exchange(t, "POST", k.path, k.body, k.key))
		if n := k.ran(); n != 1 {
			t.Errorf("%s: it ran %d times", k.key, n)
		}
	}
	if tasks, runs := again.listTasks(t), again.list(t); len(tasks) != 2 || len(runs) != 1 {
		t.Errorf("%d tasks and %d runs; want 2 and 1", len(tasks), len(runs))
	}
}

// caseKeyAfterCrash: also where the daemon was killed, with its commands. What was not finished is not begun anew.
func caseKeyAfterCrash(t *testing.T, _ *daemon) {
	d := launch(t)
	all := answeredWithKeys(t, d, "sleep 6109")
	body, ran := once(t, d, "unanswered", "sleep 6109")
	d.post(t, body, "Idempotency-Key: h-unanswered")
	d.await(t, "the command runs", func() bool { return ran() == 1 })
	d.crash(t)
	d.awaitNoProcess(t, 3*time.Second)
	again := d.restart(t)
	for _, k := range all {
		sameAnswer(t, k.first, again.exchange(t, "POST", k.path, k.body, k.key))
		if n := k.ran(); n != 1 {
			t.Errorf("%s: it ran %d times", k.key, n)
		}
	}
	for _, k := range again.listTasks(t) {
		if k.Status != "failed" || k.Detail != "the server stopped before the task finished" || k.ExitCode != nil || k.Signal != nil {
			t.Errorf("%s; want it failed by the crash", k.raw)
		}
		again.printedInAll(t, k.ID, "out\n", "")
	}
	a := again.exchange(t, "POST", "/v1/runs", body, "Idempotency-Key: h-unanswered")
	if r := decode(t, a.raw, 0); ran() != 1 || r.Status != "failed" || !bytes.Contains(a.raw, []byte("the server stopped before the run finished")) {
		t.Errorf("what never was answered ran %d times; and then %d %s", ran(), a.resp.StatusCode, a.raw)
	}
}
