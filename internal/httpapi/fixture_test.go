package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bashd"
	"bashd/internal/exec"
	"bashd/internal/httpapi/apitest"
	"bashd/internal/metrics"
	"bashd/internal/output"
	"bashd/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRunner answers from fields and remembers what it was asked. Methods
// without a function know no command; Run and Start have a sample.
type fakeRunner struct {
	mu      sync.Mutex
	ran     []exec.Request
	started []exec.Request
	caller  exec.Caller // of the last call

	run      func(ctx context.Context, r exec.Request) (exec.Run, error)
	start    func(r exec.Request) (exec.Run, error)
	replayed bool // what Run and Start say
	get      func(c exec.Caller, k exec.Kind, id string) (exec.Run, error)
	list     func(c exec.Caller, o exec.ListOptions) ([]exec.Run, int64, error)
	kill     func(k exec.Kind, id, reason string) (exec.KillOutcome, exec.Run, error)
	stream   func(k exec.Kind, id string, s exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error)
	wait     func(ctx context.Context, id string, timeout time.Duration) (exec.Run, error)
	output   func(ctx context.Context, id string, o exec.ReadOptions) (exec.Page, error)
	consume  func(id string) (exec.Page, error)
	stdin    func(ctx context.Context, id string, data []byte, end bool) (int, error)
	remove   func(id string) error
	info     exec.Info
}

func (f *fakeRunner) Run(ctx context.Context, c exec.Caller, r exec.Request) (exec.Run, bool, error) {
	f.mu.Lock()
	f.ran, f.caller = append(f.ran, r), c
	f.mu.Unlock()
	if f.run == nil {
		return sampleRun(), f.replayed, nil
	}
	run, err := f.run(ctx, r)
	return run, f.replayed, err
}

func (f *fakeRunner) Start(_ context.Context, c exec.Caller, r exec.Request) (exec.Run, bool, error) {
	f.mu.Lock()
	f.started, f.caller = append(f.started, r), c
	f.mu.Unlock()
	if f.start == nil {
		return runningTask(), f.replayed, nil
	}
	task, err := f.start(r)
	return task, f.replayed, err
}

// calledBy remembers the caller of a method.
func (f *fakeRunner) calledBy(c exec.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller = c
}

func (f *fakeRunner) Get(c exec.Caller, k exec.Kind, id string) (exec.Run, error) {
	f.calledBy(c)
	if f.get == nil {
		return exec.Run{}, noRun(id)
	}
	return f.get(c, k, id)
}

func (f *fakeRunner) List(c exec.Caller, o exec.ListOptions) ([]exec.Run, int64, error) {
	f.calledBy(c)
	if f.list == nil {
		return nil, 0, nil
	}
	return f.list(c, o)
}

func (f *fakeRunner) Kill(_ context.Context, c exec.Caller, k exec.Kind, id, reason string) (exec.KillOutcome, exec.Run, error) {
	f.calledBy(c)
	if f.kill == nil {
		return "", exec.Run{}, noRun(id)
	}
	return f.kill(k, id, reason)
}

func (f *fakeRunner) OpenStream(c exec.Caller, k exec.Kind, id string, s exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
	f.calledBy(c)
	if f.stream == nil {
		return nil, 0, time.Time{}, noRun(id)
	}
	return f.stream(k, id, s)
}

func (f *fakeRunner) Wait(ctx context.Context, c exec.Caller, id string, timeout time.Duration) (exec.Run, error) {
	f.calledBy(c)
	if f.wait == nil {
		return exec.Run{}, noRun(id)
	}
	return f.wait(ctx, id, timeout)
}

func (f *fakeRunner) Output(ctx context.Context, c exec.Caller, id string, o exec.ReadOptions) (exec.Page, error) {
	f.calledBy(c)
	if f.output == nil {
		return exec.Page{}, noRun(id)
	}
	return f.output(ctx, id, o)
}

func (f *fakeRunner) Consume(_ context.Context, c exec.Caller, id string) (exec.Page, error) {
	f.calledBy(c)
	if f.consume == nil {
		return exec.Page{}, noRun(id)
	}
	return f.consume(id)
}

func (f *fakeRunner) WriteStdin(ctx context.Context, c exec.Caller, id string, data []byte, end bool) (int, error) {
	f.calledBy(c)
	if f.stdin == nil {
		return 0, noRun(id)
	}
	return f.stdin(ctx, id, data, end)
}

func (f *fakeRunner) Delete(_ context.Context, c exec.Caller, id string) error {
	f.calledBy(c)
	if f.remove == nil {
		return noRun(id)
	}
	return f.remove(id)
}

func (f *fakeRunner) Info() exec.Info { return f.info }

func (f *fakeRunner) requests() []exec.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ran
}

func (f *fakeRunner) startedTasks() []exec.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.started
}

func noRun(id string) error {
	return &exec.Error{Code: exec.CodeNotFound, Message: "no run \"" + id + "\""}
}

const sampleID = "bash-mfrggzdfmztwq2lknnwg23tpob"

// sampleRun is a settled run without anything special.
func sampleRun() exec.Run {
	started := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.FixedZone("", 3600))
	return exec.Run{
		ID: sampleID, Kind: exec.Foreground, Status: exec.StatusCompleted, ExitCode: new(0),
		Spec: exec.Spec{
			Command: "echo hi", Workdir: "/w", Timeout: time.Second, Mode: "read-only", WorkspaceRoot: "/w",
			StdoutMaxBytes: 64000, StderrMaxBytes: 64000, Encoding: exec.EncodingText,
		},
		Stdout:    exec.Stream{Tail: []byte("hi\n"), Bytes: 3},
		Sandbox:   exec.SandboxFacts{Mode: "read-only", Enforcement: "full"},
		StartedAt: started, FinishedAt: started.Add(7 * time.Millisecond), Duration: 7 * time.Millisecond,
	}
}

