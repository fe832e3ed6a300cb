package httpapi

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"bashd/internal/exec"
)

func TestHost(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.AllowedHosts = []string{"box.example", "Other.example:8443"} })
	for host, allowed := range map[string]bool{
		"localhost": true, "LOCALHOST:1": true, "localhost.": true, "127.0.0.1": true, "127.9.9.9:8080": true, "[::1]": true,
		"[::1]:80": true, "[::ffff:127.0.0.1]": true,
		"box.example": true, "BOX.example:9": true, "box.example.": true, "other.example:8443": true,
		"other.example": false, "other.example:8444": false, "evil.example": false, "localhost.evil.example": false,
		"evil.localhost": false, "10.0.0.1": false, "0.0.0.0": false, "[::]": false, "[fe80::1]": false, "127.0.0.1.evil.example": false,
		"localhost:": false, "localhost:x": false, "localhost:1:2": false, "127.1": false, "2130706433": false, "0x7f.0.0.1": false,
		"xbox.example": false, "[::1": false, "[::1]x": false,
	} {
		if got := f.hosts.allows(host); got != allowed {
			t.Errorf("%q: allowed %v", host, got)
		}
	}
	for _, path := range []string{"/healthz", "/metrics", "/openapi.yaml", "/v1/info", "/nowhere"} {
		f.do(t, "GET", path, "", "Host: evil.example").wantProblem(t, 403, codeForbidden)
	}
	f.do(t, "GET", "/healthz", "", "Host: box.example").wantStatus(t, 200)
}

func TestNoHost(t *testing.T) {
	f := newFixture(t)
	c := dial(t, f.addr)
	if _, err := c.Write([]byte("GET /healthz HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	readAnswer(t, c).wantProblem(t, 403, codeForbidden)
}

// TestUnixSocket: no browser reaches one, so no Host is refused there.
func TestUnixSocket(t *testing.T) {
	f := newFixture(t)
	_, f.client = f.serve(t, "unix", filepath.Join(t.TempDir(), "s"))
	f.do(t, "GET", "/v1/info", "", "Host: whatever.example").wantStatus(t, 200)
	f.do(t, "GET", "/v1/info", "", "Origin: http://evil.example").wantProblem(t, 403, codeForbidden)
}

func TestOrigin(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.AllowedOrigins = []string{"https://Console.example", "http://dev.example:3000", "*", "null", "https://path.example/x"}
		o.AllowedHosts = []string{"gate.example"}
	})
	for _, c := range []struct {
		host, origin string
		allowed      bool
	}{
		{"localhost:8080", "http://localhost:8080", true},
		{"localhost:8080", "http://LOCALHOST:8080", true},
		{"localhost", "http://localhost", true},
		{"localhost:80", "http://localhost", true},
		{"gate.example", "https://gate.example", true},
		{"localhost:8080", "https://console.example", true},
		{"localhost:8080", "HTTPS://CONSOLE.EXAMPLE", true},
		{"localhost:8080", "https://console.example:443", true},
		{"localhost:8080", "http://dev.example:3000", true},
		{"localhost:8080", "http://localhost:8081", false},
		{"localhost:8080", "http://localhost", false},
		{"localhost:8080", "http://127.0.0.1:8080", false},
		{"localhost:8080", "http://console.example", false},
		{"localhost:8080", "https://console.example:444", false},
		{"localhost:8080", "https://console.example.evil.example", false},
		{"localhost:8080", "https://path.example", false},
		{"localhost:8080", "https://console.example/", false},
		{"localhost:8080", "https://u@console.example", false},
		{"localhost:8080", "null", false},
		{"localhost:8080", "*", false},
		{"localhost:8080", "", false},
		{"localhost:8080", "console.example", false},
		{"localhost:8080", "ftp://localhost:8080", false},
		{"localhost:8080", "http://localhost:8080 https://console.example", false},
	} {
		a := f.do(t, "GET", "/healthz", "", "Host: "+c.host, "Origin: "+c.origin)
		want, allowOrigin := 403, ""
		if c.allowed {
			want, allowOrigin = 200, c.origin
		}
		if a.StatusCode != want || a.Header.Get("Access-Control-Allow-Origin") != allowOrigin {
			t.Errorf("Host %q Origin %q: %d, allowed %q", c.host, c.origin, a.StatusCode, a.Header.Get("Access-Control-Allow-Origin"))
		}
		if !strings.Contains(a.Header.Get("Vary"), "Origin") {
			t.Errorf("Vary is %q", a.Header.Get("Vary"))
		}
	}
	f.do(t, "GET", "/healthz", "", "Origin: https://console.example", "Origin: https://console.example").wantProblem(t, 403, codeForbidden)
}

