package httpapi

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bashd/internal/auth"
	"bashd/internal/exec"
)

// The tokens of the tests, and what the file says of them.
const (
	aliceToken  = "alice-token-1"
	alice2Token = "alice-token-2" // the same tenant
	bobToken    = "bob-token-1"
	promToken   = "prom-token-1" // metrics only
	judgeToken  = "judge-token-1"
)

var tokenLines = map[string]string{
	aliceToken: "alice:%s", alice2Token: "alice:%s:metrics,run", bobToken: "bob:%s:run", promToken: "prom:%s:metrics", judgeToken: "judge:%s:approve,approve-all",
}

func writeTokens(t *testing.T, path string, tokens ...string) {
	t.Helper()
	var content strings.Builder
	content.WriteString("# for tests\n")
	for _, token := range tokens {
		content.WriteString(fmt.Sprintf(tokenLines[token], fmt.Sprintf("%x", sha256.Sum256([]byte(token)))) + "\n")
	}
	if err := os.WriteFile(path, []byte(content.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// testTokens are all of them, and the file that they come from.
func testTokens(t *testing.T) (tokens *auth.Tokens, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, aliceToken, alice2Token, bobToken, promToken, judgeToken)
	tokens, err := auth.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, path
}

// newClosedFixture is a server in closed mode, which has no use for a peer check.
func newClosedFixture(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	tokens, _ := testTokens(t)
	return newFixture(t, append([]func(*Options){func(o *Options) { o.Tokens, o.PeerCheck = tokens, nil }}, change...)...)
}

func bearer(token string) string { return "Authorization: Bearer " + token }

// wantUnauthenticated checks a 401 with its challenge.
func (a answer) wantUnauthenticated(t *testing.T) problemBody {
	t.Helper()
	if got := a.Header.Values("WWW-Authenticate"); !slices.Equal(got, []string{"Bearer"}) {
		t.Errorf("WWW-Authenticate: %q", got)
	}
	return a.wantProblem(t, 401, codeUnauthenticated)
}

// TestClosedIdentity: whoever has no token gets in under no pretext, and learns nothing else.
func TestClosedIdentity(t *testing.T) {
	f := newClosedFixture(t)
	paths := []string{"/v1/runs", "/v1/info", "/v1/runs/" + sampleID, "/v1/tasks/" + sampleID + "/wait", "/v1/nowhere", "/metrics"}
	odd := []string{"X-Owner-Token: ", "X-Owner-Token: a b", "X-Owner-Token: a"}
	for name, headers := range map[string][]string{
		"nothing":             nil,
		"owner token only":    {"X-Owner-Token: " + aliceToken},
		"empty":               {"Authorization: "},
		"no token":            {"Authorization: Bearer"},
		"blank token":         {"Authorization: Bearer  "},
		"other scheme":        {"Authorization: Basic " + aliceToken},
		"long other scheme":   {"Authorization: Basic " + strings.Repeat("x", 300)},
		"no scheme":           {"Authorization: " + aliceToken},
		"unknown":             {bearer("alice-token-3")},
		"longest unknown":     {bearer(strings.Repeat("x", 256))},
		"part of one":         {bearer(aliceToken[:12])},
		"one and more":        {bearer(aliceToken + "x")},
		"two words":           {bearer(aliceToken + " " + aliceToken)},
		"other case":          {bearer(strings.ToUpper(aliceToken))},
		"no ASCII":            {bearer("tökén")},
		"name":                {bearer("alice")},
		"hash":                {bearer(fmt.Sprintf("%x", sha256.Sum256([]byte(aliceToken))))},
		"cookie":              {"Cookie: Authorization=Bearer " + aliceToken},
		"proxy authorization": {"Proxy-Authorization: Bearer " + aliceToken},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				f.do(t, "GET", path, "", headers...).wantUnauthenticated(t)
				for _, o := range odd { // how an owner token is taken is not a stranger's to learn
					f.do(t, "GET", path, "", append(slices.Clone(headers), o)...).wantUnauthenticated(t)
				}
			}
			f.do(t, "POST", "/v1/runs", `{"command":`, headers...).wantUnauthenticated(t)
			f.do(t, "POST", "/v1/tasks", `{"command":"id"}`, append(slices.Clone(headers), "Idempotency-Key: ")...).wantUnauthenticated(t)
		})
	}
	for name, headers := range map[string][]string{
		"two headers":     {bearer(aliceToken), bearer(aliceToken)},
		"another besides": {bearer(aliceToken), "Authorization: Basic YTpi"},
		"too long":        {bearer(strings.Repeat("x", 257))},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				a := f.do(t, "GET", path, "", headers...)
				a.wantProblem(t, 400, exec.CodeInvalidArgument, "Authorization")
				if a.Header.Get("WWW-Authenticate") != "" {
					t.Error("a challenge where there is nothing to answer it with")
				}
			}
		})
	}
	f.wantNothingRun(t)
	if logs := f.logs.String(); strings.Contains(logs, "alice") || strings.Contains(logs, "YTpi") {
		t.Error("a token is in the log")
	}
	if text := string(f.do(t, "GET", "/metrics", "", bearer(promToken)).body); !strings.Contains(text, `bashd_rejections_total{code="UNAUTHENTICATED"} `) {
		t.Error("refusals are not counted")
	}
}

