package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

const taskURL = "/v1/tasks/" + sampleID

func TestCreateTask(t *testing.T) {
	f := newFixture(t)
	a := f.do(t, "POST", "/v1/tasks", `{"command":"cat","timeoutMs":1e9,"stdin":"a","stdinOpen":true,"env":{"A":"1"},"mergeStderr":true}`, "X-Owner-Token: alice")
	a.wantStatus(t, 201)
	if got := a.Header.Get("Location"); got != taskURL || a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%v", a.Header)
	}
	got := f.runner.startedTasks()[0]
	if got.Command != "cat" || *got.Timeout != 1e9*time.Millisecond || string(got.Stdin) != "a" || !got.StdinOpen || got.Env["A"] != "1" || !got.MergeStderr ||
		got.Key != nil || got.YieldAfter != 0 {
		t.Errorf("%+v", got)
	}
	if f.runner.caller.Owner != ownerKey("", "alice") {
		t.Errorf("%+v", f.runner.caller)
	}
	if len(f.runner.requests()) != 0 {
		t.Error("it was run in the foreground")
	}
	f.do(t, "POST", "/v1/tasks", `{"command":"x"}`, "Accept: text/plain").wantStatus(t, 201)
	f.do(t, "POST", "/v1/tasks", `{}`).wantProblem(t, 400, exec.CodeInvalidArgument, "command")
	f.do(t, "POST", "/v1/tasks", "").wantProblem(t, 400, exec.CodeInvalidArgument, "body")
	f.do(t, "POST", "/v1/tasks", `{"command":"x"}`, "Content-Type: text/plain").wantProblem(t, 415, codeUnsupportedMediaType)
	if n := len(f.runner.startedTasks()); n != 2 {
		t.Errorf("%d tasks", n)
	}
}

// TestFieldsOfTheOtherRoute: a field that only the other way to start a command has is told apart from a misspelt one.
func TestFieldsOfTheOtherRoute(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct{ path, body, field, message string }{
		{"/v1/runs", `{"command":"x","stdinOpen":true}`, "stdinOpen", "is for POST /v1/tasks only"},
		{"/v1/tasks", `{"command":"x","yieldAfterMs":1}`, "yieldAfterMs", "is for POST /v1/runs only"},
		{"/v1/runs", `{"command":"x","session":"s"}`, "session", "is not available on this server"},
		{"/v1/tasks", `{"command":"x","session":"s"}`, "session", "is not available on this server"},
		{"/v1/runs", `{"command":"x","yieldAfterMs":0}`, "yieldAfterMs", "must be an integer of at least 1"},
		{"/v1/runs", `{"command":"x","yieldAfterMs":1.5}`, "yieldAfterMs", "must be an integer of at least 1"},
		{"/v1/tasks", `{"command":"x","stdinOpen":"yes"}`, "stdinOpen", "must be true or false, not string"},
		{"/v1/tasks", `{"command":"x","stdin_open":true}`, "stdin_open", `unknown field; did you mean \"stdinOpen\"?`},
	} {
		a := f.do(t, "POST", c.path, c.body)
		a.wantProblem(t, 400, exec.CodeInvalidArgument, c.field)
		if want := `{"field":"` + c.field + `","message":"` + c.message + `"}`; !bytes.Contains(a.body, []byte(want)) {
			t.Errorf("%s: no %s in %s", c.body, want, a.body)
		}
	}
	f.wantNothingRun(t)
}

