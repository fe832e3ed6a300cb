package exec_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bashd/internal/exec"
	"bashd/internal/metrics"
	"bashd/internal/output"
	"bashd/internal/sandbox"
	"bashd/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(lastly{m}) }

// lastly puts away what the tests share before goroutines are counted.
type lastly struct{ *testing.M }

func (m lastly) Run() int {
	defer common.close()
	// Commands do not see the host's /tmp where they have one of their own.
	if err := os.Setenv("TMPDIR", "/var/tmp"); err != nil {
		panic(err)
	}
	return m.M.Run()
}

// shared is a sandbox, whose probe takes a while, and the directories that it hides.
type shared struct {
	once    sync.Once
	dir     string
	sandbox *sandbox.Sandbox
	next    atomic.Int64 // numbers the directories
}

var common shared

func (s *shared) open(tb testing.TB) {
	tb.Helper()
	s.once.Do(func() {
		dir, err := os.MkdirTemp("", "exec-test-")
		if err != nil {
			tb.Fatal(err)
		}
		if s.dir, err = filepath.EvalSymlinks(dir); err != nil {
			tb.Fatal(err)
		}
		for _, d := range []string{"/state", "/ws", "/probe"} {
			if err := os.Mkdir(s.dir+d, 0o700); err != nil {
				tb.Fatal(err)
			}
		}
		s.sandbox, err = sandbox.New(context.Background(), sandbox.Config{
			Shell: "/bin/bash", Scratch: s.dir + "/probe", Hidden: []string{s.dir + "/state", s.dir + "/ws"},
		})
		if err != nil {
			tb.Fatal(err)
		}
	})
	if s.sandbox == nil {
		tb.Fatal("there is no sandbox")
	}
}

func (s *shared) close() {
	if s.sandbox != nil {
		s.sandbox.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// fixture is a Manager over directories of its own.
type fixture struct {
	*exec.Manager
	state, ws string
	settings  exec.Settings
	sandbox   *sandbox.Sandbox
	store     *storetest.Faulty // what the Manager has
	events    *events
}

// newFixture keeps its records in memory, unless change has another store.
func newFixture(tb testing.TB, change ...func(*exec.Settings)) *fixture {
	tb.Helper()
	common.open(tb)
	n := strconv.FormatInt(common.next.Add(1), 10)
	f := &fixture{state: common.dir + "/state/" + n, ws: common.dir + "/ws/" + n, sandbox: common.sandbox}
	for _, d := range []string{f.state, f.ws} {
		if err := os.Mkdir(d, 0o700); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = os.RemoveAll(d) })
	}
	sealer, err := output.NewSealer(make([]byte, output.KeyBytes))
	if err != nil {
		tb.Fatal(err)
	}
	f.settings = exec.Settings{
		StateDir: f.state, Workspace: f.ws, DefaultMode: sandbox.FullAccess, MaxMode: sandbox.FullAccess,
		Timeout: time.Minute, MaxTimeout: 10 * time.Minute, Grace: time.Second, Drain: time.Second,
		MaxOutputBytes: 64000, MaxSpillBytes: 1 << 20, MaxRunning: 16, MaxTasksPerOwner: 6, Retention: time.Hour, MaxStateBytes: 1 << 30,
		Environ: os.Environ(), DSHHome: "/dsh", Sandbox: f.sandbox, Metrics: metrics.New("test"),
		Store: storetest.NewMemory(), Sealer: sealer,
	}
	for _, c := range change {
		c(&f.settings)
	}
	f.open(tb)
	return f
}

// open begins a life of the Manager. It ends with the test, or with shut.
func (f *fixture) open(tb testing.TB) {
	tb.Helper()
	s := f.settings
	f.store = &storetest.Faulty{Store: s.Store}
	if already, ok := s.Store.(*storetest.Faulty); ok {
		f.store = already
	}
	s.Store = f.store
	m, err := exec.NewManager(s)
	if err != nil {
		tb.Fatal(err)
	}
	f.Manager, f.events = m, listen(m)
	tb.Cleanup(func() { shut(m) })
}

// shut ends a life without waiting for anything that runs.
func shut(m *exec.Manager) {
	hurry, cancel := context.WithCancel(context.Background())
	cancel()
	m.Shutdown(hurry)
	m.Close()
}

// restart ends a life in order and begins the next.
func (f *fixture) restart(tb testing.TB) {
	tb.Helper()
	shut(f.Manager)
	f.open(tb)
}

// errCut is what a store says that is cut off.
var errCut = errors.New("the store is cut off")

// cut is the part of a crash that a test can have in its own process: nothing is recorded any more.
type cut struct{ off atomic.Bool }

func (c *cut) before(string, int) error {
	if c.off.Load() {
		return errCut
	}
	return nil
}

// cuttable has the Manager begin on a store that can be cut off.
func cuttable(c *cut) func(*exec.Settings) {
	return func(s *exec.Settings) { s.Store = &storetest.Faulty{Store: s.Store, Before: c.before} }
}

