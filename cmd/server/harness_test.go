package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bashd/internal/httpapi/apitest"
)

// asMain is the environment variable that turns the test binary into bashd itself,
// so that the suite runs the real program, under the race detector too.
const asMain = "TEST_AS_BASHD"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	// Commands do not see the host's /tmp where they have one of their own.
	if err := os.Setenv("TMPDIR", "/var/tmp"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// daemon is a running bashd with a state directory and workspace of its own.
type daemon struct {
	cmd   *osexec.Cmd
	pid   int // of bashd itself, which is not cmd's where something wraps it
	url   string
	addr  string
	state string
	ws    string // BASHD_WORKSPACE
	out   string // a directory outside of all that commands may write
	log   *logBuffer
	mark  string
	done  chan error
}

// logBuffer collects what the daemon logs.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a daemon whose environment has env on top, and stops it at the end of the
// test: it must exit 0, leave no process, and have logged no panic and no race.
func start(tb testing.TB, env ...string) *daemon {
	tb.Helper()
	d := launch(tb, env...)
	tb.Cleanup(func() { d.stop(tb) })
	return d
}

// launch is start without the stop, for tests that end the daemon themselves.
func launch(tb testing.TB, env ...string) *daemon {
	tb.Helper()
	return launchIn(tb, surroundings{}, env...)
}

// surroundings are what a daemon is started in.
type surroundings struct {
	wrapper []string        // a command that runs the command appended to it
	bare    bool            // as env -i: neither PATH nor HOME
	nobody  bool            // as uid and gid 65534; only root can
	prepare func(d *daemon) // runs before the start
}

// launchIn is launch in unusual surroundings.
func launchIn(tb testing.TB, in surroundings, env ...string) *daemon {
	tb.Helper()
	base, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	d := &daemon{
		state: base + "/state", ws: base + "/workspace", out: base + "/out", log: &logBuffer{},
		mark: fmt.Sprintf("E2E_MARK=%d-%d", os.Getpid(), time.Now().UnixNano()), done: make(chan error, 1),
	}
	if err := os.Mkdir(d.out, 0o755); err != nil {
		tb.Fatal(err)
	}
	d.cmd = in.command(tb, base)
	if !in.bare {
		env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + base}, env...)
	}
	d.cmd.Env = append([]string{
		asMain + "=1", d.mark,
		"BASHD_LISTEN=127.0.0.1:0", "BASHD_STATE_DIR=" + d.state, "BASHD_WORKSPACE=" + d.ws, "BASHD_LOG_LEVEL=debug",
	}, env...)
	d.cmd.Dir = base
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if in.prepare != nil {
		in.prepare(d)
	}
	if err := d.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	// A test that gives up before it ends the daemon leaves none behind; one that has ended is not signalled.
	tb.Cleanup(func() {
		if tb.Failed() || tb.Skipped() {
			_ = d.cmd.Process.Kill()
		}
	})
	d.awaitListening(tb)
	d.pid = d.cmd.Process.Pid
	if in.wrapper != nil {
		d.pid = wrapped(tb, d.pid)
	}
	return d
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

func (d *daemon) awaitListening(tb testing.TB) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if m := listening.FindStringSubmatch(d.log.String()); m != nil {
			d.addr = m[1]
			d.url = "http://" + d.addr
			return
		}
		select {
		case err := <-d.done:
			tb.Fatalf("the daemon ended at its start: %v\n%s", err, d.log)
		default:
		}
	}
	_ = d.cmd.Process.Kill()
	tb.Fatalf("the daemon does not listen:\n%s", d.log)
}

// stop ends the daemon and checks what every test relies on.
func (d *daemon) stop(tb testing.TB) {
	tb.Helper()
	_ = syscall.Kill(d.pid, syscall.SIGTERM)
	select {
	case err := <-d.done:
		if err != nil {
			tb.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		tb.Error("the daemon did not stop")
		_ = syscall.Kill(d.pid, syscall.SIGKILL)
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	d.checkLog(tb)
	d.awaitNoProcess(tb, time.Second)
	if tb.Failed() {
		tb.Logf("log of the daemon:\n%s", tail(d.log.String(), 8000))
	}
}

func (d *daemon) checkLog(tb testing.TB) {
	tb.Helper()
	log := d.log.String()
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "code=INTERNAL"} {
		if strings.Contains(log, bad) {
			tb.Errorf("the log has %q", bad)
		}
	}
	if strings.ContainsRune(log, 0x1b) {
		tb.Error("the log has a raw escape character")
	}
}

// awaitNoProcess checks that no process is left that has this daemon's mark in its
// environment, as all that it and its commands start inherit it. Zombies do not count.
func (d *daemon) awaitNoProcess(tb testing.TB, within time.Duration) {
	tb.Helper()
	var left []string
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if left = processes(func(p proc) bool { return strings.Contains(p.environ, d.mark) }); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Errorf("processes are left: %q", left)
			return
		}
	}
}

