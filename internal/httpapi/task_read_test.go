package httpapi

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
)

func samplePage() exec.Page {
	return exec.Page{
		Stdout: exec.Piece{From: 5, To: 8, Data: []byte("out"), Text: "out"},
		Stderr: exec.Piece{From: 0, To: 4, Data: []byte("e\xff<\n"), Text: "e\ufffd<\n"},
		Next:   "cursor", More: true, Lossy: true, Task: runningTask(),
	}
}

// listedTask is how a page shows runningTask.
const listedTask = `{"id":"` + sampleID + `","status":"running","exitCode":null,"signal":null,"command":"echo hi",` +
	`"stdout":{"bytes":0,"retainedFrom":0,"url":"` + taskURL + `/streams/stdout"},"stderr":{"bytes":0,"retainedFrom":0,"url":"` + taskURL + `/streams/stderr"},` +
	`"startedAt":"2026-01-02T02:04:05.006Z"}`

// TestPageGolden pins names, order and form of a page, and that both reads give the same.
func TestPageGolden(t *testing.T) {
	f := newFixture(t)
	f.runner.output = func(context.Context, string, exec.ReadOptions) (exec.Page, error) { return samplePage(), nil }
	f.runner.consume = func(string) (exec.Page, error) { return samplePage(), nil }
	want := `{"delta":"out\n[stderr]\ne�<\n","stdout":{"from":5,"to":8,"text":"out"},"stderr":{"from":0,"to":4,"text":"e�<\n"},` +
		`"lossy":true,"nextCursor":"cursor","more":true,"eof":false,"task":` + listedTask + "}\n"
	for _, a := range []answer{f.do(t, "GET", taskURL+"/output", ""), f.do(t, "POST", taskURL+"/read", ""), f.do(t, "POST", taskURL+"/read", "{}")} {
		a.wantStatus(t, 200)
		if string(a.body) != want {
			t.Errorf("got\n%s\nwant\n%s", a.body, want)
		}
	}
	f.do(t, "HEAD", taskURL+"/output", "").wantStatus(t, 200)
}

func TestPageInBase64(t *testing.T) {
	f := newFixture(t)
	f.runner.output = func(context.Context, string, exec.ReadOptions) (exec.Page, error) {
		p := samplePage()
		p.Task.Spec.Encoding, p.Stdout = exec.EncodingBase64, exec.Piece{From: 5, To: 5}
		return p, nil
	}
	want := `{"delta":"[stderr]\ne�<\n","stdout":{"from":5,"to":5,"dataBase64":""},"stderr":{"from":0,"to":4,"dataBase64":"Zf88Cg=="},`
	if a := f.do(t, "GET", taskURL+"/output", ""); !bytes.HasPrefix(a.body, []byte(want)) {
		t.Errorf("%s", a.body)
	}
}

// TestLastPage is one of a settled task with truncated streams and a long command.
func TestLastPage(t *testing.T) {
	f := newFixture(t)
	f.runner.consume = func(string) (exec.Page, error) {
		r := sampleTask()
		r.Spec.Command = strings.Repeat("x", 5000)
		r.Stdout.Truncated, r.Stdout.SpillPath, r.Stderr.Truncated, r.Stderr.SpillPath = true, "/s/out", true, "/s/err"
		return exec.Page{EOF: true, Next: "end", Task: r}, nil
	}
	a := f.do(t, "POST", taskURL+"/read", "")
	if want := `"nextCursor":"end","more":false,"eof":true,"stdoutSpillPath":"/s/out","stderrSpillPath":"/s/err","task":{`; !bytes.Contains(a.body, []byte(want)) {
		t.Errorf("%s", a.body)
	}
	if bytes.Contains(a.body, []byte(`"spec"`)) || !bytes.Contains(a.body, []byte(`"commandTruncated":true`)) || bytes.Contains(a.body, bytes.Repeat([]byte("x"), 4097)) {
		t.Errorf("the task is not as in lists: %s", a.body)
	}
}

func TestReadOptions(t *testing.T) {
	f := newFixture(t)
	asked := 0
	var got exec.ReadOptions
	f.runner.output = func(_ context.Context, _ string, o exec.ReadOptions) (exec.Page, error) {
		asked++
		got = o
		return samplePage(), nil
	}
	for query, want := range map[string]exec.ReadOptions{
		"":                        {MaxBytes: 65536},
		"?waitMs=0&maxBytes=1":    {MaxBytes: 1},
		"?waitMs=600000&cursor=c": {MaxBytes: 65536, Wait: 10 * time.Minute, Cursor: "c"},
		"?maxBytes=1048576":       {MaxBytes: 1 << 20},
	} {
		f.do(t, "GET", taskURL+"/output"+query, "").wantStatus(t, 200)
		if got != want {
			t.Errorf("%s: %+v", query, got)
		}
	}
	n := asked
	for query, field := range map[string]string{
		"waitMs=600001": "waitMs", "waitMs=-1": "waitMs", "waitMs=x": "waitMs", "waitMs=": "waitMs", "waitMs=1&waitMs=1": "waitMs",
		"maxBytes=0": "maxBytes", "maxBytes=1048577": "maxBytes", "maxBytes=99999999999999999999": "maxBytes", "cursor=": "cursor",
		"cursor=a&cursor=a": "cursor", "timeoutMs=1": "timeoutMs", "wait_ms=1": "wait_ms",
	} {
		f.do(t, "GET", taskURL+"/output?"+query, "").wantProblem(t, 400, exec.CodeInvalidArgument, field)
	}
	f.do(t, "GET", taskURL+"/output?waitMs=x&maxBytes=x&cursor=", "").wantProblem(t, 400, exec.CodeInvalidArgument, "waitMs", "maxBytes", "cursor")
	if asked != n {
		t.Errorf("%d reads of refused requests", asked-n)
	}
}

func TestConsumeTakesNothing(t *testing.T) {
	f := newFixture(t)
	f.runner.consume = func(string) (exec.Page, error) {
		t.Error("consumed")
		return samplePage(), nil
	}
	f.do(t, "POST", taskURL+"/read", `{"cursor":"c"}`).wantProblem(t, 400, exec.CodeInvalidArgument, "cursor")
	f.do(t, "POST", taskURL+"/read?cursor=c", "").wantProblem(t, 400, exec.CodeInvalidArgument, "cursor")
	f.do(t, "POST", taskURL+"/read", "[]").wantProblem(t, 400, exec.CodeInvalidArgument, "body")
	f.do(t, "GET", taskURL+"/read", "").wantProblem(t, 405, codeMethodNotAllowed)
}
