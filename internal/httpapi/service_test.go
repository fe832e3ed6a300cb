package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"bashd"
	"bashd/internal/exec"
	"bashd/internal/httpapi/apitest"
)

// TestDocumentHasEveryRoute: what is routed is documented, and the reverse.
func TestDocumentHasEveryRoute(t *testing.T) {
	o, _, _ := options()
	var routed []string
	err := chi.Walk(New(o).router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routed = append(routed, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	documented := apitest.Operations(t)
	slices.Sort(routed)
	slices.Sort(documented)
	if !slices.Equal(routed, documented) {
		t.Errorf("routed\n%s\ndocumented\n%s", strings.Join(routed, "\n"), strings.Join(documented, "\n"))
	}
}

// TestDocumentHasEveryCode: each code that can occur is one that clients can read about.
func TestDocumentHasEveryCode(t *testing.T) {
	var documented []exec.Code
	for _, v := range apitest.Document(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		documented = append(documented, exec.Code(fmt.Sprint(v)))
	}
	for code := range problemKinds {
		if code != codeUnauthenticated && !slices.Contains(documented, code) {
			t.Errorf("%s is not documented", code)
		}
	}
	for _, code := range documented {
		if _, ok := problemKinds[code]; !ok {
			t.Errorf("%s is documented but unknown", code)
		}
	}
}

// TestExamplesDecode: what the document shows as requests is accepted.
func TestExamplesDecode(t *testing.T) {
	for path, status := range map[string]int{"/v1/runs": 200, "/v1/tasks": 201, "/v1/tasks/{id}/stdin": 200} {
		content := apitest.Document(t).Paths.Find(path).Post.RequestBody.Value.Content["application/json"]
		for name, example := range content.Examples {
			f := newFixture(t)
			f.runner.stdin = func(_ context.Context, _ string, data []byte, _ bool) (int, error) { return len(data), nil }
			body, err := example.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte(`{"value":`)), []byte("}"))
			if a := f.do(t, "POST", strings.Replace(path, "{id}", sampleID, 1), string(body)); a.StatusCode != status {
				t.Errorf("%s %s: %d %s: %s", path, name, a.StatusCode, a.body, body)
			}
		}
		if len(content.Examples) < 2 {
			t.Errorf("%s: %d examples", path, len(content.Examples))
		}
	}
}