// TestTaskErrors: what the domain says gets out of every route with its own status.
func TestTaskErrors(t *testing.T) {
	for _, c := range []struct {
		err        *exec.Error
		status     int
		retryAfter string
	}{
		{&exec.Error{Code: exec.CodeNotFound, Message: "m"}, 404, ""},
		{&exec.Error{Code: exec.CodeInternal, Message: "secret"}, 500, ""},
	} {
		for _, route := range taskRoutes {
			f := newFixture(t)
			f.runner.fail(c.err)
			a := f.do(t, route.method, route.path, route.body)
			a.wantProblem(t, c.status, c.err.Code)
			if a.Header.Get("Retry-After") != c.retryAfter || bytes.Contains(a.body, []byte("secret")) {
				t.Errorf("%s %s: %v %s", route.method, route.path, a.Header, a.body)
			}
		}
	}
	for _, c := range []struct {
		method, path, body string
		err                *exec.Error
		status             int
		retryAfter         string
		fields             []string
	}{
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeConflict, Message: "m"}, 409, "", nil},
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeConflict, Message: "m", RetryAfter: time.Second / 2}, 409, "1", nil},
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeWorkdirUnusable, Message: "m"}, 422, "", nil},
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeModeNotAllowed, Message: "m"}, 403, "", nil},
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeLimitReached, Message: "m", RetryAfter: 3 * time.Second}, 429, "3", nil},
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeShuttingDown, Message: "m"}, 503, "1", nil},
		{"POST", "/v1/tasks", `{"command":"x"}`, &exec.Error{Code: exec.CodeSandboxUnavailable, Message: "m"}, 503, "", nil},
		{"DELETE", taskURL, "", &exec.Error{Code: exec.CodeConflict, Message: "m"}, 409, "", nil},
		{"POST", taskURL + "/stdin", `{"data":"x"}`, &exec.Error{Code: exec.CodeConflict, Message: "m"}, 409, "", nil},
		{"GET", taskURL + "/streams/stdout", "", &exec.Error{Code: exec.CodeGone, Message: "m"}, 410, "", nil},
		{"GET", taskURL + "/output?cursor=AA", "", invalid("cursor", "m"), 400, "", []string{"cursor"}},
	} {
		f := newFixture(t)
		f.runner.fail(c.err)
		a := f.do(t, c.method, c.path, c.body)
		a.wantProblem(t, c.status, c.err.Code, c.fields...)
		if got := a.Header.Get("Retry-After"); got != c.retryAfter {
			t.Errorf("%s %s: Retry-After %q", c.method, c.path, got)
		}
	}
}

// taskRoutes are the routes that take the id of a task.
var taskRoutes = []struct{ method, path, body string }{
	{"GET", taskURL, ""},
	{"DELETE", taskURL, ""},
	{"GET", taskURL + "/output", ""},
	{"POST", taskURL + "/read", ""},
	{"GET", taskURL + "/wait", ""},
	{"POST", taskURL + "/kill", ""},
	{"POST", taskURL + "/stdin", `{"close":true}`},
	{"GET", taskURL + "/streams/stdout", ""},
}

// fail makes every method that can fail return err.
func (f *fakeRunner) fail(err error) {
	f.run = func(context.Context, exec.Request) (exec.Run, error) { return exec.Run{}, err }
	f.start = func(exec.Request) (exec.Run, error) { return exec.Run{}, err }
	f.get = func(exec.Caller, exec.Kind, string) (exec.Run, error) { return exec.Run{}, err }
	f.list = func(exec.Caller, exec.ListOptions) ([]exec.Run, int64, error) { return nil, 0, err }
	f.kill = func(exec.Kind, string, string) (exec.KillOutcome, exec.Run, error) { return "", exec.Run{}, err }
	f.stream = func(exec.Kind, string, exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
		return nil, 0, time.Time{}, err
	}
	f.wait = func(context.Context, string, time.Duration) (exec.Run, error) { return exec.Run{}, err }
	f.output = func(context.Context, string, exec.ReadOptions) (exec.Page, error) { return exec.Page{}, err }
	f.consume = func(string) (exec.Page, error) { return exec.Page{}, err }
	f.stdin = func(context.Context, string, []byte, bool) (int, error) { return 0, err }
	f.remove = func(string) error { return err }
}