func TestPreflight(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.AllowedOrigins = []string{"https://console.example"} })
	// A preflight has no identity, and a bad one is none of its business.
	a := f.do(t, "OPTIONS", "/v1/runs", "", "Origin: https://console.example", "Access-Control-Request-Method: POST", "X-Owner-Token: ")
	a.wantStatus(t, 204)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":  "https://console.example",
		"Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
		"Access-Control-Allow-Headers": "Authorization, Content-Type, X-Owner-Token, X-Session-Id, X-Request-Id, Idempotency-Key, Last-Event-ID, Range, Mcp-Session-Id, Mcp-Protocol-Version",
		"Access-Control-Max-Age":       "600",
		"Vary":                         "Accept, Origin",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if a.Header.Get("X-Request-Id") == "" {
		t.Error("no request id")
	}
	f.do(t, "OPTIONS", "/v1/runs", "", "Origin: https://evil.example", "Access-Control-Request-Method: POST").wantProblem(t, 403, codeForbidden)
	f.do(t, "OPTIONS", "/v1/runs", "", "Origin: https://console.example").wantProblem(t, 405, codeMethodNotAllowed)
	exposed := f.do(t, "GET", "/v1/info", "", "Origin: https://console.example").Header.Get("Access-Control-Expose-Headers")
	if exposed != "Location, Retry-After, X-Request-Id, Content-Range, Idempotency-Replayed, Mcp-Session-Id" {
		t.Errorf("exposed: %q", exposed)
	}
}

func TestForwarded(t *testing.T) {
	f := newFixture(t)
	for _, h := range []string{"Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "x-forwarded-proto: https", "X-Forwarded-Anything: ", "Via: 1.1 proxy"} {
		for _, path := range []string{"/healthz", "/v1/runs", "/metrics"} {
			f.do(t, "GET", path, "", h).wantProblem(t, 403, codeForbidden)
		}
	}
	f.do(t, "GET", "/healthz", "", "X-Real-Ip: 1.2.3.4").wantStatus(t, 200)
}

func TestCommandAsCaller(t *testing.T) {
	var checks atomic.Int32
	f := newFixture(t, func(o *Options) {
		o.PeerCheck = func(c net.Conn) (bool, string) {
			checks.Add(1)
			if _, ok := c.(*net.TCPConn); !ok {
				t.Errorf("asked about a %T", c)
			}
			return true, "held by pid 1"
		}
	})
	for _, path := range []string{"/healthz", "/v1/runs", "/metrics", "/nowhere"} {
		f.do(t, "GET", path, "").wantProblem(t, 403, codeForbidden)
	}
	f.do(t, "POST", "/v1/runs", `{"command":"id","sandboxMode":"danger-full-access"}`).wantProblem(t, 403, codeForbidden)
	f.do(t, "OPTIONS", "/v1/runs", "", "Origin: http://"+f.addr, "Access-Control-Request-Method: POST").wantProblem(t, 403, codeForbidden)
	f.wantNothingRun(t)
	if n := checks.Load(); n != 1 {
		t.Errorf("%d checks for one connection", n)
	}
	if !strings.Contains(f.logs.String(), "held by pid 1") {
		t.Error("the reason is not in the debug log")
	}
}

