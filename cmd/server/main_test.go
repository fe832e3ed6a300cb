package main

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bashd/internal/config"
)

// invoke runs the program as a shell would, with that environment alone, and returns its
// exit code and what it printed. It must not take longer than a start that fails.
func invoke(tb testing.TB, env []string, args ...string) (code int, stdout, stderr string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := osexec.CommandContext(ctx, "/proc/self/exe", args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = append([]string{asMain + "=1"}, env...), &out, &errs, tb.TempDir()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		tb.Fatal(err)
	}
	if ctx.Err() != nil {
		tb.Errorf("bashd %q with %q did not end", args, env)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// failed checks that bashd failed with one line on stderr that has those parts.
func failed(tb testing.TB, env, args []string, parts ...string) {
	tb.Helper()
	code, stdout, stderr := invoke(tb, env, args...)
	if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "bashd: ") || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") {
		tb.Errorf("bashd %q with %q: exit %d, stdout %q, stderr %q; want exit 1 and one line", args, env, code, stdout, stderr)
	}
	for _, part := range parts {
		if !strings.Contains(stderr, part) {
			tb.Errorf("bashd %q with %q: %q lacks %q", args, env, stderr, part)
		}
	}
}

// failedLate is failed for what shows only after the daemon has begun to log: the one
// line comes last.
func failedLate(tb testing.TB, env []string, parts ...string) {
	tb.Helper()
	code, stdout, stderr := invoke(tb, env)
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	last := lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if !strings.HasPrefix(line, "time=") {
			tb.Errorf("bashd with %q: an odd line %q", env, line)
		}
	}
	if code != 1 || stdout != "" || !strings.HasPrefix(last, "bashd: ") {
		tb.Errorf("bashd with %q: exit %d, stdout %q, stderr %q; want exit 1 and the reason in the last line", env, code, stdout, stderr)
	}
	for _, part := range parts {
		if !strings.Contains(last, part) {
			tb.Errorf("bashd with %q: %q lacks %q", env, last, part)
		}
	}
}

func TestHelpPrintsEveryVariable(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"help", "-h", "--help"} {
		// Whatever the configuration: help is what a user turns to when it is wrong.
		code, stdout, stderr := invoke(t, []string{"BASHD_NONSENSE=1"}, arg)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit %d, stderr %q", arg, code, stderr)
		}
		for _, v := range config.Vars() {
			if !strings.Contains(stdout, "\n  "+v.Name+" ") {
				t.Errorf("%s: %s is missing", arg, v.Name)
			}
		}
		for _, command := range []string{"serve", "healthcheck", "config", "version", "help"} {
			if !strings.Contains(stdout, command) {
				t.Errorf("%s: the command %s is missing", arg, command)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version"} {
		code, stdout, stderr := invoke(t, []string{"BASHD_NONSENSE=1"}, arg)
		if code != 0 || stderr != "" || !regexp.MustCompile(`^bashd \S+ go\S+ linux/\w+\n$`).MatchString(stdout) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", arg, code, stdout, stderr)
		}
	}
}

func TestConfigIsRedacted(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := invoke(t, []string{"HOME=/home/x", "BASHD_MANAGED_ENV=DSH_A=canary", "BASHD_GRACE_MS=1234"}, "config")
	if code != 0 || stderr != "" || strings.Contains(stdout, "canary") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, line := range []string{"BASHD_GRACE_MS=1234", "BASHD_LISTEN=127.0.0.1:8080", "BASHD_STATE_DIR=/home/x/.local/state/bashd"} {
		if !strings.Contains("\n"+stdout, "\n"+line+"\n") {
			t.Errorf("%s is missing in:\n%s", line, stdout)
		}
	}
	if got, want := strings.Count(stdout, "\n"), len(config.Vars()); got != want {
		t.Errorf("%d lines; want one for each of %d variables", got, want)
	}
}