// TestTaskGolden pins names, order and form of everything a task can show.
func TestTaskGolden(t *testing.T) {
	r := sampleTask()
	r.Status, r.ExitCode, r.Signal, r.Cause = exec.StatusKilled, nil, syscall.SIGKILL, exec.CauseTimeout
	r.Stdout = exec.Stream{Truncated: true, Bytes: 70000, RetainedFrom: 6000, HasFile: true, SpillPath: "/s/o"}
	r.Stderr = exec.Stream{Bytes: 1}
	r.Spec.Description, r.Spec.Session, r.Spec.Env, r.Spec.Timeout = "d", "s1", map[string]string{"A": "secret"}, time.Second
	r.Spec.HasStdin, r.Spec.StdinBytes, r.Spec.StdinOpen = true, 2, true
	r.Sandbox = exec.SandboxFacts{
		Mode: "read-only", Enforcement: "partial", Gaps: []string{"metadata"}, Denied: true,
		Denial: &exec.Denial{Path: "/etc/x", Evidence: "line"}, Hint: "h", RunnerFailed: true,
	}
	r.DrainIncomplete, r.SurvivorsKilled, r.Detail, r.Unrecorded = true, 2, "why", true
	r.Usage = sandbox.Usage{User: 1500 * time.Microsecond, System: 2 * time.Millisecond, MaxRSSBytes: 4096}
	f := newFixture(t)
	f.runner.get = func(_ exec.Caller, k exec.Kind, id string) (exec.Run, error) {
		if k != exec.Background || id != sampleID {
			return exec.Run{}, noRun(id)
		}
		return r, nil
	}
	got := string(f.do(t, "GET", taskURL, "").body)
	want := `{"id":"` + sampleID + `","status":"killed","exitCode":null,"signal":"SIGKILL","timedOut":true,"cause":"timeout",` +
		`"command":"echo hi","description":"d","session":"s1","detail":"why",` +
		`"stdout":{"bytes":70000,"retainedFrom":6000,"spillPath":"/s/o","url":"` + taskURL + `/streams/stdout"},` +
		`"stderr":{"bytes":1,"retainedFrom":0,"url":"` + taskURL + `/streams/stderr"},` +
		`"sandbox":{"mode":"read-only","denied":true,"enforcement":"partial","gaps":["metadata"],"denial":{"path":"/etc/x","evidence":"line"},"hint":"h","runnerFailed":true},` +
		`"spec":{"command":"echo hi","description":"d","workdir":"/w","session":"s1","timeoutMs":1000,"stdoutMaxBytes":64000,"stderrMaxBytes":64000,` +
		`"sandboxMode":"read-only","workspaceRoot":"/w","envNames":["A"],"stdinBytes":2,"stdinOpen":true,"mergeStderr":false,"outputEncoding":"text"},` +
		`"drainIncomplete":true,"startedAt":"2026-01-02T02:04:05.006Z","finishedAt":"2026-01-02T02:04:05.013Z",` +
		`"durationMs":7,"survivorsKilled":2,"usage":{"userMs":1,"systemMs":2,"maxRssBytes":4096},"unrecorded":true}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestRunningTask: what is known at the end only is absent before, even where the domain has a value.
func TestRunningTask(t *testing.T) {
	r := runningTask()
	r.SurvivorsKilled = 1
	for _, r.Status = range []exec.Status{exec.StatusRunning, exec.StatusStopping} {
		f := newFixture(t)
		f.runner.get = func(exec.Caller, exec.Kind, string) (exec.Run, error) { return r, nil }
		got := string(f.do(t, "GET", taskURL, "").body)
		want := `{"id":"` + sampleID + `","status":"` + string(r.Status) + `","exitCode":null,"signal":null,"command":"echo hi",` +
			`"stdout":{"bytes":0,"retainedFrom":0,"url":"` + taskURL + `/streams/stdout"},"stderr":{"bytes":0,"retainedFrom":0,"url":"` + taskURL + `/streams/stderr"},` +
			`"spec":{"command":"echo hi","workdir":"/w","stdoutMaxBytes":64000,"stderrMaxBytes":64000,"sandboxMode":"read-only","workspaceRoot":"/w",` +
			`"mergeStderr":false,"outputEncoding":"text"},"startedAt":"2026-01-02T02:04:05.006Z"}` + "\n"
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// TestTaskFence: someone else's task, a run and an unknown id get the same answer.
func TestTaskFence(t *testing.T) {
	f := newFixture(t)
	mine := ownerKey("", "alice")
	const runID = "bash-bbbbbbbbbbbbbbbbbbbbbbbbbb"
	f.runner.get = func(c exec.Caller, k exec.Kind, id string) (exec.Run, error) {
		if c.Owner == mine && (id == sampleID && k == exec.Background || id == runID && k == exec.Foreground) {
			r := sampleTask()
			r.ID, r.Kind = id, k
			r.Spec.Timeout = time.Second
			return r, nil
		}
		return exec.Run{}, noRun(id)
	}
	f.do(t, "GET", taskURL, "", "X-Owner-Token: alice").wantStatus(t, 200)
	f.do(t, "GET", "/v1/runs/"+runID, "", "X-Owner-Token: alice").wantStatus(t, 200)
	f.do(t, "GET", "/v1/tasks/"+runID, "", "X-Owner-Token: alice").wantProblem(t, 404, exec.CodeNotFound)
	f.do(t, "GET", "/v1/runs/"+sampleID, "", "X-Owner-Token: alice").wantProblem(t, 404, exec.CodeNotFound)
	for _, route := range taskRoutes {
		answers := make(map[string]bool)
		for _, id := range []string{sampleID, runID, "bash-aaaaaaaaaaaaaaaaaaaaaaaaaa"} {
			a := f.do(t, route.method, strings.Replace(route.path, sampleID, id, 1), route.body, "X-Owner-Token: bob", "X-Request-Id: r")
			a.wantProblem(t, 404, exec.CodeNotFound)
			answers[strings.ReplaceAll(string(a.body), id, "ID")] = true
			if f.runner.caller.Owner != ownerKey("", "bob") {
				t.Errorf("%s: asked for %v", route.path, f.runner.caller)
			}
		}
		if len(answers) != 1 {
			t.Errorf("%s %s tells: %v", route.method, route.path, answers)
		}
	}
}

func TestListTasks(t *testing.T) {
	f := newFixture(t)
	var asked exec.ListOptions
	long := sampleTask()
	long.Spec.Command = strings.Repeat("é", 3000)
	f.runner.list = func(_ exec.Caller, o exec.ListOptions) ([]exec.Run, int64, error) {
		asked = o
		return []exec.Run{runningTask(), long}, 77, nil
	}
	a := f.do(t, "GET", "/v1/tasks", "", "X-Owner-Token: alice")
	var page taskList
	if err := json.Unmarshal(a.body, &page); err != nil {
		t.Fatal(err)
	}
	if asked.Kind != exec.Background || asked.Limit != 50 || asked.Before != 0 || asked.Statuses != nil || asked.Session != "" {
		t.Errorf("%+v", asked)
	}
	if r := page.Tasks[1]; r.Command != strings.Repeat("é", 2048) || !r.CommandTruncated || r.Spec != nil {
		t.Errorf("%+v", r)
	}
	f.do(t, "GET", "/v1/tasks?limit=200&status=running&status=failed&cursor="+page.Next, "", "X-Owner-Token: alice").wantStatus(t, 200)
	if asked.Limit != 200 || asked.Before != 77 || !slices.Equal(asked.Statuses, []exec.Status{exec.StatusRunning, exec.StatusFailed}) {
		t.Errorf("%+v", asked)
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=201": "limit", "limit=+1": "limit", "limit=-1": "limit", "limit=18446744073709551617": "limit", "limit=1&limit=2": "limit",
		"status=done": "status", "cursor=x": "cursor", "cursor=": "cursor", "session=s": "session", "session=": "session", "kind=x": "kind",
	} {
		f.do(t, "GET", "/v1/tasks?"+query, "", "X-Owner-Token: alice").wantProblem(t, 400, exec.CodeInvalidArgument, field)
	}
	// All that is wrong is told at once, and a cursor serves one list and one caller.
	f.do(t, "GET", "/v1/tasks?limit=0&status=x&cursor=y", "").wantProblem(t, 400, exec.CodeInvalidArgument, "limit", "status", "cursor")
	next := url.QueryEscape(page.Next)
	f.do(t, "GET", "/v1/tasks?cursor="+next, "", "X-Owner-Token: bob").wantProblem(t, 400, exec.CodeInvalidArgument, "cursor")
	f.do(t, "GET", "/v1/runs?cursor="+next, "", "X-Owner-Token: alice").wantProblem(t, 400, exec.CodeInvalidArgument, "cursor")
	f.runner.list = nil
	if got := string(f.do(t, "GET", "/v1/tasks", "").body); got != `{"tasks":[]}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestDeleteTask(t *testing.T) {
	f := newFixture(t)
	var deleted []string
	f.runner.remove = func(id string) error {
		deleted = append(deleted, id)
		return nil
	}
	a := f.do(t, "DELETE", taskURL, "")
	a.wantStatus(t, 204)
	if len(a.body) != 0 || a.Header.Get("Content-Type") != "" || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%q %v", a.body, a.Header)
	}
	f.do(t, "DELETE", taskURL+"?force=true", "").wantProblem(t, 400, exec.CodeInvalidArgument, "force")
	if !slices.Equal(deleted, []string{sampleID}) {
		t.Errorf("%q", deleted)
	}
}