type proc struct {
	pid              int
	cmdline, environ string
}

// processes lists the command lines of the living processes that match.
func processes(match func(proc) bool) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		p := proc{pid, strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " ")), string(environ)}
		if match(p) {
			found = append(found, fmt.Sprintf("%d %s", pid, p.cmdline))
		}
	}
	return found
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// in is a request body of POST /v1/runs.
type in map[string]any

// result is what the tests look at of a run.
type result struct {
	ID             string
	Status         string
	ExitCode       *int
	Signal         *string
	TimedOut       bool
	Aborted        bool
	TimeoutMs      int64
	Stdout, Stderr stream
	Sandbox        struct {
		Mode, Enforcement string
		Denied            bool
		Gaps              []string
		Denial            *struct{ Path, Evidence string }
		Hint              string
	}
	Spec            map[string]any
	Cause           string
	DrainIncomplete bool
	DurationMs      int64
	SurvivorsKilled int
	Usage           struct{ UserMs, SystemMs, MaxRssBytes int64 }

	took time.Duration
	raw  []byte
}

type stream struct {
	Text       string
	DataBase64 []byte
	Truncated  bool
	Bytes      int64
	SpillPath  string
	URL        string
}

// code is the exit code, -1 for none.
func (r result) code() int {
	if r.ExitCode == nil {
		return -1
	}
	return *r.ExitCode
}

func (r result) signal() string {
	if r.Signal == nil {
		return ""
	}
	return *r.Signal
}

// run posts a run, which must be answered 200.
func (d *daemon) run(tb testing.TB, body in, headers ...string) result {
	tb.Helper()
	began := time.Now()
	status, raw := d.request(tb, "POST", "/v1/runs", mustJSON(tb, body), headers...)
	if status != http.StatusOK {
		tb.Fatalf("POST /v1/runs %.300s: %d %s", mustJSON(tb, body), status, raw)
	}
	return decode(tb, raw, time.Since(began))
}

// sh runs a command with nothing else said.
func (d *daemon) sh(tb testing.TB, command string) result {
	tb.Helper()
	return d.run(tb, in{"command": command})
}

func decode(tb testing.TB, raw []byte, took time.Duration) result {
	tb.Helper()
	r := result{took: took, raw: raw}
	if err := json.Unmarshal(raw, &r); err != nil {
		tb.Fatalf("%v: %.500s", err, raw)
	}
	return r
}

func mustJSON(tb testing.TB, v any) string {
	tb.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// request sends a body as JSON (none if empty) and validates the answer
// against openapi.yaml. headers are "Name: value".
func (d *daemon) request(tb testing.TB, method, path, body string, headers ...string) (status int, answer []byte) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	apitest.Validate(tb, req, resp, answer)
	return resp.StatusCode, answer
}

// problem is what the tests look at of an error.
type problem struct {
	Status       int
	Code, Detail string
	Kind, Title  string
	RequestID    string
	Errors       []struct{ Field, Message string }
}

// refused posts a run that must be refused with that status and code.
func (d *daemon) refused(tb testing.TB, body in, status int, code string, headers ...string) problem {
	tb.Helper()
	got, raw := d.request(tb, "POST", "/v1/runs", mustJSON(tb, body), headers...)
	var p problem
	if err := json.Unmarshal(raw, &p); err != nil || got != status || p.Code != code {
		tb.Errorf("POST /v1/runs %.200s: got %d %.300s, want %d %s", mustJSON(tb, body), got, raw, status, code)
	}
	return p
}

// rss is the daemon's resident memory in bytes.
func (d *daemon) rss(tb testing.TB) int64 {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	tb.Fatal("no VmRSS")
	return 0
}