func TestWrongUseIsOneLine(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	good := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "BASHD_LISTEN=127.0.0.1:0"}
	failed(t, good, []string{"sevre"}, `"sevre"`, "bashd help")
	failed(t, good, []string{"--listen=:80"}, "--listen=:80", "bashd help")
	failed(t, good, []string{"serve", "--port", "80"}, "no arguments")
	for setting, parts := range map[string][]string{
		"BASHD_NONSENSE=1":                 {"BASHD_NONSENSE"},
		"BASHD_GRACE_MS=soon":              {"BASHD_GRACE_MS"},
		"BASHD_GRACE_MS=":                  {"BASHD_GRACE_MS"},
		"BASHD_SANDBOX_MODE=Read-Only":     {"BASHD_SANDBOX_MODE", "read-only"},
		"BASHD_SANDBOX_MODE=none":          {"BASHD_SANDBOX_MODE"},
		"BASHD_LISTEN=0.0.0.0:0":           {"BASHD_LISTEN", "BASHD_ALLOW_OPEN"},
		"BASHD_LISTEN=8080":                {"BASHD_LISTEN"},
		"BASHD_TIMEOUT_MS=600001":          {"BASHD_TIMEOUT_MS", "BASHD_MAX_TIMEOUT_MS"},
		"BASHD_WORKSPACE=/":                {"BASHD_WORKSPACE"},
		"BASHD_WORKSPACE=" + home:          {"BASHD_WORKSPACE"},
		"BASHD_STATE_DIR=relative":         {"BASHD_STATE_DIR"},
		"BASHD_STATE_DIR=/proc/nope":       {"BASHD_STATE_DIR"},
		"BASHD_ALLOWED_ORIGINS=*":          {"BASHD_ALLOWED_ORIGINS"},
		"BASHD_TOKENS_FILE=" + home + "/t": {"BASHD_TOKENS_FILE"}, // not served: to ignore it would open what is meant to be closed
		"BASHD_RUN_AS=no-such-user":        {"BASHD_RUN_AS"},
		"BASHD_MANAGED_ENV=DSH_SHELL=2":    {"BASHD_MANAGED_ENV"},
		"BASHD_MANAGED_ENV=PATH=/secret":   {"BASHD_MANAGED_ENV"},
		"BASHD_LISTEN=unix:relative":       {"BASHD_LISTEN"},
	} {
		failed(t, append(slices.Clone(good), setting), nil, parts...)
		failed(t, append(slices.Clone(good), setting), []string{"serve"}, parts...)
	}
}

func TestHealthcheckOverTCP(t *testing.T) {
	t.Parallel()
	d := start(t)
	env := []string{"HOME=/home/x", "BASHD_LISTEN=" + d.addr}
	if code, stdout, stderr := invoke(t, env, "healthcheck"); code != 0 || stdout+stderr != "" {
		t.Errorf("exit %d %q %q", code, stdout, stderr)
	}
}

func TestHealthcheckOfNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	failed(t, []string{"HOME=/home/x", "BASHD_LISTEN=" + free.Addr().String()}, []string{"healthcheck"}, "healthcheck: ", "refused")
	failed(t, []string{"HOME=/home/x", "BASHD_LISTEN=unix:/nonexistent/s"}, []string{"healthcheck"}, "healthcheck: ", "/nonexistent/s")
	// What listens and never answers is not alive.
	failed(t, []string{"HOME=/home/x", "BASHD_LISTEN=" + l.Addr().String()}, []string{"healthcheck"}, "healthcheck: ")
}

// TestUnixSocket serves on a socket, and replaces one that a crash left.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "bashd") // t.TempDir's paths can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := dir + "/s"
	env := []string{"HOME=/home/x", "BASHD_LISTEN=unix:" + socket}
	crashed := launch(t, env[1])
	crashed.crash(t)
	failed(t, env, []string{"healthcheck"}, "refused")
	start(t, env[1])
	if code, stdout, stderr := invoke(t, env, "healthcheck"); code != 0 || stdout+stderr != "" {
		t.Errorf("healthcheck: exit %d %q %q", code, stdout, stderr)
	}
	if st, err := os.Stat(socket); err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: %v %v; want mode 0600", st, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://localhost/v1/runs", "application/json", strings.NewReader(`{"command":"echo ok"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 && resp.StatusCode != 503 { // 503: no sandbox on this host
		t.Errorf("a run: %s", resp.Status)
	}
	second := []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), env[1]}
	failedLate(t, second, "BASHD_LISTEN", "in use")
	write(t, dir+"/file", "kept")
	failedLate(t, append(second, "BASHD_LISTEN=unix:"+dir+"/file"), "BASHD_LISTEN", "not a socket")
	if content(dir+"/file") != "kept" {
		t.Error("a file was replaced")
	}
}

func TestTwoDaemonsOnOneStateDirectory(t *testing.T) {
	t.Parallel()
	d := start(t)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.cmd.Dir, "BASHD_LISTEN=127.0.0.1:0", "BASHD_STATE_DIR=" + d.state, "BASHD_WORKSPACE=" + d.ws}
	failed(t, env, nil, "BASHD_STATE_DIR", d.state, "in use by another bashd")
	if status, _ := d.request(t, "GET", "/healthz", ""); status != 200 {
		t.Errorf("the first one's health: %d", status)
	}
}

func TestStateDirectoryOpenToOthers(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	state := filepath.Join(base, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "BASHD_LISTEN=127.0.0.1:0", "BASHD_STATE_DIR=" + state, "BASHD_WORKSPACE=" + base + "/ws"}
	for _, mode := range []fs.FileMode{0o755, 0o750, 0o701} {
		if err := os.Chmod(state, mode); err != nil {
			t.Fatal(err)
		}
		failed(t, env, nil, "BASHD_STATE_DIR", "chmod 700 "+state)
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 0 {
		t.Errorf("something was written into it: %v %v", entries, err)
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	write(t, state, "a file")
	failed(t, env, nil, "BASHD_STATE_DIR", state)
}