func TestKillTask(t *testing.T) {
	f := newFixture(t)
	var reasons []string
	f.runner.kill = func(k exec.Kind, id, reason string) (exec.KillOutcome, exec.Run, error) {
		if k != exec.Background || id != sampleID {
			return "", exec.Run{}, noRun(id)
		}
		reasons = append(reasons, reason)
		if len(reasons) == 1 {
			r := runningTask()
			r.Status = exec.StatusStopping
			return exec.KillRequested, r, nil
		}
		return exec.AlreadyFinished, sampleTask(), nil
	}
	for i, want := range []string{`{"outcome":"cancellation-requested","task":{"id":"` + sampleID + `","status":"stopping",`, `{"outcome":"already-finished","task":{"id":"` + sampleID + `","status":"completed",`} {
		a := f.do(t, "POST", taskURL+"/kill", []string{"", `{"reason":"r"}`}[i])
		a.wantStatus(t, 202)
		if !bytes.HasPrefix(a.body, []byte(want)) {
			t.Errorf("%s", a.body)
		}
	}
	if !slices.Equal(reasons, []string{"", "r"}) {
		t.Errorf("%q", reasons)
	}
	f.do(t, "POST", taskURL+"/kill", `{"reason":1}`).wantProblem(t, 400, exec.CodeInvalidArgument, "reason")
}

