package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"bashd/internal/httpapi/apitest"
)

// task is what the tests look at of a task: what a run has too, its streams without
// their text, and what only a task has.
type task struct {
	result
	Command, Description  string
	Detail                string
	CommandTruncated      bool
	Unrecorded            bool
	StartedAt, FinishedAt string // as the wire has them

	runnerFailed bool // sandbox.runnerFailed
	stamped      bool // whether sandbox is there at all
}

// UnmarshalJSON keeps the text that it decodes in raw.
func (k *task) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &k.result); err != nil {
		return err
	}
	k.raw = bytes.Clone(raw)
	var own struct {
		Command, Description, Detail string
		CommandTruncated, Unrecorded bool
		StartedAt, FinishedAt        string
		Sandbox                      *struct{ RunnerFailed bool }
	}
	if err := json.Unmarshal(raw, &own); err != nil {
		return err
	}
	k.Command, k.Description, k.Detail = own.Command, own.Description, own.Detail
	k.CommandTruncated, k.Unrecorded = own.CommandTruncated, own.Unrecorded
	k.StartedAt, k.FinishedAt = own.StartedAt, own.FinishedAt
	k.stamped = own.Sandbox != nil
	k.runnerFailed = k.stamped && own.Sandbox.RunnerFailed
	return nil
}

// over reports that the status is a terminal one.
func (k task) over() bool { return k.Status != "running" && k.Status != "stopping" }

// page is a piece of a task's output.
type page struct {
	Delta                            string
	Stdout, Stderr                   piece
	Lossy                            bool
	NextCursor                       string
	More, EOF                        bool
	StdoutSpillPath, StderrSpillPath string
	Task                             task
}

// piece is the bytes [From, To) of a stream.
type piece struct {
	From, To   int64
	Text       string
	DataBase64 []byte
}

// delivered checks a page's two texts.
func (p page) delivered(tb testing.TB, stdout, stderr string) {
	tb.Helper()
	if p.Stdout.Text != stdout || p.Stderr.Text != stderr {
		tb.Errorf("delivered %.300q and %.300q; want %.300q and %.300q", p.Stdout.Text, p.Stderr.Text, stdout, stderr)
	}
}

// ask sends a request that must be answered with that status, and decodes the answer
// into v, unless v is nil.
func (d *daemon) ask(tb testing.TB, method, path string, body any, status int, v any, headers ...string) {
	tb.Helper()
	text := ""
	if body != nil {
		text = mustJSON(tb, body)
	}
	got, raw := d.request(tb, method, path, text, headers...)
	if got != status {
		tb.Fatalf("%s %s %.300s: %d %.1000s; want %d", method, path, text, got, raw, status)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(raw, v); err != nil {
		tb.Fatalf("%s %s: %v: %.500s", method, path, err, raw)
	}
}

// exchange is request for tests that look at the header of the answer, too.
func (d *daemon) exchange(tb testing.TB, method, path string, body any, headers ...string) answered {
	tb.Helper()
	text := ""
	if body != nil {
		text = mustJSON(tb, body)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 90*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	if text != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	a := answered{req: req}
	if a.resp, a.err = http.DefaultClient.Do(req); a.err == nil {
		a.raw, a.err = io.ReadAll(a.resp.Body)
		a.resp.Body.Close()
	}
	if a.err != nil {
		tb.Fatalf("%s %s: %v", method, path, a.err)
	}
	apitest.Validate(tb, req, a.resp, a.raw)
	return a
}

// task starts a task, which must be answered 201.
func (d *daemon) task(tb testing.TB, body in, headers ...string) (k task) {
	tb.Helper()
	d.ask(tb, "POST", "/v1/tasks", body, http.StatusCreated, &k, headers...)
	return k
}

// refusedTask posts a task that must be refused with that status and code.
func (d *daemon) refusedTask(tb testing.TB, body in, status int, code string, headers ...string) (p problem) {
	tb.Helper()
	d.ask(tb, "POST", "/v1/tasks", body, status, &p, headers...)
	if p.Code != code {
		tb.Errorf("POST /v1/tasks %.200s: code %s, want %s", mustJSON(tb, body), p.Code, code)
	}
	return p
}

// getTask returns a task as GET /v1/tasks/{id} has it.
func (d *daemon) getTask(tb testing.TB, id string, headers ...string) (k task) {
	tb.Helper()
	d.ask(tb, "GET", "/v1/tasks/"+id, nil, http.StatusOK, &k, headers...)
	return k
}

// listTasks returns the tasks that the caller may see, newest first, 200 at most.
func (d *daemon) listTasks(tb testing.TB, headers ...string) []task {
	tb.Helper()
	var list struct{ Tasks []task }
	d.ask(tb, "GET", "/v1/tasks?limit=200", nil, http.StatusOK, &list, headers...)
	return list.Tasks
}

// waitTask waits until a task is over, which it must be within a minute.
func (d *daemon) waitTask(tb testing.TB, id string, headers ...string) (k task) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if k = d.waitOnce(tb, id, 10*time.Second, headers...); k.over() {
			return k
		}
	}
	tb.Fatalf("waited in vain for the end of %s", k.raw)
	return k
}

// waitOnce waits for the end of a task for that long, which may not suffice.
func (d *daemon) waitOnce(tb testing.TB, id string, timeout time.Duration, headers ...string) (k task) {
	tb.Helper()
	path := fmt.Sprintf("/v1/tasks/%s/wait?timeoutMs=%d", id, timeout.Milliseconds())
	d.ask(tb, "GET", path, nil, http.StatusOK, &k, headers...)
	return k
}

