package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bashd/internal/auth"
)

// tenants is a daemon in closed mode, and the tokens that it serves, as headers.
type tenants struct {
	*daemon
	file            string // of the tokens
	alice, alsoHers string // two tokens of one name
	bob             string
	scraper         string // may read the metrics, and nothing else
	approver        string // may decide approvals, and nothing else
	secrets         []string
}

// startClosed starts a daemon in closed mode.
func startClosed(t *testing.T, env ...string) *tenants {
	t.Helper()
	k, lines := newTenants(t)
	k.file = filepath.Join(t.TempDir(), "tokens")
	replaceFile(t, k.file, lines)
	k.start(t, env...)
	return k
}

// newTenants makes the tokens and the lines of their file.
func newTenants(t *testing.T) (k *tenants, lines string) {
	t.Helper()
	k, lines = &tenants{}, "# tenants\n"
	for _, who := range []struct {
		header *string
		name   string
		roles  []auth.Role
	}{
		{&k.alice, "alice", nil},
		{&k.alsoHers, "alice", []auth.Role{auth.RoleRun}},
		{&k.bob, "bob", nil},
		{&k.scraper, "scraper", []auth.Role{auth.RoleMetrics}},
		{&k.approver, "carol", []auth.Role{auth.RoleApprove}},
	} {
		var line string
		*who.header, line = k.newToken(t, who.name, who.roles...)
		lines += line
	}
	return k, lines
}

// start starts the daemon with what is in the file.
func (k *tenants) start(t *testing.T, env ...string) {
	t.Helper()
	k.daemon = start(t, append([]string{"BASHD_TOKENS_FILE=" + k.file}, env...)...)
	var i info
	k.getJSON(t, "/v1/info", &i, k.alice)
	if why := i.Sandbox.ReadOnly.Unavailable; why != "" {
		t.Skipf("sandbox mode read-only cannot be enforced here: %s", why)
	}
}

// newToken makes a token as `bashd token` does, as a header and as a line.
func (k *tenants) newToken(t *testing.T, name string, roles ...auth.Role) (header, line string) {
	t.Helper()
	token, line, err := auth.New(name, roles)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(token))
	k.secrets = append(k.secrets, token, hex.EncodeToString(sum[:]))
	return "Authorization: Bearer " + token, line + "\n"
}

// replaceFile puts a private file in the place of another at once.
func replaceFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestCasesIClosed is about callers in closed mode.
func TestCasesIClosed(t *testing.T) {
	t.Parallel()
	k := startClosed(t)
	for _, c := range []struct {
		id  string
		run func(*testing.T, *tenants)
	}{
		{"I01", closedI01},
		{"I01 owner tokens", closedI01OwnerTokens},
		{"I02", closedI02},
		{"H07", closedH07},
		{"M25", closedM25},
		{"M25 mounted", closedM25Mounted},
		{"roles", closedRoles},
		{"SIGHUP", closedHangup},
		{"I04", closedI04},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			c.run(t, k)
		})
	}
}

// closedI01: a token's name is an owner, and one name's tokens are one owner.
func closedI01(t *testing.T, k *tenants) {
	id := k.task(t, in{"command": "echo s1; read x; echo s2 $x", "stdinOpen": true}, k.alice).ID
	if k.getTask(t, id, k.alsoHers).ID != id {
		t.Error("another token of the same name sees another task")
	}
	k.othersOf(t, id, k.alice, []string{k.bob}, []string{k.bob, "X-Owner-Token: alice"}, []string{k.alice, "X-Owner-Token: mine"})
	r := k.run(t, in{"command": "pwd; echo secret >note", "sandboxMode": "workspace-write"}, k.alice)
	r.exited(t, 0)
	k.get(t, r.ID, k.alsoHers)
	if status, raw := k.request(t, "GET", "/v1/runs/"+r.ID, "", k.bob); status != 404 {
		t.Errorf("another tenant's run: %d %s", status, raw)
	}
	read := k.run(t, in{"command": "cat '" + strings.TrimSpace(r.Stdout.Text) + "/note'"}, k.bob)
	if read.Stdout.Bytes != 0 || read.code() == 0 {
		t.Errorf("another tenant's file: %s", read.raw)
	}
}