func TestWaitTask(t *testing.T) {
	f := newFixture(t)
	var asked time.Duration
	f.runner.wait = func(_ context.Context, id string, timeout time.Duration) (exec.Run, error) {
		asked = timeout
		return sampleTask(), nil
	}
	for query, want := range map[string]time.Duration{
		"": 30 * time.Second, "?timeoutMs=1": time.Millisecond, "?timeoutMs=600000": 10 * time.Minute, "?timeoutMs=600001": 10 * time.Minute,
		"?timeoutMs=18446744073709551617": 10 * time.Minute, "?timeoutMs=0005": 5 * time.Millisecond,
	} {
		a := f.do(t, "GET", taskURL+"/wait"+query, "")
		a.wantStatus(t, 200)
		if asked != want || !bytes.Contains(a.body, []byte(`"status":"completed"`)) || !bytes.Contains(a.body, []byte(`"spec":`)) {
			t.Errorf("%q: %v %s", query, asked, a.body)
		}
	}
	asked = 0
	for _, v := range []string{"0", "-1", "1.5", "x", "", "%2B1", "1e3", "%201"} {
		f.do(t, "GET", taskURL+"/wait?timeoutMs="+v, "").wantProblem(t, 400, exec.CodeInvalidArgument, "timeoutMs")
	}
	f.do(t, "GET", taskURL+"/wait?waitMs=1", "").wantProblem(t, 400, exec.CodeInvalidArgument, "waitMs")
	f.do(t, "GET", taskURL+"/wait?timeoutMs=1&timeoutMs=1", "").wantProblem(t, 400, exec.CodeInvalidArgument, "timeoutMs")
	if asked != 0 {
		t.Errorf("waited %v", asked)
	}
	f.do(t, "HEAD", taskURL+"/wait", "").wantStatus(t, 200)
}

