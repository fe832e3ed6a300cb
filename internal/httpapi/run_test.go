package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

func TestCreateRun(t *testing.T) {
	f := newFixture(t)
	body := `{"command":"cat","description":"d","workdir":"/w","timeoutMs":1e3,"stdin":"a\u0000b","env":{"A":"1","B":""},
		"sandboxMode":"workspace-write","stdoutMaxBytes":8388608,"mergeStderr":true,"outputEncoding":"base64"}`
	a := f.do(t, "POST", "/v1/runs", body, "Content-Type: application/json; charset=UTF-8")
	a.wantStatus(t, 200)
	got := f.runner.requests()[0]
	if got.Command != "cat" || got.Description != "d" || got.Workdir != "/w" || got.Timeout == nil || *got.Timeout != time.Second ||
		string(got.Stdin) != "a\x00b" || !got.HasStdin || len(got.Env) != 2 || got.Env["A"] != "1" || got.SandboxMode != "workspace-write" ||
		got.StdoutMaxBytes != 8<<20 || !got.MergeStderr || got.Encoding != exec.EncodingBase64 {
		t.Errorf("%+v", got)
	}
	f.do(t, "POST", "/v1/runs", `{"command":"id","stdinBase64":"/wA=\n"}`).wantStatus(t, 200)
	if got := f.runner.requests()[1]; !bytes.Equal(got.Stdin, []byte{0xff, 0}) || !got.HasStdin || got.Timeout != nil || got.Env != nil {
		t.Errorf("%+v", got)
	}
	f.do(t, "POST", "/v1/runs", `{"command":"cat","stdin":""}`).wantStatus(t, 200)
	if got := f.runner.requests()[2]; !got.HasStdin || len(got.Stdin) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRefusedHeaders(t *testing.T) {
	f := newFixture(t)
	f.do(t, "POST", "/v1/runs", `{"command":"id"}`, "Accept: text/event-stream").wantProblem(t, 400, exec.CodeInvalidArgument, "Accept")
	f.wantNothingRun(t)
	f.do(t, "POST", "/v1/runs", `{"command":"id"}`, "X-Session-Id: s1").wantStatus(t, 200)
}

// TestRunGolden pins names, order and form of everything a run can show.
func TestRunGolden(t *testing.T) {
	r := sampleRun()
	r.Status, r.ExitCode, r.Signal, r.Cause = exec.StatusKilled, nil, syscall.SIGKILL, exec.CauseTimeout
	r.Stdout = exec.Stream{Tail: []byte("a<b>\x1b\x07\xff"), Truncated: true, Bytes: 70000, SpillPath: "/s/o"}
	r.Stderr = exec.Stream{Tail: []byte("e"), Truncated: true, Bytes: 70000}
	r.Spec.Description, r.Spec.Env = "d", map[string]string{"B": "secret-value", "A": "x"}
	r.Spec.Stdin, r.Spec.HasStdin, r.Spec.StdinBytes, r.Spec.Session = []byte("secret-stdin"), true, 12, "s1"
	r.Sandbox = exec.SandboxFacts{
		Mode: "read-only", Enforcement: "partial", Gaps: []string{"metadata"}, Denied: true,
		Denial: &exec.Denial{Path: "/etc/x", Evidence: "line"}, Hint: "h",
	}
	r.DrainIncomplete, r.SurvivorsKilled, r.CleanupIncomplete, r.Detail, r.Unrecorded = true, 2, true, "why", true
	r.Usage = sandbox.Usage{User: 1500 * time.Microsecond, System: 2 * time.Millisecond, MaxRSSBytes: 4096}
	f := newFixture(t)
	f.runner.get = func(exec.Caller, exec.Kind, string) (exec.Run, error) { return r, nil }
	got := string(f.do(t, "GET", "/v1/runs/"+sampleID, "").body)
	want := `{"id":"` + sampleID + `","status":"killed","exitCode":null,"signal":"SIGKILL","timedOut":true,"aborted":false,"timeoutMs":1000,` +
		`"stdout":{"text":"a<b>\u001b\u0007�","truncated":true,"bytes":70000,"spillPath":"/s/o","url":"/v1/runs/` + sampleID + `/streams/stdout"},` +
		`"stderr":{"text":"e","truncated":true,"bytes":70000},` +
		`"sandbox":{"mode":"read-only","denied":true,"enforcement":"partial","gaps":["metadata","cleanup"],"denial":{"path":"/etc/x","evidence":"line"},"hint":"h"},` +
		`"spec":{"command":"echo hi","description":"d","workdir":"/w","session":"s1","timeoutMs":1000,"stdoutMaxBytes":64000,"stderrMaxBytes":64000,` +
		`"sandboxMode":"read-only","workspaceRoot":"/w","envNames":["A","B"],"stdinBytes":12,"mergeStderr":false,"outputEncoding":"text"},` +
		`"cause":"timeout","detail":"why","drainIncomplete":true,"startedAt":"2026-01-02T02:04:05.006Z","finishedAt":"2026-01-02T02:04:05.013Z",` +
		`"durationMs":7,"survivorsKilled":2,"usage":{"userMs":1,"systemMs":2,"maxRssBytes":4096},"unrecorded":true}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(r.Sandbox.Gaps) != 1 {
		t.Error("the runner's own slice was changed")
	}
}

func TestRunningRun(t *testing.T) {
	r := sampleRun()
	r.Status, r.ExitCode, r.FinishedAt, r.Duration = exec.StatusRunning, nil, time.Time{}, 0
	f := newFixture(t)
	f.runner.get = func(exec.Caller, exec.Kind, string) (exec.Run, error) { return r, nil }
	var got map[string]any
	if err := json.Unmarshal(f.do(t, "GET", "/v1/runs/x", "").body, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"finishedAt", "durationMs", "usage", "cause", "detail"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s is there", name)
		}
	}
	if v, ok := got["exitCode"]; !ok || v != nil {
		t.Errorf("exitCode %v", v)
	}
}

func TestBase64Output(t *testing.T) {
	r := sampleRun()
	r.Spec.Encoding, r.Stdout.Tail = exec.EncodingBase64, []byte{0xff, 0}
	f := newFixture(t)
	f.runner.run = func(context.Context, exec.Request) (exec.Run, error) { return r, nil }
	body := f.do(t, "POST", "/v1/runs", `{"command":"x"}`).body
	if !bytes.Contains(body, []byte(`"stdout":{"dataBase64":"/wA=",`)) || !bytes.Contains(body, []byte(`"stderr":{"dataBase64":"",`)) {
		t.Errorf("%s", body)
	}
}

func TestPlainText(t *testing.T) {
	f := newFixture(t)
	f.runner.run = func(context.Context, exec.Request) (exec.Run, error) {
		r := sampleRun()
		r.ExitCode, r.Stderr.Tail = new(3), []byte("oops")
		return r, nil
	}
	a := f.do(t, "POST", "/v1/runs", `{"command":"x"}`, "Accept: text/plain")
	if got := string(a.body); got != "hi\n[stderr]\noops\n[exit code: 3]\n" || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%q %q", a.Header.Get("Content-Type"), got)
	}
	f.do(t, "POST", "/v1/runs", `{}`, "Accept: text/plain").wantProblem(t, 400, exec.CodeInvalidArgument, "command")
}

// TestErrors: every code of the domain has its status, and only what is for
// the caller gets out.
func TestErrors(t *testing.T) {
	inner := errors.New("open /secret/path: no")
	for _, c := range []struct {
		err        error
		status     int
		code       exec.Code
		detail     string
		kind       string
		retryAfter string
	}{
		{&exec.Error{Code: exec.CodeInvalidArgument, Message: "m", Fields: []exec.FieldError{{Field: "workdir", Message: "m"}}}, 400, exec.CodeInvalidArgument, "m", "", ""},
		{&exec.Error{Code: exec.CodeModeNotAllowed, Message: "m"}, 403, exec.CodeModeNotAllowed, "m", "", ""},
		{&exec.Error{Code: exec.CodeWorkdirUnusable, Message: "m", Err: inner}, 422, exec.CodeWorkdirUnusable, "m", "", ""},
		{&exec.Error{Code: exec.CodeLimitReached, Message: "m", RetryAfter: 1500 * time.Millisecond}, 429, exec.CodeLimitReached, "m", "", "2"},
		{&exec.Error{Code: exec.CodeLimitReached, Message: "m"}, 429, exec.CodeLimitReached, "m", "", "1"},
		{&exec.Error{Code: exec.CodeSandboxUnavailable, Message: "m"}, 503, exec.CodeSandboxUnavailable, "m", "", ""},
		{&exec.Error{Code: exec.CodeStartFailed, Message: "m", Kind: "no-memory"}, 503, exec.CodeStartFailed, "m", "no-memory", ""},
		{&exec.Error{Code: exec.CodeShuttingDown, Message: "m", RetryAfter: 4 * time.Second}, 503, exec.CodeShuttingDown, "m", "", "4"},
		{&exec.Error{Code: exec.CodeInternal, Message: "secret message", Err: inner}, 500, exec.CodeInternal, "", "", ""},
		{&exec.Error{Code: "NEW_CODE", Message: "secret message"}, 500, exec.CodeInternal, "", "", ""},
		{inner, 500, exec.CodeInternal, "", "", ""},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			f := newFixture(t)
			f.runner.run = func(context.Context, exec.Request) (exec.Run, error) { return exec.Run{}, c.err }
			a := f.do(t, "POST", "/v1/runs", `{"command":"x"}`, "X-Request-Id: req-1")
			p := a.wantProblem(t, c.status, c.code)
			if p.Type != "urn:bashd:problem:"+string(c.code) || p.Kind != c.kind || p.RequestID != "req-1" || c.detail != "" && p.Detail != c.detail {
				t.Errorf("%+v", p)
			}
			if got := a.Header.Get("Retry-After"); got != c.retryAfter {
				t.Errorf("Retry-After %q", got)
			}
			if bytes.Contains(a.body, []byte("secret")) {
				t.Errorf("the inside is told: %s", a.body)
			}
			if logged := strings.Count(f.logs.String(), "level=ERROR"); (c.status == 500) != (logged == 1) {
				t.Errorf("%d errors in the log", logged)
			}
		})
	}
}

// TestFence: someone else's run and an unknown one get the same answer.
func TestFence(t *testing.T) {
	f := newFixture(t)
	owner := ownerKey("", "alice")
	f.runner.get = func(c exec.Caller, k exec.Kind, id string) (exec.Run, error) {
		if id == sampleID && c.Owner == owner && k == exec.Foreground {
			return sampleRun(), nil
		}
		return exec.Run{}, noRun(id)
	}
	const unknown = "bash-aaaaaaaaaaaaaaaaaaaaaaaaaa"
	f.do(t, "GET", "/v1/runs/"+sampleID, "", "X-Owner-Token: alice").wantStatus(t, 200)
	for _, c := range []struct{ method, suffix string }{{"GET", ""}, {"POST", "/kill"}, {"GET", "/streams/stdout"}} {
		normal := func(id string) string {
			a := f.do(t, c.method, "/v1/runs/"+id+c.suffix, "", "X-Owner-Token: bob", "X-Request-Id: r")
			a.wantProblem(t, 404, exec.CodeNotFound)
			a.Header.Del("Date")
			a.Header.Del("Content-Length")
			var headers strings.Builder
			if err := a.Header.Write(&headers); err != nil {
				t.Fatal(err)
			}
			return headers.String() + strings.ReplaceAll(string(a.body), id, "ID")
		}
		if foreign, missing := normal(sampleID), normal(unknown); foreign != missing {
			t.Errorf("%s: foreign\n%s\nunknown\n%s", c.suffix, foreign, missing)
		}
	}
}

func TestListRuns(t *testing.T) {
	f := newFixture(t)
	var asked exec.ListOptions
	long := sampleRun()
	long.Spec.Command = strings.Repeat("é", 3000)
	f.runner.list = func(_ exec.Caller, o exec.ListOptions) ([]exec.Run, int64, error) {
		asked = o
		return []exec.Run{sampleRun(), long}, 77, nil
	}
	a := f.do(t, "GET", "/v1/runs", "", "X-Owner-Token: alice")
	var page runList
	if err := json.Unmarshal(a.body, &page); err != nil {
		t.Fatal(err)
	}
	if asked.Kind != exec.Foreground || asked.Limit != 50 || asked.Before != 0 || asked.Statuses != nil {
		t.Errorf("%+v", asked)
	}
	if r := page.Runs[1]; r.Command != strings.Repeat("é", 2048) || !r.CommandTruncated || r.Spec != nil || r.Stdout.Text != nil {
		t.Errorf("%+v", r)
	}
	if r := page.Runs[0]; r.Command != "echo hi" || r.CommandTruncated {
		t.Errorf("%+v", r)
	}
	f.do(t, "GET", "/v1/runs?limit=200&status=running&status=failed&cursor="+page.Next, "", "X-Owner-Token: alice").wantStatus(t, 200)
	if asked.Limit != 200 || asked.Before != 77 || !slices.Equal(asked.Statuses, []exec.Status{exec.StatusRunning, exec.StatusFailed}) {
		t.Errorf("%+v", asked)
	}
	forged := "A" + page.Next[1:]
	if forged == page.Next {
		forged = "B" + page.Next[1:]
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=201": "limit", "limit=x": "limit", "limit=1&limit=2": "limit", "limit=": "limit", "limit=%2B1x": "limit",
		"status=done": "status", "status=": "status", "cursor=x": "cursor", "cursor=": "cursor", "cursor=" + forged: "cursor", "cursor=77": "cursor",
		"Limit=1": "Limit", "offset=1": "offset", "limit=1;status=x": "query", "limit=%zz": "query", "session=s": "session",
	} {
		f.do(t, "GET", "/v1/runs?"+query, "", "X-Owner-Token: alice").wantProblem(t, 400, exec.CodeInvalidArgument, field)
	}
	f.do(t, "GET", "/v1/runs?cursor="+url.QueryEscape(page.Next), "", "X-Owner-Token: bob").wantProblem(t, 400, exec.CodeInvalidArgument, "cursor")
	f.do(t, "GET", "/v1/runs?cursor="+url.QueryEscape(page.Next), "").wantProblem(t, 400, exec.CodeInvalidArgument, "cursor")
}

func TestEmptyListIsAnArray(t *testing.T) {
	if got := string(newFixture(t).do(t, "GET", "/v1/runs", "").body); got != `{"runs":[]}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestKillRun(t *testing.T) {
	f := newFixture(t)
	var reasons []string
	f.runner.kill = func(k exec.Kind, id, reason string) (exec.KillOutcome, exec.Run, error) {
		if k != exec.Foreground || id != sampleID {
			return "", exec.Run{}, noRun(id)
		}
		reasons = append(reasons, reason)
		return exec.KillRequested, sampleRun(), nil
	}
	path := "/v1/runs/" + sampleID + "/kill"
	a := f.do(t, "POST", path, "")
	a.wantStatus(t, 202)
	if !bytes.HasPrefix(a.body, []byte(`{"outcome":"cancellation-requested","run":{"id":"`)) {
		t.Errorf("%s", a.body)
	}
	f.do(t, "POST", path, `{}`).wantStatus(t, 202)
	f.do(t, "POST", path, `{"reason":"r"}`).wantStatus(t, 202)
	if !slices.Equal(reasons, []string{"", "", "r"}) {
		t.Errorf("%q", reasons)
	}
	f.do(t, "POST", path, `{"reason":1}`).wantProblem(t, 400, exec.CodeInvalidArgument, "reason")
	f.do(t, "POST", path, `{"Reason":"r"}`).wantProblem(t, 400, exec.CodeInvalidArgument, "Reason")
	f.do(t, "POST", path, `{"reason":"`+strings.Repeat("x", 1025)+`"}`).wantProblem(t, 400, exec.CodeInvalidArgument, "reason")
	if len(reasons) != 3 {
		t.Errorf("%d kills", len(reasons))
	}
}

// content is a stream that tells whether it was closed.
type content struct {
	*bytes.Reader
	closed bool
}

func (c *content) Close() error { c.closed = true; return nil }

func TestRunStream(t *testing.T) {
	f := newFixture(t)
	data := []byte("0123456789\xff\x00<html>")
	var opened []*content
	f.runner.stream = func(k exec.Kind, id string, s exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
		if k != exec.Foreground || id != sampleID {
			return nil, 0, time.Time{}, noRun(id)
		}
		if s == "stderr" {
			return nil, 0, time.Time{}, &exec.Error{Code: exec.CodeGone, Message: "gone"}
		}
		opened = append(opened, &content{Reader: bytes.NewReader(data)})
		return opened[len(opened)-1], int64(len(data)), time.Unix(1, 0), nil
	}
	path := "/v1/runs/" + sampleID + "/streams/stdout"
	a := f.do(t, "GET", path, "")
	a.wantStatus(t, 200)
	if !bytes.Equal(a.body, data) {
		t.Errorf("%q", a.body)
	}
	a = f.do(t, "GET", path, "", "Range: bytes=10-")
	a.wantStatus(t, 206)
	if !bytes.Equal(a.body, data[10:]) || a.Header.Get("Content-Range") != "bytes 10-17/18" {
		t.Errorf("%q %q", a.body, a.Header.Get("Content-Range"))
	}
	f.do(t, "GET", path, "", "Range: bytes=0-1,4-5").wantStatus(t, 206)
	f.do(t, "GET", path, "", "Range: lines=1-2").wantStatus(t, 200)
	f.do(t, "GET", path, "", "Range: bytes=4-99999999999999999999").wantStatus(t, 206)
	f.do(t, "GET", path, "", "Range: bytes=99999999999999999999-").wantProblem(t, 416, codeRangeNotSatisfiable)
	a = f.do(t, "HEAD", path, "")
	a.wantStatus(t, 200)
	if a.ContentLength != int64(len(data)) {
		t.Errorf("length %d", a.ContentLength)
	}
	f.do(t, "GET", path, "", "If-Modified-Since: "+a.Header.Get("Last-Modified")).wantStatus(t, 304)
	for _, r := range []string{"bytes=18-", "bytes=x", "bytes=5-4", "bytes=-0"} {
		a := f.do(t, "GET", path, "", "Range: "+r)
		a.wantProblem(t, 416, codeRangeNotSatisfiable)
		if a.Header.Get("Content-Disposition") != "" || a.Header.Get("Content-Range") != "bytes */18" {
			t.Errorf("%v", a.Header)
		}
	}
	f.do(t, "GET", "/v1/runs/"+sampleID+"/streams/stderr", "").wantProblem(t, 410, exec.CodeGone)
	f.do(t, "GET", "/v1/runs/"+sampleID+"/streams/stdin", "").wantProblem(t, 404, exec.CodeNotFound)
	for i, c := range opened {
		if !c.closed {
			t.Errorf("stream %d was left open", i)
		}
	}
}

func TestPreferred(t *testing.T) {
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "application/*": "application/json", "text/plain": "text/plain",
		"text/*": "text/plain", "text/event-stream": "text/event-stream", "text/event-stream, */*": "application/json",
		"text/event-stream, application/json": "application/json", "text/event-stream, application/json;q=0.9": "text/event-stream",
		"text/plain;q=0.5, application/json;q=0.4": "text/plain", "text/plain, application/json": "application/json",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "application/json", "image/png": "application/json",
		"application/problem+json": "application/json", "application/json;q=0, text/plain;q=0.1": "text/plain", "*/*;q=0": "application/json",
		"application/json;q=0, */*": "text/plain", "text/plain;q=2": "application/json", "text/plain;q=NaN": "application/json", ";;;": "application/json",
		"TEXT/PLAIN": "text/plain", "text/event-stream;q=0, text/*": "text/plain",
	} {
		if got := preferred([]string{accept}, "application/json", "text/plain", "text/event-stream"); got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
	if got := preferred([]string{"image/png", "text/plain"}, "application/json", "text/plain"); got != "text/plain" {
		t.Errorf("two fields: %s", got)
	}
	if got := preferred(nil, "application/json", "text/plain"); got != "application/json" {
		t.Errorf("no field: %s", got)
	}
}