// closedI01OwnerTokens: a gateway's end users are owners within its name, and nobody is everybody.
func closedI01OwnerTokens(t *testing.T, k *tenants) {
	first, second := "X-Owner-Token: user-1", "X-Owner-Token: user-2"
	id := k.task(t, in{"command": ":"}, k.alice, first).ID
	k.getTask(t, id, k.alsoHers, first)
	cursor := k.output(t, id, "", 0, k.alice, first).NextCursor
	for _, headers := range [][]string{{k.alice}, {k.alice, second}, {k.bob, first}, {k.bob}} {
		k.noTask(t, id, cursor, headers)
	}
	k.deleteTask(t, id, k.alice, first)
	for _, token := range []string{"", "a b", strings.Repeat("a", 257)} {
		k.refused(t, in{"command": ":"}, 400, "INVALID_ARGUMENT", k.alice, "X-Owner-Token: "+token)
		k.refused(t, in{"command": ":"}, 401, "UNAUTHENTICATED", "X-Owner-Token: "+token) // who is unknown is told no more
	}
	k.run(t, in{"command": ":"}, k.alice, "X-Forwarded-For: 192.0.2.1", "Via: 1.1 gateway").exited(t, 0)
}

// closedI02: whoever has no token is nobody here.
func closedI02(t *testing.T, k *tenants) {
	marker := filepath.Join(k.ws, "i02-closed")
	body := in{"command": "touch " + marker, "sandboxMode": "workspace-write"}
	token := strings.TrimPrefix(k.alice, "Authorization: Bearer ")
	for _, headers := range [][]string{
		nil,
		{"Authorization: "},
		{"Authorization: Bearer"},
		{"Authorization: Bearer "},
		{"Authorization: Basic " + token},
		{"Authorization: " + token},
		{"Authorization: Bearer " + token + "x"},
		{"Authorization: Bearer " + token[1:]},
		{"Authorization: Bearer " + strings.ToUpper(token)},
		{"Authorization: Bearer t\u00f6ken"},
		{"X-Owner-Token: " + token},
	} {
		k.refused(t, body, 401, "UNAUTHENTICATED", headers...)
		k.refusedTask(t, body, 401, "UNAUTHENTICATED", headers...)
	}
	for _, headers := range [][]string{{k.alice, k.alice}, {k.alice, k.bob}, {"Authorization: Bearer " + strings.Repeat("a", 257)}} {
		c := k.dial(t)
		c.post(t, body, headers...)
		if resp, raw := c.answer(t); resp.StatusCode != 400 || bytes.Contains(raw, []byte(token)) {
			t.Errorf("%.60q: %d %s; want 400", headers, resp.StatusCode, raw)
		}
	}
	c := k.dial(t)
	c.post(t, body)
	if resp, raw := c.answer(t); resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("%d %v %s; want 401 and how to do better", resp.StatusCode, resp.Header, raw)
	}
	for _, path := range []string{"/v1/info", "/v1/runs", "/v1/tasks", "/v1/tasks/bash-" + strings.Repeat("a", 26), "/v1/nothing", "/metrics"} {
		if status, raw := k.request(t, "GET", path, ""); status != 401 {
			t.Errorf("GET %s: %d %s; want 401", path, status, raw)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		if status, _ := k.request(t, "GET", path, ""); status != 200 {
			t.Errorf("GET %s: %d; it needs no token", path, status)
		}
	}
	if exists(marker) {
		t.Error("something ran")
	}
	k.run(t, in{"command": ":"}, k.alice).exited(t, 0)
}