// crash cuts the store off, ends the life, and begins the next with the records as they were.
func (f *fixture) crash(tb testing.TB, c *cut) {
	tb.Helper()
	c.off.Store(true)
	shut(f.Manager)
	c.off.Store(false)
	f.open(tb)
}

// events are the settlements of one life.
type events struct {
	mu   sync.Mutex
	runs map[string][]exec.Run // guarded by mu
}

func listen(m *exec.Manager) *events {
	e := &events{runs: map[string][]exec.Run{}}
	m.OnChange(func(what exec.Change, r exec.Run) {
		if what != exec.Settled {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.runs[r.ID] = append(e.runs[r.ID], r)
	})
	return e
}

func (e *events) of(id string) []exec.Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.runs[id])
}

var (
	alice = exec.Caller{Owner: "aaaa"}
	bob   = exec.Caller{Owner: "bbbb"}
	none  = exec.Caller{}
)

func (f *fixture) mustRun(tb testing.TB, c exec.Caller, r exec.Request) exec.Run {
	tb.Helper()
	run, _, err := f.Run(tb.Context(), c, r)
	if err != nil {
		tb.Fatal(err)
	}
	return run
}

// inBackground runs r and returns its id as soon as it shows in the list.
func (f *fixture) inBackground(tb testing.TB, ctx context.Context, c exec.Caller, r exec.Request) (id string, result <-chan exec.Run) {
	tb.Helper()
	before := f.ids(tb, c)
	done := make(chan exec.Run, 1)
	go func() {
		run, _, err := f.Run(ctx, c, r)
		if err != nil {
			tb.Error(err)
		}
		done <- run
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for id := range f.ids(tb, c) {
			if !before[id] {
				return id, done
			}
		}
	}
	tb.Fatal("the run does not show in the list")
	return "", nil
}

func (f *fixture) ids(tb testing.TB, c exec.Caller) map[string]bool {
	tb.Helper()
	runs, _, err := f.List(c, exec.ListOptions{Limit: exec.MaxPage})
	if err != nil {
		tb.Fatal(err)
	}
	ids := map[string]bool{}
	for _, r := range runs {
		ids[r.ID] = true
	}
	return ids
}

// awaitOutput waits until the run has printed want.
func (f *fixture) awaitOutput(tb testing.TB, c exec.Caller, id, want string) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if r, err := f.Get(c, exec.Foreground, id); err == nil && strings.Contains(string(r.Stdout.Tail), want) {
			return
		}
	}
	tb.Fatalf("the run did not print %q", want)
}

func code(err error) exec.Code {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return e.Code
	}
	return ""
}

// TestFence: a run is there for its owner; for everybody else it is as if it were not.
// What nobody owns is everybody's.
func TestFence(t *testing.T) {
	f := newFixture(t)
	mine := f.mustRun(t, alice, exec.Request{Command: "seq 100000"})
	nobodys := f.mustRun(t, none, exec.Request{Command: "seq 100000"})
	_, unknown := f.Get(bob, exec.Foreground, "bash-aaaaaaaaaaaaaaaaaaaaaaaaaa")
	for _, c := range []exec.Caller{bob, none} {
		for name, call := range map[string]func(id string) error{
			"get":    func(id string) error { _, err := f.Get(c, exec.Foreground, id); return err },
			"kill":   func(id string) error { _, _, err := f.Kill(t.Context(), c, exec.Foreground, id, ""); return err },
			"stream": func(id string) error { return closing(f.OpenStream(c, exec.Foreground, id, exec.Stdout)) },
		} {
			if err := call(mine.ID); code(err) != exec.CodeNotFound || strings.ReplaceAll(err.Error(), mine.ID, "") != strings.ReplaceAll(unknown.Error(), "bash-aaaaaaaaaaaaaaaaaaaaaaaaaa", "") {
				t.Errorf("%s by %q: %v, want the answer to an unknown id, %v", name, c.Owner, err, unknown)
			}
			if err := call(nobodys.ID); err != nil {
				t.Errorf("%s by %q of nobody's: %v", name, c.Owner, err)
			}
		}
		if f.ids(t, c)[mine.ID] || !f.ids(t, c)[nobodys.ID] {
			t.Errorf("%q lists %v", c.Owner, f.ids(t, c))
		}
	}
	if ids := f.ids(t, alice); !ids[mine.ID] || !ids[nobodys.ID] {
		t.Errorf("the owner lists %v", ids)
	}
}

func closing(f io.Closer, _ int64, _ time.Time, err error) error {
	if err == nil {
		f.Close()
	}
	return err
}

// TestFirstCauseWins: whatever comes together, one cause is told, and the facts fit it.
func TestFirstCauseWins(t *testing.T) {
	f := newFixture(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		limit := 100 * time.Millisecond
		id, result := f.inBackground(t, ctx, alice, exec.Request{Command: "sleep 30", Timeout: &limit})
		go cancel()
		go func() { _, _, _ = f.Kill(context.Background(), alice, exec.Foreground, id, "test") }()
		run := <-result
		if !run.Status.Terminal() || run.Cause == exec.CauseNone || (run.TimedOut() && run.Aborted()) {
			t.Fatalf("got %+v", run)
		}
		again, err := f.Get(alice, exec.Foreground, id)
		if err != nil || again.Cause != run.Cause || again.Status != run.Status {
			t.Fatalf("later it was %v %v (%v), at first %v %v", again.Status, again.Cause, err, run.Status, run.Cause)
		}
	}
}