// TestClosedOwner: there is always an owner, the token's name, and an owner token makes another one of it.
func TestClosedOwner(t *testing.T) {
	f := newClosedFixture(t)
	for _, c := range []struct {
		headers []string
		want    exec.Owner
	}{
		{[]string{bearer(aliceToken)}, ownerKey("alice", "")},
		{[]string{bearer(alice2Token)}, ownerKey("alice", "")},
		{[]string{"Authorization: bEARER   " + aliceToken}, ownerKey("alice", "")},
		{[]string{bearer(bobToken)}, ownerKey("bob", "")},
		{[]string{bearer(aliceToken), "X-Owner-Token: u1"}, ownerKey("alice", "u1")},
		{[]string{bearer(bobToken), "X-Owner-Token: u1"}, ownerKey("bob", "u1")},
		{[]string{bearer(bobToken), "X-Owner-Token: alice"}, ownerKey("bob", "alice")},
	} {
		f.do(t, "POST", "/v1/runs", `{"command":"id"}`, c.headers...).wantStatus(t, 200)
		f.runner.mu.Lock()
		if got := f.runner.caller.Owner; got != c.want || len(got) != 64 {
			t.Errorf("%q: owner %q, want %q", c.headers, got, c.want)
		}
		f.runner.mu.Unlock()
	}
	for _, headers := range [][]string{{"X-Owner-Token: "}, {"X-Owner-Token: a b"}, {"X-Owner-Token: a", "X-Owner-Token: a"}, {"X-Owner-Token: " + strings.Repeat("x", 257)}} {
		f.do(t, "GET", "/v1/runs", "", append(headers, bearer(aliceToken))...).wantProblem(t, 400, exec.CodeInvalidArgument, "X-Owner-Token")
	}
	for _, token := range []string{aliceToken, alice2Token, bobToken, "u1"} {
		if strings.Contains(f.logs.String(), token) {
			t.Errorf("%s is in the log", token)
		}
	}
}

func TestRoles(t *testing.T) {
	f := newClosedFixture(t)
	for _, c := range []struct {
		path, token, lacks string
	}{
		{"/v1/info", aliceToken, ""},
		{"/v1/info", alice2Token, ""},
		{"/v1/info", promToken, "run"},
		{"/v1/info", judgeToken, "run"},
		{"/v1/nowhere", promToken, "run"},
		{"/metrics", promToken, ""},
		{"/metrics", alice2Token, ""},
		{"/metrics", aliceToken, "metrics"},
		{"/metrics", judgeToken, "metrics"},
	} {
		a := f.do(t, "GET", c.path, "", bearer(c.token))
		if c.lacks == "" {
			a.wantStatus(t, 200)
			continue
		}
		if p := a.wantProblem(t, 403, codeForbidden); !strings.HasSuffix(p.Detail, "lacks the role "+c.lacks) {
			t.Errorf("%s: %q does not name %s", c.path, p.Detail, c.lacks)
		}
	}
	// What a token may not do is not a matter of how it is asked.
	f.do(t, "GET", "/v1/info", "", bearer(promToken), "X-Owner-Token: ").wantProblem(t, 403, codeForbidden)
}

// TestClosedPublicRoutes need no token, and mind none.
func TestClosedPublicRoutes(t *testing.T) {
	f := newClosedFixture(t)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		for _, headers := range [][]string{nil, {bearer("unknown")}, {bearer(promToken)}} {
			f.do(t, "GET", path, "", headers...).wantStatus(t, 200)
		}
	}
}

// TestClosedHidesPaths: without a token nobody can tell which paths there are under /v1.
func TestClosedHidesPaths(t *testing.T) {
	f := newClosedFixture(t)
	for _, op := range []string{
		"GET /v1", "GET /v1/", "GET /v1/nowhere", "GET /v1/runs/x/nowhere", "BREW /v1/runs", "PATCH /v1/runs", "DELETE /v1/runs", "OPTIONS /v1/runs",
		"GET /v1/runs/" + sampleID + "/kill", "TRACE /v1/nowhere",
	} {
		method, path, _ := strings.Cut(op, " ")
		a := f.do(t, method, path, "")
		a.wantUnauthenticated(t)
		if a.Header.Get("Allow") != "" {
			t.Errorf("%s: Allow %q", op, a.Header.Get("Allow"))
		}
		if status := f.do(t, method, path, "", bearer(aliceToken)).StatusCode; status != 404 && status != 405 {
			t.Errorf("%s: %d with a token", op, status)
		}
	}
	for _, disguised := range []string{"/%761/runs", "/v1%2Fruns", "/v1/%72uns"} {
		f.do(t, "GET", disguised, "").wantUnauthenticated(t)
	}
	f.do(t, "GET", "/nowhere", "").wantProblem(t, 404, exec.CodeNotFound)
	f.do(t, "GET", "/v10/runs", "").wantProblem(t, 404, exec.CodeNotFound)
	f.do(t, "POST", "/healthz", "").wantProblem(t, 405, codeMethodNotAllowed)
}