func TestTaskStdin(t *testing.T) {
	f := newFixture(t)
	type write struct {
		data string
		end  bool
	}
	var got []write
	f.runner.stdin = func(_ context.Context, id string, data []byte, end bool) (int, error) {
		got = append(got, write{string(data), end})
		return len(data), nil
	}
	for body, want := range map[string]write{
		`{"data":"a\u0000é\n"}`:           {"a\x00é\n", false},
		`{"dataBase64":"/wA="}`:           {"\xff\x00", false},
		`{"data":"x","close":true}`:       {"x", true},
		`{"close":true}`:                  {"", true},
		`{"data":""}`:                     {"", false},
		`{"dataBase64":"","close":false}`: {"", false},
	} {
		a := f.do(t, "POST", taskURL+"/stdin", body)
		a.wantStatus(t, 200)
		if last := got[len(got)-1]; last != want {
			t.Errorf("%s: %+v", body, last)
		}
		var answer stdinBody
		if err := json.Unmarshal(a.body, &answer); err != nil || answer.Written != len(want.data) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	n := len(got)
	for body, field := range map[string]string{
		"": "body", `{}`: "data", `{"close":false}`: "data", `{"data":"a","dataBase64":"YQ=="}`: "dataBase64", `{"dataBase64":"a"}`: "dataBase64",
		`{"data":1}`: "data", `{"data":null}`: "data", `{"close":"true"}`: "close", `{"data":"a","eof":true}`: "eof", `{"data":"\ud800"}`: "body",
	} {
		f.do(t, "POST", taskURL+"/stdin", body).wantProblem(t, 400, exec.CodeInvalidArgument, field)
	}
	if len(got) != n {
		t.Error("something was written all the same")
	}
	// What is wrong with one field does not make another one missing.
	if p := f.do(t, "POST", taskURL+"/stdin", `{"close":1}`).problem(t); len(p.Errors) != 1 {
		t.Errorf("%+v", p.Errors)
	}
}

func TestTaskStream(t *testing.T) {
	f := newFixture(t)
	f.runner.stream = func(k exec.Kind, id string, s exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
		if k != exec.Background || id != sampleID {
			return nil, 0, time.Time{}, noRun(id)
		}
		return &content{Reader: bytes.NewReader([]byte(s))}, int64(len(s)), time.Unix(1, 0), nil
	}
	for _, name := range []string{"stdout", "stderr"} {
		a := f.do(t, "GET", taskURL+"/streams/"+name, "")
		a.wantStatus(t, 200)
		if string(a.body) != name || a.Header.Get("Content-Disposition") != `attachment; filename="`+name+`"` {
			t.Errorf("%q %v", a.body, a.Header)
		}
	}
	a := f.do(t, "GET", taskURL+"/streams/stdout", "", "Range: bytes=2-")
	a.wantStatus(t, 206)
	if string(a.body) != "dout" {
		t.Errorf("%q", a.body)
	}
	f.do(t, "GET", taskURL+"/streams/stdout", "", "Range: bytes=6-").wantProblem(t, 416, codeRangeNotSatisfiable)
	f.do(t, "GET", taskURL+"/streams/stdin", "").wantProblem(t, 404, exec.CodeNotFound)
	f.do(t, "HEAD", taskURL+"/streams/stdout", "").wantStatus(t, 200)
}

// TestWaitsEndWithTheClient: nobody waits for a task, for output or for a pipe on behalf of someone who is gone.
func TestWaitsEndWithTheClient(t *testing.T) {
	for _, request := range []string{
		"GET " + taskURL + "/wait?timeoutMs=600000 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET " + taskURL + "/output?waitMs=600000 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST " + taskURL + "/stdin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n" + `{"data":"x"}`,
	} {
		f := newFixture(t)
		started, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		blocks := func(ctx context.Context) {
			started <- struct{}{}
			select {
			case <-ctx.Done():
				gone <- struct{}{}
			case <-time.After(20 * time.Second):
			}
		}
		f.runner.wait = func(ctx context.Context, _ string, _ time.Duration) (exec.Run, error) {
			blocks(ctx)
			return runningTask(), nil
		}
		f.runner.output = func(ctx context.Context, _ string, _ exec.ReadOptions) (exec.Page, error) {
			blocks(ctx)
			return exec.Page{Next: "c", Task: runningTask()}, nil
		}
		f.runner.stdin = func(ctx context.Context, _ string, _ []byte, _ bool) (int, error) {
			blocks(ctx)
			return 0, nil
		}
		conn := dial(t, f.addr)
		if _, err := conn.Write([]byte(request + "\r\n")); err != nil { // more bytes, so that net/http looks no further
			t.Fatal(err)
		}
		wait(t, "start", started)
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wait(t, request, gone)
		readAnswer(t, conn).wantStatus(t, 200)
	}
}