func TestService(t *testing.T) {
	var reasons []string
	f := newFixture(t, func(o *Options) { o.Ready = func() []string { return reasons } })
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}` + "\n", "/readyz": `{"status":"ready"}` + "\n", "/openapi.yaml": string(bashd.OpenAPI)} {
		if a := f.do(t, "GET", path, ""); a.StatusCode != 200 || string(a.body) != want {
			t.Errorf("%s: %d %.100q", path, a.StatusCode, a.body)
		}
	}
	reasons = []string{"draining"}
	if a := f.do(t, "GET", "/readyz", ""); a.StatusCode != 503 || string(a.body) != `{"status":"unready","reasons":["draining"]}`+"\n" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	a := f.do(t, "GET", "/metrics", "")
	for _, want := range []string{
		`bashd_http_requests_total{method="GET",route="/healthz",status="200"} 1`,
		`bashd_http_requests_total{method="GET",route="/readyz",status="503"} 1`,
	} {
		if !bytes.Contains(a.body, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
	f.do(t, "GET", "/healthz?x=1", "").wantProblem(t, 400, exec.CodeInvalidArgument, "x")
}

func TestInfo(t *testing.T) {
	got := string(newFixture(t).do(t, "GET", "/v1/info", "").body)
	want := `{"version":"v0","modes":{"default":"read-only","max":"workspace-write"},"approvals":false,` +
		`"managedEnv":[{"name":"DSH_SHELL","source":"built-in"}],` +
		`"sandbox":{"tier":"C","abi":7,"cleanup":"domain","runAs":true,"processLimit":"user","memoryLimit":true,"readOnly":{"enforcement":"full"},"workspaceWrite":{"enforcement":"partial","gaps":["metadata"]}},` +
		`"limits":{"commandBytes":1048576,"bodyBytes":8388608,"defaultTimeoutMs":120000,"maxTimeoutMs":600000,"graceMs":3000,` +
		`"defaultOutputBytes":64000,"maxStdoutBytes":8388608,"maxSpillBytes":67108864,"maxRunning":256,"maxRunningPerOwner":128,"maxTasksPerOwner":10,"retentionMs":86400000,` +
		`"commandOpenFiles":4096,"commandFileBytes":4294967296}}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRouting(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""},
		{"GET", "/v1", 404, ""},
		{"GET", "/v1/", 404, ""},
		{"GET", "/v1/runs/", 404, ""},
		{"GET", "/V1/runs", 404, ""},
		{"GET", "/v1/tasks/", 404, ""},
		{"GET", "/v1/sessions", 404, ""},
		{"PUT", "/v1/tasks", 405, "GET, HEAD, POST"},
		{"POST", "/v1/tasks/" + sampleID, 405, "GET, HEAD, DELETE"},
		{"GET", "/v1/tasks/" + sampleID + "/read", 405, "POST"},
		{"GET", "/v1/tasks/" + sampleID + "/events", 404, ""},
		{"GET", "/healthz/", 404, ""},
		{"BREW", "/nowhere", 404, ""},
		{"BREW", "/v1/runs", 405, "GET, HEAD, POST"},
		{"PATCH", "/v1/runs", 405, "GET, HEAD, POST"},
		{"OPTIONS", "/v1/runs", 405, "GET, HEAD, POST"},
		{"DELETE", "/v1/runs/" + sampleID, 405, "GET, HEAD"},
		{"GET", "/v1/runs/" + sampleID + "/kill", 405, "POST"},
		{"HEAD", "/v1/runs/" + sampleID + "/kill", 405, "POST"},
		{"POST", "/healthz", 405, "GET, HEAD"},
		{"TRACE", "/healthz", 405, "GET, HEAD"},
		{"HEAD", "/healthz", 200, ""},
		{"HEAD", "/metrics", 200, ""},
		{"HEAD", "/v1/runs", 200, ""},
		{"HEAD", "/v1/runs/x", 404, ""},
		{"HEAD", "/v1/tasks", 200, ""},
		{"HEAD", "/v1/tasks/x", 404, ""},
	} {
		a := f.do(t, c.method, c.path, "")
		if a.StatusCode != c.status || a.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.path, a.StatusCode, a.Header.Get("Allow"))
		}
		inAPI := strings.HasPrefix(c.path, "/v1/")
		if got := a.Header.Get("Cache-Control") == "no-store" && a.Header.Get("Vary") == "Accept, Origin"; got != inAPI {
			t.Errorf("%s %s: Cache-Control %q, Vary %q", c.method, c.path, a.Header.Get("Cache-Control"), a.Header.Get("Vary"))
		}
		if a.Header.Get("X-Request-Id") == "" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %v", c.method, c.path, a.Header)
		}
	}
}