// TestClosedAsksNothingOfTheConnection: gateways are welcome, and a command lacks a token like anybody.
func TestClosedAsksNothingOfTheConnection(t *testing.T) {
	f := newClosedFixture(t, func(o *Options) {
		o.PeerCheck = func(net.Conn) (bool, string) {
			t.Error("the peer was checked")
			return true, ""
		}
	})
	for _, header := range []string{"Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "Via: 1.1 proxy", "Host: any.example", "Host: 10.1.2.3:80"} {
		f.do(t, "GET", "/v1/info", "", header).wantUnauthenticated(t)
		f.do(t, "GET", "/v1/info", "", header, bearer(aliceToken)).wantStatus(t, 200)
	}
	o, _, _ := options()
	o.PeerCheck = nil
	o.Tokens, _ = testTokens(t)
	for _, hosts := range [][]string{nil, {"gate.example"}} {
		o.AllowedHosts = hosts
		for header, want := range map[string]int{"": 401, "Bearer " + aliceToken: 200} {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "http://gate.example/v1/info", nil)
			r.Header.Set("Authorization", header)
			rec := httptest.NewRecorder()
			New(o).Handler().ServeHTTP(rec, r)
			if rec.Code != want {
				t.Errorf("behind another server: %d, want %d", rec.Code, want)
			}
		}
	}
}

func TestClosedHost(t *testing.T) {
	f := newClosedFixture(t, func(o *Options) { o.AllowedHosts = []string{"gate.example"} })
	f.do(t, "GET", "/v1/info", "", bearer(aliceToken), "Host: gate.example:443").wantStatus(t, 200)
	f.do(t, "GET", "/v1/info", "", bearer(aliceToken)).wantStatus(t, 200)
	f.do(t, "GET", "/v1/info", "", bearer(aliceToken), "Host: other.example").wantProblem(t, 403, codeForbidden)
	_, f.client = f.serve(t, "unix", filepath.Join(t.TempDir(), "s"))
	f.do(t, "GET", "/v1/info", "", bearer(aliceToken), "Host: other.example").wantStatus(t, 200)
	f.do(t, "GET", "/v1/info", "", "Host: other.example").wantUnauthenticated(t)
}

// TestClosedOrigin: pages are held to the list as ever, which may say "all" here.
func TestClosedOrigin(t *testing.T) {
	listed := newClosedFixture(t, func(o *Options) { o.AllowedOrigins = []string{"https://console.example"} })
	all := newClosedFixture(t, func(o *Options) { o.AllowedOrigins = []string{"*"} })
	for _, c := range []struct {
		f       *fixture
		origin  string
		allowed bool
	}{
		{listed, "https://console.example", true},
		{listed, "https://evil.example", false},
		{listed, "null", false},
		{all, "https://any.example", true},
		{all, "http://any.example:8080", true},
		{all, "null", false},
		{all, "NULL", false},
		{all, "*", false},
		{all, "", false},
		{all, "any.example", false},
	} {
		get := c.f.do(t, "GET", "/v1/info", "", bearer(aliceToken), "Origin: "+c.origin)
		preflight := c.f.do(t, "OPTIONS", "/v1/runs", "", "Origin: "+c.origin, "Access-Control-Request-Method: POST")
		if !c.allowed {
			get.wantProblem(t, 403, codeForbidden)
			preflight.wantProblem(t, 403, codeForbidden)
			continue
		}
		get.wantStatus(t, 200)
		preflight.wantStatus(t, 204)
		// A page may read why it was refused.
		anonymous := c.f.do(t, "GET", "/v1/info", "", "Origin: "+c.origin)
		anonymous.wantUnauthenticated(t)
		for _, a := range []answer{get, preflight, anonymous} {
			if got := a.Header.Get("Access-Control-Allow-Origin"); got != c.origin || a.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%q: allowed is %q", c.origin, got)
			}
		}
	}
}

// TestRevokedToken: what the file no longer has is refused from the next request on.
func TestRevokedToken(t *testing.T) {
	tokens, path := testTokens(t)
	f := newFixture(t, func(o *Options) { o.Tokens = tokens })
	f.do(t, "GET", "/v1/info", "", bearer(bobToken)).wantStatus(t, 200)
	reload := func(left ...string) {
		t.Helper()
		writeTokens(t, path, left...)
		if _, err := tokens.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	reload(aliceToken)
	f.do(t, "GET", "/v1/info", "", bearer(bobToken)).wantUnauthenticated(t)
	f.do(t, "GET", "/v1/info", "", bearer(aliceToken)).wantStatus(t, 200)
	reload()
	f.do(t, "GET", "/v1/info", "", bearer(aliceToken)).wantUnauthenticated(t)
	f.do(t, "GET", "/healthz", "").wantStatus(t, 200)
}
