package apitest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// spy records whether Validate failed.
type spy struct {
	testing.TB
	failures []string
}

func (s *spy) Helper()                   {}
func (s *spy) Errorf(f string, a ...any) { s.failures = append(s.failures, fmt.Sprintf(f, a...)) }

// answer has the headers that every answer of the API has, and more, as "Name: value".
func answer(status int, contentType string, more ...string) *http.Response {
	h := http.Header{"Content-Type": {contentType}, "X-Request-Id": {"r1"}, "Cache-Control": {"no-store"}, "Vary": {"Accept, Origin"}}
	for _, field := range more {
		name, value, _ := strings.Cut(field, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h}
}

func request(method, path string) *http.Request {
	return &http.Request{Method: method, URL: &url.URL{Path: path}}
}

const (
	notFound = `{"type":"urn:bashd:problem:NOT_FOUND","title":"t","status":404,"detail":"d","code":"NOT_FOUND","requestId":"r1"}`
	listed   = `{"id":"bash-mfrggzdfmztwq2lknnwg23tpob","status":"completed","exitCode":0,"signal":null,"timedOut":false,"aborted":false,
		"timeoutMs":1,"stdout":{"truncated":false,"bytes":0},"stderr":{"truncated":false,"bytes":0},
		"sandbox":{"mode":"read-only","denied":false},"command":"id","startedAt":"2026-01-02T03:04:05.006Z","survivorsKilled":0}`
	limit = `{"type":"urn:bashd:problem:LIMIT_REACHED","title":"t","status":429,"detail":"d","code":"LIMIT_REACHED","requestId":"r1"}`
	task  = `{"id":"bash-mfrggzdfmztwq2lknnwg23tpob","status":"running","exitCode":null,"signal":null,"command":"id",
		"stdout":{"bytes":0,"retainedFrom":0,"url":"/v1/tasks/x/streams/stdout"},"stderr":{"bytes":0,"retainedFrom":0,"url":"/v1/tasks/x/streams/stderr"},
		"spec":{"command":"id","workdir":"/w","stdoutMaxBytes":1,"stderrMaxBytes":1,"sandboxMode":"read-only","workspaceRoot":"/w","mergeStderr":false,"outputEncoding":"text"},
		"startedAt":"2026-01-02T03:04:05.006Z"}`
	location = "Location: /v1/tasks/bash-mfrggzdfmztwq2lknnwg23tpob"
)

// TestValidate makes sure that the harness can fail.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		req    *http.Request
		resp   *http.Response
		body   string
		accept bool
	}{
		{"documented", request("GET", "/healthz"), answer(200, "application/json"), `{"status":"ok"}`, true},
		{"a field too many", request("GET", "/healthz"), answer(200, "application/json"), `{"status":"ok","x":1}`, false},
		{"a field missing", request("GET", "/healthz"), answer(200, "application/json"), `{}`, false},
		{"undocumented status", request("GET", "/healthz"), answer(418, "application/json"), `{}`, false},
		{"undocumented type", request("GET", "/healthz"), answer(200, "text/html"), `ok`, false},
		{"list", request("GET", "/v1/runs"), answer(200, "application/json"), `{"runs":[` + listed + `]}`, true},
		{"list with an unknown field inside", request("GET", "/v1/runs"), answer(200, "application/json"), `{"runs":[` + strings.Replace(listed, `"command"`, `"x":1,"command"`, 1) + `]}`, false},
		{"list with output", request("GET", "/v1/runs"), answer(200, "application/json"), `{"runs":[` + strings.Replace(listed, `{"truncated"`, `{"text":"","truncated"`, 1) + `]}`, false},
		{"a listed run is not a whole one", request("GET", "/v1/runs/x"), answer(200, "application/json"), listed, false},
		{"null where none is allowed", request("GET", "/v1/runs"), answer(200, "application/json"), `{"runs":[],"next":null}`, false},
		{"no request id", request("GET", "/healthz"), &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}}, `{"status":"ok"}`, false},
		{"problem", request("GET", "/v1/runs/x"), answer(404, "application/problem+json"), notFound, true},
		{"problem with another status inside", request("GET", "/v1/runs/x"), answer(404, "application/problem+json"), strings.Replace(notFound, "404", "500", 1), false},
		{"problem of another kind", request("GET", "/v1/runs/x"), answer(404, "application/problem+json"), strings.ReplaceAll(notFound, "NOT_FOUND", "GONE"), false},
		{"number in a header", request("POST", "/v1/runs"), answer(429, "application/problem+json", "Retry-After: 1"), limit, true},
		{"no number in a header", request("POST", "/v1/runs"), answer(429, "application/problem+json", "Retry-After: soon"), limit, false},
		{"too small a number in a header", request("POST", "/v1/runs"), answer(429, "application/problem+json", "Retry-After: 0"), limit, false},
		{"header missing", request("POST", "/v1/runs"), answer(429, "application/problem+json"), limit, false},
		{"header twice", request("POST", "/v1/runs"), answer(429, "application/problem+json", "Retry-After: 1", "Retry-After: 1"), limit, false},
		{"two values in one document", request("GET", "/healthz"), answer(200, "application/json"), `{"status":"ok"}{}`, false},
		{"HEAD", request("HEAD", "/v1/runs"), answer(200, "application/json"), "", true},
		{"HEAD with a body", request("HEAD", "/v1/runs"), answer(200, "application/json"), `{"runs":[]}`, false},
		{"HEAD without headers", request("HEAD", "/v1/runs"), &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}}, "", false},
		{"204", request("DELETE", "/v1/tasks/x"), answer(204, ""), "", true},
		{"204 with a body", request("DELETE", "/v1/tasks/x"), answer(204, ""), "{}", false},
		{"task", request("POST", "/v1/tasks"), answer(201, "application/json", location), task, true},
		{"task without a location", request("POST", "/v1/tasks"), answer(201, "application/json"), task, false},
		{"running task with facts of the end", request("GET", "/v1/tasks/x"), answer(200, "application/json"), strings.Replace(task, `"startedAt"`, `"survivorsKilled":0,"startedAt"`, 1), false},
		{"settled task without facts of the end", request("GET", "/v1/tasks/x"), answer(200, "application/json"), strings.Replace(task, "running", "killed", 1), false},
		{"listed task with spec", request("GET", "/v1/tasks"), answer(200, "application/json"), `{"tasks":[` + task + `]}`, false},
		{"unknown path", request("GET", "/nowhere"), answer(404, "application/problem+json"), notFound, true},
		{"unknown path, no problem", request("GET", "/nowhere"), answer(404, "text/plain"), "404 page not found", false},
		{"unknown path, odd problem", request("GET", "/nowhere"), answer(404, "application/problem+json"), `{"code":"NOT_FOUND"}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &spy{TB: t}
			Validate(s, c.req, c.resp, []byte(c.body))
			if (len(s.failures) == 0) != c.accept {
				t.Errorf("accepted: %v; %v", !c.accept, s.failures)
			}
		})
	}
}
