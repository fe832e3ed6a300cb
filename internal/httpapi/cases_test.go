package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bashd/internal/exec"
)

// TestCases are troubles that users of such services reported.
func TestCases(t *testing.T) {
	t.Run("H03", testMisspeltField)
	t.Run("H04", testMalformedBody)
	t.Run("H05", testHugeBody)
	t.Run("H07", testCrossSite)
	t.Run("I02", testOddIdentity)
}

func testMisspeltField(t *testing.T) {
	f := newFixture(t)
	for body, field := range map[string]string{
		`{"command":"sleep 2","timeout_ms":100}`:                    "timeout_ms",
		`{"command":"id","sandboxmode":"read-only"}`:                "sandboxmode",
		`{"command":"id","Command":"id"}`:                           "Command",
		`{"command":"id","session":"s1"}`:                           "session",
		`{"command":"id","yield_after_ms":1000}`:                    "yield_after_ms",
		`{"command":"id","stdinOpen":true}`:                         "stdinOpen",
		`{"command":"id","` + strings.Repeat("x", 5000) + `":true}`: strings.Repeat("x", 64) + "…",
	} {
		f.do(t, "POST", "/v1/runs", body).wantProblem(t, 400, exec.CodeInvalidArgument, field)
	}
	f.do(t, "POST", "/v1/runs?timeoutMs=100", `{"command":"sleep 2"}`).wantProblem(t, 400, exec.CodeInvalidArgument, "timeoutMs")
	p := f.do(t, "POST", "/v1/runs", `{"command":"sleep 2","timeout_ms":100}`).problem(t)
	if !strings.Contains(p.Detail, `"timeoutMs"`) {
		t.Errorf("no hint at the right name: %q", p.Detail)
	}
	f.wantNothingRun(t)
}

func testMalformedBody(t *testing.T) {
	f := newFixture(t)
	for name, body := range map[string]string{
		"array": `[]`, "unclosed": `{`, "number": `{"command":5}`, "null": `{"command":null}`, "only null": `null`,
		"only a string": `"id"`, "duplicate": `{"command":"id","command":"rm"}`, "duplicate by escape": `{"command":"id","c\u006fmmand":"rm"}`,
		"duplicate in env": `{"command":"id","env":{"A":"1","A":"2"}}`, "trailing object": `{"command":"id"}{}`,
		"trailing garbage": `{"command":"id"} x`, "UTF-16": "\xff\xfe{\x00}\x00", "UTF-16 without mark": "{\x00}\x00",
		"byte order mark": "\xef\xbb\xbf{\"command\":\"id\"}", "raw 0xff": "{\"command\":\"\xff\"}", "lone surrogate": `{"command":"\ud800"}`,
		"lone low surrogate": `{"command":"\udc00"}`, "half a pair": `{"command":"\ud83d\u0041"}`, "surrogate in a name": `{"\ud800":"id"}`,
		"surrogate in env": `{"command":"id","env":{"A":"\uDBFF"}}`, "missing": `{}`, "blank": `{"command":" \n\t"}`, "empty": `{"command":""}`,
		"NUL in command": `{"command":"a\u0000b"}`, "NUL in workdir": `{"command":"id","workdir":"/\u0000"}`,
		"NUL in env": `{"command":"id","env":{"A":"\u0000"}}`, "env of numbers": `{"command":"id","env":{"A":1}}`,
		"env list": `{"command":"id","env":["A=1"]}`, "env null": `{"command":"id","env":{"A":null}}`, "env name": `{"command":"id","env":{"A-B":"1"}}`,
		"two stdins": `{"command":"cat","stdin":"a","stdinBase64":"YQ=="}`, "bad base64": `{"command":"cat","stdinBase64":"a"}`,
		"bad mode": `{"command":"id","sandboxMode":"none"}`, "empty mode": `{"command":"id","sandboxMode":""}`,
		"bad encoding": `{"command":"id","outputEncoding":"hex"}`, "string for bool": `{"command":"id","mergeStderr":"true"}`,
		"too much stdout": `{"command":"id","stdoutMaxBytes":8388609}`, "no stdout": `{"command":"id","stdoutMaxBytes":0}`,
		"empty workdir": `{"command":"id","workdir":""}`, "only spaces": "  ",
		"deep": strings.Repeat(`{"command":`, 100000), "deep arrays": `{"command":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
	} {
		t.Run(name, func(t *testing.T) { f.do(t, "POST", "/v1/runs", body).wantProblem(t, 400, exec.CodeInvalidArgument) })
	}
	f.do(t, "POST", "/v1/runs", "").wantProblem(t, 400, exec.CodeInvalidArgument, "body")
	f.do(t, "PUT", "/v1/runs", `{"command":"id"}`).wantProblem(t, 405, codeMethodNotAllowed)
	for _, h := range []string{
		"Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: application/json; charset=utf-16",
		"Content-Type: ", "Content-Encoding: gzip", "Content-Type: application/problem+json",
	} {
		f.do(t, "POST", "/v1/runs", `{"command":"id"}`, h).wantProblem(t, 415, codeUnsupportedMediaType)
	}
	f.wantNothingRun(t)

	all := f.do(t, "POST", "/v1/runs", `{"timeoutMs":0,"env":{"A":5,"B-C":"x"},"nope":1,"mergeStderr":null}`)
	all.wantProblem(t, 400, exec.CodeInvalidArgument, "command", "timeoutMs", "env.A", "env.B-C", "nope", "mergeStderr")
}

// zeros is an endless body that counts how much of it was taken.
type zeros struct{ taken atomic.Int64 }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.taken.Add(int64(len(p)))
	return len(p), nil
}

func testHugeBody(t *testing.T) {
	const limit = 1 << 20
	f := newFixture(t, func(o *Options) { o.MaxBodyBytes = limit })
	t.Run("without a length", func(t *testing.T) {
		body := &zeros{}
		r := f.request(t, "POST", "/v1/runs", "", "Content-Type: application/json")
		r.Body, r.ContentLength = io.NopCloser(io.LimitReader(body, 200<<20)), -1
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := f.send(t, r)
		runtime.ReadMemStats(&after)
		a.wantProblem(t, 413, codeBodyTooLarge)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 16*limit {
			t.Errorf("%d bytes were allocated for a limit of %d", grown, limit)
		}
		if taken := body.taken.Load(); taken > 100<<20 {
			t.Errorf("%d bytes were sent before the answer", taken)
		}
	})
	t.Run("with a length", func(t *testing.T) {
		// Not a byte of the body is sent: the answer must not wait for it.
		c := dial(t, f.addr)
		fmt.Fprintf(c, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", 200<<20)
		a := readAnswer(t, c)
		a.wantProblem(t, 413, codeBodyTooLarge)
		if !a.Close {
			t.Error("the connection stays open")
		}
	})
	t.Run("exactly the limit", func(t *testing.T) {
		body := `{"command":"id","stdin":"`
		f.do(t, "POST", "/v1/runs", body+strings.Repeat("x", limit-len(body)-2)+`"}`).wantStatus(t, 200)
		f.do(t, "POST", "/v1/runs", body+strings.Repeat("x", limit-len(body)-1)+`"}`).wantProblem(t, 413, codeBodyTooLarge)
	})
	t.Run("slow header", func(t *testing.T) {
		if s := f.HTTPServer(); s.ReadHeaderTimeout != 10*time.Second || s.IdleTimeout == 0 {
			t.Errorf("ReadHeaderTimeout %v, IdleTimeout %v", s.ReadHeaderTimeout, s.IdleTimeout)
		}
	})
	t.Run("large header", func(t *testing.T) {
		c := dial(t, f.addr)
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 70<<10))
		if line, _ := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, " 431 ") {
			t.Errorf("%q", line)
		}
	})
}