// closedH07: that a page's request comes from this host helps it as little.
func closedH07(t *testing.T, _ *tenants) {
	k := startClosed(t, "BASHD_ALLOWED_HOSTS=bashd.example")
	marker := filepath.Join(k.ws, "h07-closed")
	body := in{"command": "touch " + marker, "sandboxMode": "workspace-write"}
	k.refused(t, body, 401, "UNAUTHENTICATED")
	for _, identity := range [][]string{nil, {k.alice}} {
		for _, header := range []string{"Origin: https://evil.example", "Origin: null", "Host: evil.example"} {
			k.refused(t, body, 403, "FORBIDDEN", append(identity, header)...)
		}
	}
	k.refused(t, body, 415, "UNSUPPORTED_MEDIA_TYPE", k.alice, "Content-Type: text/plain")
	k.refused(t, body, 403, "FORBIDDEN", "Content-Type: text/plain", "Origin: https://evil.example")
	if exists(marker) {
		t.Error("something ran")
	}
	k.run(t, in{"command": ":"}, k.alice, "Host: bashd.example").exited(t, 0)
}

// closedM25: a command has no token, and finds none.
func closedM25(t *testing.T, k *tenants) {
	marker := k.out + "/m25-closed"
	const search = "env; set; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
	for _, mode := range modes[:2] {
		r := k.run(t, in{"command": callAPI(k.addr, marker) + "; cat <&3", "sandboxMode": mode, "timeoutMs": 30000}, k.alice)
		if !strings.HasPrefix(r.Stdout.Text, "HTTP/1.1 401 ") || !strings.Contains(r.Stdout.Text, `"UNAUTHENTICATED"`) {
			t.Errorf("%s: the command was answered %s; want 401", mode, r.raw)
		}
		r = k.run(t, in{"command": "cat '" + k.file + "'", "sandboxMode": mode}, k.alice)
		if r.Stdout.Bytes != 0 || r.code() == 0 || !unseen(r) {
			t.Errorf("%s: the tokens file can be read: %s", mode, r.raw)
		}
		r = k.run(t, in{"command": search, "sandboxMode": mode, "stdoutMaxBytes": 8 << 20}, k.alice)
		for _, secret := range append(k.secrets, k.file) {
			if strings.Contains(r.Stdout.Text, secret) {
				t.Errorf("%s: a command finds a secret, or where one lies", mode)
			}
		}
	}
	if exists(marker) {
		t.Error("it escaped")
	}
}

// closedM25Mounted: nor where the file is a link to the present version of a secret, as Kubernetes mounts it.
func closedM25Mounted(t *testing.T, _ *tenants) {
	k, lines := newTenants(t)
	dir := t.TempDir()
	k.file = filepath.Join(dir, "tokens")
	version := func(name, lines string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(dir, name, "tokens"), lines)
		if err := errors.Join(os.Symlink(name, filepath.Join(dir, "..new")), os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", lines)
	if err := os.Symlink("..data/tokens", k.file); err != nil {
		t.Fatal(err)
	}
	k.start(t)
	unreadable := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			for _, mode := range modes[:2] {
				r := k.run(t, in{"command": "cat '" + dir + path + "'", "sandboxMode": mode}, k.bob)
				if r.Stdout.Bytes != 0 || r.code() == 0 || !unseen(r) {
					t.Errorf("%s: %s: %s", mode, path, r.raw)
				}
			}
		}
	}
	unreadable("/tokens", "/..data/tokens", "/..1/tokens")
	eve, eveLine := k.newToken(t, "eve")
	version("..2", lines+eveLine)
	k.hangUp(t)
	k.await(t, "the new token is served", func() bool {
		status, _ := k.request(t, "GET", "/v1/tasks", "", eve)
		return status == 200
	})
	unreadable("/tokens", "/..data/tokens", "/..1/tokens", "/..2/tokens")
}

// closedRoles: a token is good for what its roles are for.
func closedRoles(t *testing.T, k *tenants) {
	for _, token := range []string{k.scraper, k.approver} {
		p := k.refused(t, in{"command": ":"}, 403, "FORBIDDEN", token)
		if !strings.Contains(p.Detail, "run") {
			t.Errorf("detail %q; want the role named", p.Detail)
		}
		k.refusedTask(t, in{"command": ":"}, 403, "FORBIDDEN", token)
		if status, raw := k.request(t, "GET", "/v1/tasks", "", token); status != 403 {
			t.Errorf("GET /v1/tasks: %d %s; want 403", status, raw)
		}
	}
	for token, want := range map[string]int{k.scraper: 200, k.alice: 403, k.approver: 403} {
		if status, raw := k.request(t, "GET", "/metrics", "", token); status != want {
			t.Errorf("GET /metrics: %d %.200s; want %d", status, raw, want)
		}
	}
}