// sampleTask is a settled task without anything special.
func sampleTask() exec.Run {
	r := sampleRun()
	r.Kind, r.Spec.Timeout, r.Stdout.Tail, r.Stdout.HasFile = exec.Background, 0, nil, true
	return r
}

// runningTask is a task as it was admitted.
func runningTask() exec.Run {
	r := sampleTask()
	r.Status, r.ExitCode, r.FinishedAt, r.Duration, r.Stdout = exec.StatusRunning, nil, time.Time{}, 0, exec.Stream{}
	r.Sandbox = exec.SandboxFacts{Mode: "read-only"}
	return r
}

func sampleInfo() exec.Info {
	return exec.Info{
		DefaultMode: "read-only", MaxMode: "workspace-write",
		ManagedEnv: []exec.ManagedVar{{Name: "DSH_SHELL", Value: "secret-fact", Source: "built-in"}},
		Sandbox: sandbox.Report{
			Tier: "C", ABI: 7, Cleanup: "domain", RunAs: true, Processes: "user", Memory: true,
			ReadOnly:       sandbox.ModeReport{Enforcement: "full"},
			WorkspaceWrite: sandbox.ModeReport{Enforcement: "partial", Gaps: []string{"metadata"}},
		},
		Limits: exec.Limits{
			Timeout: 2 * time.Minute, MaxTimeout: 10 * time.Minute, Grace: 3 * time.Second, MaxCommandBytes: 1 << 20,
			MaxOutputBytes: 64000, MaxSpillBytes: 1 << 26, MaxRunning: 256, MaxRunningPerOwner: 128,
			MaxTasksPerOwner: 10, Retention: 24 * time.Hour,
			Command: sandbox.Limits{OpenFiles: 4096, FileBytes: 1 << 32},
		},
	}
}

// syncBuffer is a log that a test may read while the server writes it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// fixture is a server on a socket of its own, and a client for it.
type fixture struct {
	*Server
	runner *fakeRunner
	logs   *syncBuffer
	addr   string
	client *http.Client
}

func options() (Options, *fakeRunner, *syncBuffer) {
	runner, logs := &fakeRunner{info: sampleInfo()}, &syncBuffer{}
	sealer, err := output.NewSealer(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		panic(err)
	}
	return Options{
		Runner: runner, Metrics: metrics.New("test"), Sealer: sealer, Version: "v0", OpenAPI: bashd.OpenAPI,
		Logger:    slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		PeerCheck: func(net.Conn) (bool, string) { return false, "" },
		Ready:     func() []string { return nil },
	}, runner, logs
}

func newFixture(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	return newTunedFixture(t, func(*Server) {}, change...)
}

// newTunedFixture shortens timeouts before anybody reads them.
func newTunedFixture(t *testing.T, tune func(*Server), change ...func(*Options)) *fixture {
	t.Helper()
	o, runner, logs := options()
	for _, c := range change {
		c(&o)
	}
	s := New(o)
	s.clientPoll = 20 * time.Millisecond
	tune(s)
	f := &fixture{Server: s, runner: runner, logs: logs}
	f.addr, f.client = f.serve(t, "tcp", "127.0.0.1:0")
	return f
}

func (f *fixture) serve(t *testing.T, network, address string) (addr string, client *http.Client) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := f.HTTPServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}, DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String(), &http.Client{Transport: transport}
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body []byte
}

func (a answer) problem(t *testing.T) problemBody {
	t.Helper()
	var p problemBody
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%d: %v: %q", a.StatusCode, err, a.body)
	}
	return p
}

// request builds one; headers are "Name: value", Host among them.
func (f *fixture) request(t *testing.T, method, path, body string, headers ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.addr+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case name == "Host":
			r.Host = value
		case name == "Content-Type":
			r.Header.Set(name, value)
		default:
			r.Header.Add(name, value)
		}
	}
	return r
}

// send sends r and holds the answer against the document.
func (f *fixture) send(t *testing.T, r *http.Request) answer {
	t.Helper()
	resp, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	apitest.Validate(t, r, resp, body)
	return answer{resp, body}
}

func (f *fixture) do(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	return f.send(t, f.request(t, method, path, body, headers...))
}

// wantProblem checks status and code, and that each of the fields is named.
func (a answer) wantProblem(t *testing.T, status int, code exec.Code, fields ...string) problemBody {
	t.Helper()
	p := a.problem(t)
	if a.StatusCode != status || p.Status != status || p.Code != code || p.RequestID != a.Header.Get("X-Request-Id") {
		t.Errorf("got %d %+v, want %d %s", a.StatusCode, p, status, code)
	}
	for _, field := range fields {
		if !strings.Contains(string(a.body), `{"field":"`+field+`",`) {
			t.Errorf("field %q is not named: %s", field, a.body)
		}
	}
	return p
}

// wantNothingRun fails where the runner was asked to run or start something.
func (f *fixture) wantNothingRun(t *testing.T) {
	t.Helper()
	if n := len(f.runner.requests()) + len(f.runner.startedTasks()); n > 0 {
		t.Errorf("%d commands were run", n)
	}
}

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}