// read is the consuming read: what no such read has delivered yet.
func (d *daemon) read(tb testing.TB, id string, headers ...string) (p page) {
	tb.Helper()
	d.ask(tb, "POST", "/v1/tasks/"+id+"/read", nil, http.StatusOK, &p, headers...)
	return p
}

// output reads what follows a cursor ("": from the start), and waits up to waitMs for some.
func (d *daemon) output(tb testing.TB, id, cursor string, waitMs int, headers ...string) (p page) {
	tb.Helper()
	d.ask(tb, "GET", outputPath(id, cursor, waitMs), nil, http.StatusOK, &p, headers...)
	return p
}

func outputPath(id, cursor string, waitMs int) string {
	query := url.Values{"waitMs": {fmt.Sprint(waitMs)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return "/v1/tasks/" + id + "/output?" + query.Encode()
}

// pages reads a task's output from the start to the end. Each page must begin where the one
// before ended, and be the last one exactly where it says so.
func (d *daemon) pages(tb testing.TB, id string, headers ...string) (all []page) {
	tb.Helper()
	var cursor string
	var stdout, stderr int64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		p := d.output(tb, id, cursor, 5000, headers...)
		if !p.Lossy && (p.Stdout.From != stdout || p.Stderr.From != stderr) {
			tb.Fatalf("a page begins at %d and %d, the one before ended at %d and %d", p.Stdout.From, p.Stderr.From, stdout, stderr)
		}
		cursor, stdout, stderr = p.NextCursor, p.Stdout.To, p.Stderr.To
		all = append(all, p)
		if p.EOF {
			if !p.Task.over() || p.More || stdout != p.Task.Stdout.Bytes || stderr != p.Task.Stderr.Bytes {
				tb.Errorf("eof at %d and %d bytes, more %t, of %s", stdout, stderr, p.More, p.Task.raw)
			}
			return all
		}
	}
	tb.Fatalf("waited in vain for the end of the output of %s", id)
	return nil
}

// follow reads a task's output from the start to the end, none of which may be lost. It
// returns the text of stdout and how many bytes of stdout were delivered.
func (d *daemon) follow(tb testing.TB, id string, headers ...string) (text string, size int64) {
	tb.Helper()
	var b bytes.Buffer
	for _, p := range d.pages(tb, id, headers...) {
		if p.Lossy {
			tb.Errorf("output of %s was lost", id)
		}
		b.WriteString(p.Stdout.Text)
		size += p.Stdout.To - p.Stdout.From
	}
	return b.String(), size
}

// stream returns the raw bytes of a stream of a task.
func (d *daemon) stream(tb testing.TB, id, name string, headers ...string) []byte {
	tb.Helper()
	status, raw := d.request(tb, "GET", "/v1/tasks/"+id+"/streams/"+name, "", headers...)
	if status != http.StatusOK {
		tb.Fatalf("%s of task %s: %d %.500s", name, id, status, raw)
	}
	return raw
}

// killTask asks for the end of a task and returns the outcome and the task as it is then.
func (d *daemon) killTask(tb testing.TB, id string, headers ...string) (outcome string, k task) {
	tb.Helper()
	var answer struct {
		Outcome string
		Task    task
	}
	d.ask(tb, "POST", "/v1/tasks/"+id+"/kill", nil, http.StatusAccepted, &answer, headers...)
	return answer.Outcome, answer.Task
}

// deleteTask forgets a task that is over.
func (d *daemon) deleteTask(tb testing.TB, id string, headers ...string) {
	tb.Helper()
	d.ask(tb, "DELETE", "/v1/tasks/"+id, nil, http.StatusNoContent, nil, headers...)
}

// writeStdin writes to a task's stdin and returns how many bytes were taken.
func (d *daemon) writeStdin(tb testing.TB, id string, body in, headers ...string) int {
	tb.Helper()
	var answer struct{ Written int }
	d.ask(tb, "POST", "/v1/tasks/"+id+"/stdin", body, http.StatusOK, &answer, headers...)
	return answer.Written
}

// printedSoFar waits until the stdout of a running task is text.
func (d *daemon) printedSoFar(tb testing.TB, id, text string, headers ...string) {
	tb.Helper()
	d.await(tb, fmt.Sprintf("the task has printed %q", text), func() bool {
		p := d.output(tb, id, "", 0, headers...)
		if p.Task.over() {
			tb.Fatalf("the task ended early, with %q: %s", p.Delta, p.Task.raw)
		}
		return p.Stdout.Text == text
	})
}

// printedInAll reads all that a task printed, page by page and as raw bytes.
func (d *daemon) printedInAll(tb testing.TB, id, stdout, stderr string, headers ...string) {
	tb.Helper()
	var out, errs strings.Builder
	for _, p := range d.pages(tb, id, headers...) {
		if p.Lossy {
			tb.Errorf("output of %s was lost", id)
		}
		out.WriteString(p.Stdout.Text)
		errs.WriteString(p.Stderr.Text)
	}
	for _, s := range []struct{ name, text, want string }{{"stdout", out.String(), stdout}, {"stderr", errs.String(), stderr}} {
		if s.text != s.want {
			tb.Errorf("%s: %.300q; want %.300q", s.name, s.text, s.want)
		}
		if raw := d.stream(tb, id, s.name, headers...); string(raw) != s.want {
			tb.Errorf("the stream %s: %.300q; want %.300q", s.name, raw, s.want)
		}
	}
}

// goOn lets a task on that waits for a line on its stdin, which it was started with open.
func (d *daemon) goOn(tb testing.TB, id string) {
	tb.Helper()
	if n := d.writeStdin(tb, id, in{"data": "\n"}); n != 1 {
		tb.Errorf("%d bytes of stdin were taken; want 1", n)
	}
}