// needsSandbox skips the test where this host cannot enforce the default mode.
func (d *daemon) needsSandbox(tb testing.TB) {
	tb.Helper()
	var info struct {
		Sandbox struct {
			ReadOnly struct{ Unavailable string }
		}
	}
	_, raw := d.request(tb, "GET", "/v1/info", "")
	if err := json.Unmarshal(raw, &info); err != nil {
		tb.Fatalf("GET /v1/info: %v", err)
	}
	if why := info.Sandbox.ReadOnly.Unavailable; why != "" {
		tb.Skipf("sandbox mode read-only cannot be enforced here: %s", why)
	}
}

// alive lists the living processes of this daemon's commands whose command line has part in it.
func (d *daemon) alive(part string) []string {
	return processes(func(p proc) bool { return strings.Contains(p.cmdline, part) && strings.Contains(p.environ, d.mark) })
}

// noneAlive fails the test if such a process is alive now.
func (d *daemon) noneAlive(tb testing.TB, part string) {
	tb.Helper()
	if left := d.alive(part); len(left) > 0 {
		tb.Errorf("still alive: %q", left)
	}
}

// pending is a run whose answer has not come yet.
type pending struct {
	d      *daemon
	id     string
	hangUp context.CancelFunc // drops the connection
	answer chan answered
}

type answered struct {
	req  *http.Request
	resp *http.Response
	raw  []byte
	took time.Duration
	err  error
}

// post posts a run without waiting for its answer.
func (d *daemon) post(tb testing.TB, body in, headers ...string) *pending {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	tb.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", d.url+"/v1/runs", strings.NewReader(mustJSON(tb, body)))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	p := &pending{d: d, hangUp: cancel, answer: make(chan answered, 1)}
	began := time.Now()
	go func() {
		a := answered{req: req}
		if a.resp, a.err = http.DefaultClient.Do(req); a.err == nil {
			a.raw, a.err = io.ReadAll(a.resp.Body)
			a.resp.Body.Close()
		}
		a.took = time.Since(began)
		p.answer <- a
	}()
	return p
}

// begin posts a run and returns once GET /v1/runs lists it. The command must be
// one that no other run of the daemon has.
func (d *daemon) begin(tb testing.TB, body in, headers ...string) *pending {
	tb.Helper()
	p := d.post(tb, body, headers...)
	var list struct {
		Runs []struct{ ID, Command string }
	}
	d.await(tb, "the run is listed", func() bool {
		_, raw := d.request(tb, "GET", "/v1/runs?limit=200", "", headers...)
		if err := json.Unmarshal(raw, &list); err != nil {
			tb.Fatal(err)
		}
		for _, r := range list.Runs {
			if r.Command == body["command"] {
				p.id = r.ID
			}
		}
		return p.id != ""
	})
	return p
}

// wait returns the answer, which must be 200.
func (p *pending) wait(tb testing.TB) result {
	tb.Helper()
	a := <-p.answer
	if a.err != nil {
		tb.Fatalf("POST /v1/runs: %v", a.err)
	}
	apitest.Validate(tb, a.req, a.resp, a.raw)
	if a.resp.StatusCode != http.StatusOK {
		tb.Fatalf("POST /v1/runs: %d %s", a.resp.StatusCode, a.raw)
	}
	return decode(tb, a.raw, a.took)
}

// get returns a run as GET /v1/runs/{id} has it.
func (d *daemon) get(tb testing.TB, id string, headers ...string) result {
	tb.Helper()
	began := time.Now()
	status, raw := d.request(tb, "GET", "/v1/runs/"+id, "", headers...)
	if status != http.StatusOK {
		tb.Fatalf("GET /v1/runs/%s: %d %s", id, status, raw)
	}
	return decode(tb, raw, time.Since(began))
}

// kill asks for the end of a run and returns the outcome and the run as it is then.
func (d *daemon) kill(tb testing.TB, id string, headers ...string) (outcome string, run result) {
	tb.Helper()
	status, raw := d.request(tb, "POST", "/v1/runs/"+id+"/kill", "", headers...)
	var body struct {
		Outcome string
		Run     result
	}
	if err := json.Unmarshal(raw, &body); err != nil || status != http.StatusAccepted {
		tb.Fatalf("POST /v1/runs/%s/kill: %d %s", id, status, raw)
	}
	return body.Outcome, body.Run
}

// await polls until ok, which must come within 20 s.
func (d *daemon) await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain until %s", what)
		}
	}
}

// settled waits until a run is over.
func (d *daemon) settled(tb testing.TB, id string) (r result) {
	tb.Helper()
	d.await(tb, "the run is over", func() bool {
		r = d.get(tb, id)
		return r.Status != "running" && r.Status != "stopping"
	})
	return r
}