// closedHangup changes the tokens of a daemon that runs.
func closedHangup(t *testing.T, _ *tenants) {
	k := startClosed(t)
	running := k.task(t, in{"command": "sleep 6401"}, k.alice)
	dave, daveLine := k.newToken(t, "dave")
	again, againLine := k.newToken(t, "alice")
	served := func(token string) bool {
		status, _ := k.request(t, "GET", "/v1/tasks", "", token)
		return status == 200
	}
	if served(dave) {
		t.Fatal("a token that was never written down is served")
	}
	replaceFile(t, k.file, daveLine+againLine)
	if !served(k.alice) || served(dave) {
		t.Error("the file was read before it was asked for")
	}
	k.hangUp(t)
	k.await(t, "the new token is served", func() bool { return served(dave) })
	for _, token := range []string{k.alice, k.alsoHers, k.bob} {
		if served(token) {
			t.Error("a removed token is served")
		}
	}
	if k.getTask(t, running.ID, again).Status != "running" {
		t.Error("the name's task did not outlive its token")
	}
	if r := k.run(t, in{"command": "cat '" + k.file + "'"}, again); r.Stdout.Bytes != 0 || !unseen(r) {
		t.Errorf("a new file in the old one's place: %s", r.raw)
	}
	replaceFile(t, k.file, daveLine+"alice:nonsense\n")
	k.hangUp(t)
	k.await(t, "it says that the file is bad", func() bool { return strings.Contains(k.log.String(), "line 2") })
	if !served(dave) || !served(again) {
		t.Error("a bad file took effect")
	}
	k.killTask(t, running.ID, again)
	k.waitTask(t, running.ID, again)
	replaceFile(t, k.file, "# nobody\n")
	k.hangUp(t)
	k.await(t, "nobody is served any more", func() bool { return !served(dave) && !served(again) })
}

func (k *tenants) hangUp(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(k.pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// closedI04: neither tokens nor their hashes, nor owner tokens, are in the log, in what is stored, in metrics or in answers.
func closedI04(t *testing.T, _ *tenants) {
	k := startClosed(t)
	k.secrets = append(k.secrets, "i04-owner-token", "i04-value", "i04-stdin")
	task := k.task(t, in{"command": "cat; sleep 6402", "env": in{"V": "i04-value"}, "stdin": "i04-stdin"}, k.alice, "X-Owner-Token: i04-owner-token")
	k.await(t, "the command runs", func() bool { return len(k.alive("sleep 6402")) > 0 })
	k.refused(t, in{"command": ":"}, 401, "UNAUTHENTICATED", k.bob+"x", "X-Owner-Token: i04-owner-token")
	k.refused(t, in{"command": ":"}, 403, "FORBIDDEN", k.scraper)
	_, metrics := k.request(t, "GET", "/metrics", "", k.scraper)
	shown := map[string][]byte{"the metrics": metrics, "the task": k.getTask(t, task.ID, k.alice, "X-Owner-Token: i04-owner-token").raw}
	for _, line := range processes(func(p proc) bool { return p.cmdline != "" }) {
		shown["the command lines"] = append(shown["the command lines"], line+"\n"...)
	}
	k.killTask(t, task.ID, k.alice, "X-Owner-Token: i04-owner-token")
	k.waitTask(t, task.ID, k.alice, "X-Owner-Token: i04-owner-token")
	shown["the log"] = []byte(k.log.String())
	_ = filepath.WalkDir(k.state, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && filepath.Base(path) != "stdout" { // which has what cat was given
			shown[path] = []byte(content(path))
		}
		return nil
	})
	for where, text := range shown {
		for _, secret := range k.secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s: there is a secret, %.12s…", where, secret)
			}
		}
	}
	var env map[string]any
	if err := json.Unmarshal(shown["the task"], &env); err != nil || !strings.Contains(fmt.Sprint(env["spec"]), "V") {
		t.Errorf("the task does not name what it was given: %v %v", err, env["spec"])
	}
}