// TestPeerCheckFailsClosed: whatever goes wrong with the check, nobody gets in.
func TestPeerCheckFailsClosed(t *testing.T) {
	t.Run("no check", func(t *testing.T) {
		newFixture(t, func(o *Options) { o.PeerCheck = nil }).do(t, "GET", "/healthz", "").wantProblem(t, 403, codeForbidden)
	})
	t.Run("panic", func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.PeerCheck = func(net.Conn) (bool, string) { panic("no") } })
		f.do(t, "GET", "/healthz", "").wantProblem(t, 500, exec.CodeInternal)
		f.do(t, "GET", "/healthz", "").wantProblem(t, 403, codeForbidden)
	})
	t.Run("no connection", func(t *testing.T) {
		o, _, _ := options()
		rec := httptest.NewRecorder()
		New(o).Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/healthz", nil))
		if rec.Code != 403 {
			t.Errorf("status %d", rec.Code)
		}
	})
}

func TestHTTP2(t *testing.T) {
	var checks atomic.Int32
	f := newFixture(t, func(o *Options) {
		o.PeerCheck = func(net.Conn) (bool, string) { return checks.Add(1) > 1, "" }
	})
	useHTTP2(t, f)
	for range 3 {
		a := f.do(t, "POST", "/v1/runs", `{"command":"id"}`)
		a.wantStatus(t, 200)
		if a.ProtoMajor != 2 {
			t.Fatalf("HTTP/%d", a.ProtoMajor)
		}
	}
	f.do(t, "POST", "/v1/runs", strings.Repeat(" ", 9<<20)).wantProblem(t, 413, codeBodyTooLarge)
	f.do(t, "GET", "/healthz", "", "Host: evil.example").wantProblem(t, 403, codeForbidden)
}

// useHTTP2 gives f a client that knows nothing else.
func useHTTP2(t *testing.T, f *fixture) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
}

func TestOwner(t *testing.T) {
	f := newFixture(t)
	callerOf := func(headers ...string) exec.Owner {
		f.do(t, "POST", "/v1/runs", `{"command":"id"}`, headers...).wantStatus(t, 200)
		f.runner.mu.Lock()
		defer f.runner.mu.Unlock()
		return f.runner.caller.Owner
	}
	alice := ownerKey("", "alice")
	if len(alice) != 64 || strings.Trim(string(alice), "0123456789abcdef") != "" {
		t.Errorf("key %q", alice)
	}
	longest := strings.Repeat("~", 256)
	for _, c := range []struct {
		headers []string
		want    exec.Owner
	}{
		{nil, ""},
		{[]string{"X-Owner-Token: alice"}, alice},
		{[]string{"Authorization: Bearer alice"}, alice},
		{[]string{"Authorization: bEARER   alice"}, alice},
		{[]string{"X-Owner-Token: alice", "Authorization: Bearer bob"}, alice},
		{[]string{"X-Owner-Token: " + longest}, ownerKey("", longest)},
		{[]string{"X-Owner-Token: !,;=~"}, ownerKey("", "!,;=~")},
		{[]string{"X-Session-Id: s1"}, ""},
	} {
		if got := callerOf(c.headers...); got != c.want {
			t.Errorf("%q: owner %q, want %q", c.headers, got, c.want)
		}
	}
	for _, token := range []string{"alice", "bob", longest} {
		if strings.Contains(f.logs.String(), token) {
			t.Errorf("token %.8q is in the log", token)
		}
	}
	if !strings.Contains(f.logs.String(), "owner="+string(alice[:8])+"\n") && !strings.Contains(f.logs.String(), "owner="+string(alice[:8])+" ") {
		t.Error("the owner is not named in the log")
	}
}

// TestOwnerKeyTellsPairsApart: however the parts are split, pairs differ.
func TestOwnerKeyTellsPairsApart(t *testing.T) {
	seen := map[exec.Owner]string{}
	for _, pair := range [][2]string{{"", "ab"}, {"a", "b"}, {"ab", ""}, {"", "a"}, {"a", ""}, {"", ""}} {
		key := ownerKey(pair[0], pair[1])
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %s have one key", pair, other)
		}
		seen[key] = strings.Join(pair[:], "|")
	}
}