// TestServerWideOptions: "OPTIONS *" is not net/http's own business.
func TestServerWideOptions(t *testing.T) {
	c := dial(t, newFixture(t).addr)
	fmt.Fprint(c, "OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	readAnswer(t, c).wantProblem(t, 403, codeForbidden)
	fmt.Fprint(c, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
	readAnswer(t, c).wantProblem(t, 404, exec.CodeNotFound)
}

func TestRequestID(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for _, id := range []string{"a", "A-b_c.9", strings.Repeat("x", 128)} {
		if got := f.do(t, "GET", "/healthz", "", "X-Request-Id: "+id).Header.Get("X-Request-Id"); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	for _, headers := range [][]string{nil, {"X-Request-Id: "}, {"X-Request-Id: a b"}, {"X-Request-Id: é"}, {"X-Request-Id: " + strings.Repeat("x", 129)}, {"X-Request-Id: a", "X-Request-Id: a"}} {
		got := f.do(t, "GET", "/healthz", "", headers...).Header.Get("X-Request-Id")
		if !isRequestID(got) || len(got) < 20 || seen[got] {
			t.Errorf("%q: %q", headers, got)
		}
		seen[got] = true
	}
}

// TestLogTellsNothingPrivate sends a secret in every place that a request has.
func TestLogTellsNothingPrivate(t *testing.T) {
	f := newFixture(t)
	body := `{"command":"echo SECRET","description":"SECRET","workdir":"/SECRET","stdin":"SECRET","env":{"SECRET":"SECRET"}}`
	f.do(t, "POST", "/v1/runs", body, "X-Owner-Token: SECRET", "Cookie: SECRET", "User-Agent: SECRET", "X-Request-Id: SECRET SECRET").wantStatus(t, 200)
	f.do(t, "POST", "/v1/runs", strings.Replace(body, `"stdin"`, `"stdIn"`, 1)).wantStatus(t, 400)
	f.do(t, "GET", "/v1/runs?cursor=SECRET", "").wantStatus(t, 400)
	f.do(t, "GET", "/v1/runs/SECRET", "", "Authorization: Bearer SECRET").wantStatus(t, 404)
	f.do(t, "POST", "/v1/tasks", strings.Replace(body, `{`, `{"stdinOpen":true,`, 1), "Idempotency-Key: SECRET").wantStatus(t, 201)
	f.do(t, "POST", "/v1/tasks/SECRET/stdin", `{"data":"SECRET"}`).wantStatus(t, 404)
	f.do(t, "POST", "/v1/tasks/SECRET/stdin", `{"data":"SECRET","dataBase64":"SECRET"}`).wantStatus(t, 400)
	f.do(t, "GET", "/v1/tasks/SECRET/output?cursor=SECRET", "").wantStatus(t, 404)
	f.do(t, "GET", "/SECRET", "", "Authorization: Basic SECRET").wantStatus(t, 404)
	f.do(t, "SECRET", "/healthz", "").wantStatus(t, 405)
	if strings.Contains(f.logs.String(), "SECRET") {
		t.Errorf("%s", f.logs)
	}
	for _, want := range []string{"route=/v1/runs ", "route=/v1/runs/{id} ", "route=unmatched ", "method=other ", "status=400 ", "duration=", "requestId="} {
		if !strings.Contains(f.logs.String(), want) {
			t.Errorf("no %q in\n%s", want, f.logs)
		}
	}
	if n := strings.Count(f.logs.String(), "msg=request "); n != 10 {
		t.Errorf("%d lines for 10 requests", n)
	}
}

func TestPanic(t *testing.T) {
	f := newFixture(t)
	f.runner.run = func(context.Context, exec.Request) (exec.Run, error) { panic("the inside") }
	a := f.do(t, "POST", "/v1/runs", `{"command":"id"}`)
	a.wantProblem(t, 500, exec.CodeInternal)
	if bytes.Contains(a.body, []byte("inside")) {
		t.Errorf("%s", a.body)
	}
	if log := f.logs.String(); !strings.Contains(log, "the inside") || !strings.Contains(log, "createRun") || !strings.Contains(log, "status=500") {
		t.Errorf("%s", log)
	}
	f.do(t, "GET", "/healthz", "").wantStatus(t, 200)

	f.runner.run = func(context.Context, exec.Request) (exec.Run, error) { panic(http.ErrAbortHandler) }
	logged := strings.Count(f.logs.String(), "level=ERROR")
	if resp, err := f.client.Do(f.request(t, "POST", "/v1/runs", `{"command":"id"}`)); err == nil {
		resp.Body.Close()
		t.Error("an aborted handler answered")
	}
	if strings.Count(f.logs.String(), "level=ERROR") != logged {
		t.Error("an intended abort is logged as an error")
	}
}

// TestPanicAfterTheAnswerBegan: half an answer must not look like a whole one.
func TestPanicAfterTheAnswerBegan(t *testing.T) {
	f := newFixture(t)
	f.router.Get("/half", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		panic(errors.New("late"))
	})
	resp, err := f.client.Do(f.request(t, "GET", "/half", ""))
	if err == nil {
		resp.Body.Close()
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestRejectionsAreCounted(t *testing.T) {
	f := newFixture(t)
	f.do(t, "GET", "/nowhere", "")
	f.do(t, "POST", "/v1/runs", `{}`)
	f.do(t, "POST", "/v1/runs", `{}`)
	text := string(f.do(t, "GET", "/metrics", "").body)
	for _, want := range []string{`bashd_rejections_total{code="NOT_FOUND"} 1`, `bashd_rejections_total{code="INVALID_ARGUMENT"} 2`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}