// TestKillAfterTheEnd changes nothing.
func TestKillAfterTheEnd(t *testing.T) {
	f := newFixture(t)
	run := f.mustRun(t, alice, exec.Request{Command: "echo r; exit 7"})
	for range 3 {
		outcome, after, err := f.Kill(t.Context(), alice, exec.Foreground, run.ID, "")
		if err != nil || outcome != exec.AlreadyFinished || after.Status != exec.StatusCompleted || *after.ExitCode != 7 || after.Cause != exec.CauseNone {
			t.Errorf("%v %+v %v", outcome, after, err)
		}
	}
}

// TestKillStatusIsStopping: between the signal and the end the status says so, and a
// trap's exit code survives.
func TestKillStatusIsStopping(t *testing.T) {
	f := newFixture(t)
	id, result := f.inBackground(t, t.Context(), alice, exec.Request{Command: `trap 'echo bye; read -t 0.3 <> <(:); exit 9' TERM; echo up; while :; do read -t 0.05 <> <(:); done`})
	f.awaitOutput(t, alice, id, "up")
	outcome, _, err := f.Kill(t.Context(), alice, exec.Foreground, id, "")
	if err != nil || outcome != exec.KillRequested {
		t.Fatal(outcome, err)
	}
	f.awaitOutput(t, alice, id, "bye")
	if r, err := f.Get(alice, exec.Foreground, id); err != nil || r.Status != exec.StatusStopping {
		t.Errorf("status %v (%v), want stopping", r.Status, err)
	}
	run := <-result
	if run.Status != exec.StatusKilled || run.ExitCode == nil || *run.ExitCode != 9 || run.Cause != exec.CauseKill || run.Aborted() {
		t.Errorf("got %+v", run)
	}
}

// TestLimits: more than allowed is refused before anything is spent, and room is
// there again afterwards.
func TestLimits(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxRunning = 4 })
	ctx, cancel := context.WithCancel(t.Context())
	var results []<-chan exec.Run
	start := func(c exec.Caller) {
		_, r := f.inBackground(t, ctx, c, exec.Request{Command: "sleep 30"})
		results = append(results, r)
	}
	start(alice)
	start(alice)
	_, _, err := f.Run(t.Context(), alice, exec.Request{Command: "true"})
	if code(err) != exec.CodeLimitReached {
		t.Errorf("alice's third of a half of four: %v", err)
	}
	start(bob)
	start(none)
	if _, _, err := f.Run(t.Context(), exec.Caller{Owner: "cccc"}, exec.Request{Command: "true"}); code(err) != exec.CodeLimitReached {
		t.Errorf("the fifth of four: %v", err)
	}
	cancel()
	for _, r := range results {
		if run := <-r; run.Cause != exec.CauseDisconnect || !run.Aborted() {
			t.Errorf("got %+v", run)
		}
	}
	f.mustRun(t, alice, exec.Request{Command: "true"})
}

// TestShutdown: what may finish in the drain time does, the rest is killed, nothing
// new is taken, and nothing is left running.
func TestShutdown(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Drain = 400 * time.Millisecond; s.Grace = 300 * time.Millisecond })
	short, shortResult := f.inBackground(t, t.Context(), alice, exec.Request{Command: "echo up; sleep 0.2; echo finished"})
	long, longResult := f.inBackground(t, t.Context(), bob, exec.Request{Command: "trap '' TERM; echo up; while :; do sleep 1; done"})
	f.awaitOutput(t, alice, short, "up")
	f.awaitOutput(t, bob, long, "up")
	done := make(chan struct{})
	go func() { f.Shutdown(context.Background()); close(done) }()
	for len(f.Ready()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, _, err := f.Run(t.Context(), alice, exec.Request{Command: "true"}); code(err) != exec.CodeShuttingDown {
		t.Errorf("a run during the drain: %v", err)
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
	if run := <-shortResult; run.Status != exec.StatusCompleted || !strings.Contains(string(run.Stdout.Tail), "finished") {
		t.Errorf("the short one: %+v", run)
	}
	if run := <-longResult; run.Cause != exec.CauseShutdown || !run.Aborted() || run.Signal != 9 {
		t.Errorf("the long one: %+v", run)
	}
}

// TestListedOnce: a run that settles while it is listed is listed once.
func TestListedOnce(t *testing.T) {
	f := newFixture(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 30 {
			if _, _, err := f.Run(t.Context(), alice, exec.Request{Command: "true"}); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		runs, _, err := f.List(alice, exec.ListOptions{Limit: exec.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, r := range runs {
			if seen[r.ID] {
				t.Fatalf("%s is listed twice", r.ID)
			}
			seen[r.ID] = true
		}
		select {
		case <-done:
			return
		case <-time.After(100 * time.Microsecond):
		}
	}
}
