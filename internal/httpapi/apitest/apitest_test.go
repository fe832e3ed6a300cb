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

func answer(status int, contentType string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{
		"Content-Type": {contentType}, "X-Request-Id": {"r1"}, "Cache-Control": {"no-store"}, "Vary": {"Accept, Origin"},
	}}
}

func request(method, path string) *http.Request {
	return &http.Request{Method: method, URL: &url.URL{Path: path}}
}

const (
	notFound = `{"type":"urn:bashd:problem:NOT_FOUND","title":"t","status":404,"detail":"d","code":"NOT_FOUND","requestId":"r1"}`
	listed   = `{"id":"bash-mfrggzdfmztwq2lknnwg23tpob","status":"completed","exitCode":0,"signal":null,"timedOut":false,"aborted":false,
		"timeoutMs":1,"stdout":{"truncated":false,"bytes":0},"stderr":{"truncated":false,"bytes":0},
		"sandbox":{"mode":"read-only","denied":false},"command":"id","startedAt":"2026-01-02T03:04:05.006Z","survivorsKilled":0}`
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