func testCrossSite(t *testing.T) {
	f := newFixture(t)
	const body = `{"command":"id"}`
	f.do(t, "POST", "/v1/runs", body, "Content-Type: text/plain", "Origin: https://evil.example").wantProblem(t, 403, codeForbidden)
	f.do(t, "POST", "/v1/runs", body, "Origin: https://evil.example").wantProblem(t, 403, codeForbidden)
	f.do(t, "POST", "/v1/runs", body, "Host: evil.example").wantProblem(t, 403, codeForbidden)
	f.do(t, "POST", "/v1/runs", body, "Host: evil.example", "Origin: http://evil.example").wantProblem(t, 403, codeForbidden)
	f.do(t, "POST", "/v1/runs", body, "Content-Type: text/plain").wantProblem(t, 415, codeUnsupportedMediaType)
	f.wantNothingRun(t)
}

func testOddIdentity(t *testing.T) {
	f := newFixture(t)
	for name, headers := range map[string][]string{
		"empty owner":            {"X-Owner-Token: "},
		"blank owner":            {"X-Owner-Token:   "},
		"two owners":             {"X-Owner-Token: a", "X-Owner-Token: a"},
		"long owner":             {"X-Owner-Token: " + strings.Repeat("x", 257)},
		"space in owner":         {"X-Owner-Token: a b"},
		"no ASCII":               {"X-Owner-Token: é"},
		"empty Authorization":    {"Authorization: "},
		"no token":               {"Authorization: Bearer"},
		"blank token":            {"Authorization: Bearer  "},
		"two Authorizations":     {"Authorization: Bearer a", "Authorization: Bearer a"},
		"long token":             {"Authorization: Bearer " + strings.Repeat("x", 257)},
		"two tokens":             {"Authorization: Bearer a b"},
		"other scheme":           {"Authorization: Basic YTpi"},
		"no scheme":              {"Authorization: secret"},
		"good owner, bad bearer": {"X-Owner-Token: a", "Authorization: Bearer"},
		"bad owner, good bearer": {"X-Owner-Token: ", "Authorization: Bearer a"},
	} {
		t.Run(name, func(t *testing.T) {
			field, _, _ := strings.Cut(headers[0], ":")
			if name == "good owner, bad bearer" {
				field = "Authorization"
			}
			for _, path := range []string{"/v1/runs", "/v1/info", "/v1/runs/" + sampleID} {
				a := f.do(t, "GET", path, "", headers...)
				a.wantProblem(t, 400, exec.CodeInvalidArgument, field)
			}
			f.do(t, "POST", "/v1/runs", `{"command":"id"}`, headers...).wantProblem(t, 400, exec.CodeInvalidArgument)
		})
	}
	f.wantNothingRun(t)
	if strings.Contains(f.logs.String(), "YTpi") || strings.Contains(f.logs.String(), "secret") {
		t.Error("a token is in the log")
	}
}

func (a answer) wantStatus(t *testing.T, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("got %d, want %d: %s", a.StatusCode, status, a.body)
	}
}

// dial opens a connection for what net/http's client would not send.
func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func readAnswer(t *testing.T, c net.Conn) answer {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, body}
}
