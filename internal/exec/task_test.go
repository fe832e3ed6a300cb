package exec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// obedient does what its stdin says, a line each: o… prints, e… prints to stderr, both with escapes as
// printf %b has them; x… exits with that code.
const obedient = `while IFS= read -r l; do case $l in o*) printf %b "${l#o}";; e*) printf %b "${l#e}" >&2;; x*) exit "${l#x}";; esac; done`

const patience = 20 * time.Second // with what must come

func (f *fixture) mustStart(tb testing.TB, c exec.Caller, r exec.Request) exec.Run {
	tb.Helper()
	run, _, err := f.Start(tb.Context(), c, r)
	if err != nil {
		tb.Fatal(err)
	}
	return run
}

// obey starts a task that is told what to do.
func (f *fixture) obey(tb testing.TB, c exec.Caller) string {
	tb.Helper()
	return f.mustStart(tb, c, exec.Request{Command: obedient, StdinOpen: true}).ID
}

// tell tells an obedient task.
func (f *fixture) tell(tb testing.TB, c exec.Caller, id string, lines ...string) {
	tb.Helper()
	data := []byte(strings.Join(lines, "\n") + "\n")
	if n, err := f.WriteStdin(tb.Context(), c, id, data, false); n != len(data) || err != nil {
		tb.Fatalf("%d of %d bytes were written: %v", n, len(data), err)
	}
}

// awaitBytes waits until the streams of a task are that long.
func (f *fixture) awaitBytes(tb testing.TB, c exec.Caller, id string, stdout, stderr int64) {
	tb.Helper()
	f.awaitTask(tb, c, id, func(r exec.Run) bool { return r.Stdout.Bytes >= stdout && r.Stderr.Bytes >= stderr })
}

func (f *fixture) awaitTask(tb testing.TB, c exec.Caller, id string, good func(exec.Run) bool) exec.Run {
	tb.Helper()
	var r exec.Run
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		if r, err = f.Get(c, exec.Background, id); err != nil {
			tb.Fatal(err)
		}
		if good(r) {
			return r
		}
	}
	tb.Fatalf("what was awaited of the task did not come: %+v", r)
	return r
}

// awaitEnd waits until a task has settled.
func (f *fixture) awaitEnd(tb testing.TB, c exec.Caller, id string) exec.Run {
	tb.Helper()
	r, err := f.Wait(tb.Context(), c, id, patience)
	if err != nil || !r.Status.Terminal() {
		tb.Fatalf("the task did not end: %v %v", r.Status, err)
	}
	return r
}

// finished runs a command as a task to its end.
func (f *fixture) finished(tb testing.TB, c exec.Caller, command string) exec.Run {
	tb.Helper()
	return f.awaitEnd(tb, c, f.mustStart(tb, c, exec.Request{Command: command}).ID)
}

// kill ends a task.
func (f *fixture) kill(tb testing.TB, c exec.Caller, id string) exec.Run {
	tb.Helper()
	if _, _, err := f.Kill(tb.Context(), c, exec.Background, id, "test"); err != nil {
		tb.Fatal(err)
	}
	return f.awaitEnd(tb, c, id)
}

// awaitEvent waits for the one event of a settled command.
func (f *fixture) awaitEvent(tb testing.TB, id string) exec.Run {
	tb.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if e := f.events.of(id); len(e) > 0 {
			return e[0]
		}
	}
	tb.Fatal("nobody heard of the settlement")
	return exec.Run{}
}

// TestTaskLife: a task is answered as it was admitted, runs without a timeout, and is what it is under its kind only.
func TestTaskLife(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Timeout, s.MaxTimeout = 50*time.Millisecond, 50*time.Millisecond })
	task := f.mustStart(t, alice, exec.Request{Command: obedient, StdinOpen: true, Session: "s1", Description: "d"})
	if task.Kind != exec.Background || task.Status != exec.StatusRunning || task.Spec.Timeout != 0 || task.Stdout.Bytes != 0 || task.Spec.Session != "s1" {
		t.Errorf("admitted: %+v", task)
	}
	if _, err := f.Get(alice, exec.Foreground, task.ID); code(err) != exec.CodeNotFound || !strings.HasPrefix(err.Error(), "no run ") {
		t.Errorf("the task as a run: %v", err)
	}
	f.tell(t, alice, task.ID, "oout", "eerr")
	f.awaitBytes(t, alice, task.ID, 3, 3)
	if r, err := f.Get(alice, exec.Background, task.ID); err != nil || r.Stdout.Tail != nil || r.Stdout.RetainedFrom != 0 || !r.Stdout.HasFile || r.Stdout.SpillPath != "" {
		t.Errorf("running: %+v %v", r.Stdout, err)
	}
	time.Sleep(60 * time.Millisecond) // a run would have timed out
	f.tell(t, alice, task.ID, "x7")
	end := f.awaitEnd(t, alice, task.ID)
	if end.Status != exec.StatusCompleted || *end.ExitCode != 7 || end.Cause != exec.CauseNone || end.Stdout.Tail != nil || end.Duration <= 0 || end.FinishedAt.IsZero() {
		t.Errorf("settled: %+v", end)
	}
	if e := f.awaitEvent(t, task.ID); e.Status != end.Status || e.Kind != exec.Background {
		t.Errorf("told: %+v", e)
	}
	run := f.mustRun(t, alice, exec.Request{Command: "true"})
	for name, err := range map[string]error{
		"get": second(f.Get(alice, exec.Background, run.ID)), "wait": second(f.Wait(t.Context(), alice, run.ID, 0)),
		"output": second(f.Output(t.Context(), alice, run.ID, exec.ReadOptions{MaxBytes: 1})), "consume": second(f.Consume(t.Context(), alice, run.ID)),
		"stdin": second(f.WriteStdin(t.Context(), alice, run.ID, nil, true)), "delete": f.Delete(t.Context(), alice, run.ID),
		"stream": closing(f.OpenStream(alice, exec.Background, run.ID, exec.Stdout)),
	} {
		if code(err) != exec.CodeNotFound || !strings.HasPrefix(err.Error(), "no task ") {
			t.Errorf("%s of a run as a task: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestTaskTimeout: a task's own timeout holds, without a cap.
func TestTaskTimeout(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxTimeout = 10 * time.Millisecond })
	task := f.mustStart(t, alice, exec.Request{Command: "sleep 60", Timeout: ms(150)})
	if task.Spec.Timeout != 150*time.Millisecond {
		t.Errorf("timeout %v", task.Spec.Timeout)
	}
	if end := f.awaitEnd(t, alice, task.ID); !end.TimedOut() || end.Status != exec.StatusKilled || end.Duration < 150*time.Millisecond {
		t.Errorf("got %+v", end)
	}
}

// TestTaskLimit: so many of an owner and session, and not one more; nothing is spent on what is refused.
func TestTaskLimit(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxTasksPerOwner = 2 })
	marker := f.ws + "/ran"
	start := func(c exec.Caller, session string) error {
		return second(first2(f.Start(t.Context(), c, exec.Request{Command: "touch " + marker + "; sleep 60", Session: session})))
	}
	var ids []string
	for range 2 {
		ids = append(ids, f.mustStart(t, alice, exec.Request{Command: "sleep 60", Session: "a"}).ID)
	}
	writes, before := f.store.Writes(), len(f.tasks(t, alice))
	err := start(alice, "a")
	e, _ := errors.AsType[*exec.Error](err)
	want := "background task limit reached for this owner (limit: 2); use task_kill to stop an unneeded task, wait for it to finish, then retry"
	if e == nil || e.Code != exec.CodeLimitReached || e.Message != want || e.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	if f.store.Writes() != writes || len(f.tasks(t, alice)) != before {
		t.Error("something was spent on what was refused")
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
	for _, other := range []func() error{
		func() error { return start(alice, "b") }, func() error { return start(alice, "") }, func() error { return start(bob, "a") },
	} {
		if err := other(); err != nil {
			t.Errorf("another owner or session: %v", err)
		}
	}
	f.kill(t, alice, ids[0])
	if err := start(alice, "a"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

func first2[A any](a A, _ bool, err error) (A, error) { return a, err }

// tasks lists the ids of a caller's tasks, newest first.
func (f *fixture) tasks(tb testing.TB, c exec.Caller) (ids []string) {
	tb.Helper()
	runs, _, err := f.List(c, exec.ListOptions{Kind: exec.Background, Limit: exec.MaxPage})
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestUnstartable: a task that cannot be started after its admission settles as failed, and why is its output.
func TestUnstartable(t *testing.T) {
	broken := brokenSandbox(t)
	f := newFixture(t, func(s *exec.Settings) { s.Sandbox = broken })
	task := f.mustStart(t, alice, exec.Request{Command: "true", StdinOpen: true, Stdin: []byte("x"), HasStdin: true})
	end := f.awaitEnd(t, alice, task.ID)
	if end.Status != exec.StatusFailed || end.ExitCode != nil || end.Detail == "" || end.Sandbox.RunnerFailed {
		t.Errorf("got %+v", end)
	}
	page, err := f.Output(t.Context(), alice, task.ID, exec.ReadOptions{MaxBytes: 1000})
	if err != nil || page.Stderr.Text != end.Detail+"\n" || !page.EOF || page.Delta() != "[stderr]\n"+end.Detail+"\n" {
		t.Errorf("output %q %v, want %q", page.Delta(), err, end.Detail)
	}
	f.awaitEvent(t, task.ID)
	if _, err := f.WriteStdin(t.Context(), alice, task.ID, []byte("x"), false); code(err) != exec.CodeConflict {
		t.Errorf("stdin: %v", err)
	}
	// A run, of which nobody has an id yet, is an error and leaves nothing.
	if _, _, err := f.Run(t.Context(), alice, exec.Request{Command: "true"}); code(err) != exec.CodeStartFailed {
		t.Errorf("run: %v", err)
	}
	if ids := f.ids(t, alice); len(ids) != 0 {
		t.Errorf("runs are left: %v", ids)
	}
	f.restart(t)
	if r, err := f.Get(alice, exec.Background, task.ID); err != nil || r.Detail != end.Detail || r.Status != exec.StatusFailed {
		t.Errorf("after a restart: %+v %v", r, err)
	}
}

// brokenSandbox has a shell that is not there.
func brokenSandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	s, err := sandbox.New(t.Context(), sandbox.Config{Shell: "/nonexistent/bash", Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestWait: until the end, or the time is up, or the caller goes away.
func TestWait(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	began := time.Now()
	if r, err := f.Wait(t.Context(), alice, id, 30*time.Millisecond); err != nil || r.Status != exec.StatusRunning || time.Since(began) < 30*time.Millisecond {
		t.Errorf("until the time is up: %v %v", r.Status, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if r, err := f.Wait(ctx, alice, id, time.Hour); err != nil || r.Status != exec.StatusRunning {
		t.Errorf("until the caller goes away: %v %v", r.Status, err)
	}
	got := make(chan exec.Run)
	for range 3 {
		go func() {
			r, _ := f.Wait(t.Context(), alice, id, time.Hour)
			got <- r
		}()
	}
	f.tell(t, alice, id, "x3")
	for range 3 {
		if r := <-got; r.Status != exec.StatusCompleted || *r.ExitCode != 3 {
			t.Errorf("until the end: %+v", r)
		}
	}
}

// TestDelete: what runs stays; what has settled goes with its files, once.
func TestDelete(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	f.tell(t, alice, id, "ohello")
	f.awaitBytes(t, alice, id, 5, 0)
	if err := f.Delete(t.Context(), alice, id); code(err) != exec.CodeConflict {
		t.Errorf("while it runs: %v", err)
	}
	f.kill(t, alice, id)
	if err := f.Delete(t.Context(), bob, id); code(err) != exec.CodeNotFound {
		t.Errorf("by another: %v", err)
	}
	if len(f.spillFiles(t)) != 1 {
		t.Errorf("files: %q", f.spillFiles(t))
	}
	if err := f.Delete(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), alice, id); code(err) != exec.CodeNotFound {
		t.Errorf("twice: %v", err)
	}
	if len(f.spillFiles(t)) != 0 || len(f.tasks(t, alice)) != 0 {
		t.Errorf("left: %q %q", f.spillFiles(t), f.tasks(t, alice))
	}
}

// spillFiles lists the files below the owners' directories; the janitor may be at work there.
func (f *fixture) spillFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(f.state+"/owners", func(path string, d os.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && d.Type().IsRegular():
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// content is all of a stream, or the error.
func (f *fixture) content(c exec.Caller, id string, name exec.StreamName) (string, error) {
	r, size, _, err := f.OpenStream(c, exec.Background, id, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err == nil && int64(len(data)) != size {
		err = fmt.Errorf("%d bytes of %d", len(data), size)
	}
	return string(data), err
}

// TestTaskStreams: a task's streams can be had whole, at any time, unless they no longer are.
func TestTaskStreams(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxOutputBytes, s.MaxSpillBytes = 10, 100 })
	is := func(what, id string, name exec.StreamName, want string) {
		t.Helper()
		if got, err := f.content(alice, id, name); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", what, got, err, want)
		}
	}
	gone := func(what, id string, name exec.StreamName) {
		t.Helper()
		if _, err := f.content(alice, id, name); code(err) != exec.CodeGone {
			t.Errorf("%s: %v, want gone", what, err)
		}
	}
	id := f.obey(t, alice)
	is("of a silent one", id, exec.Stdout, "")
	f.tell(t, alice, id, `o0123456789abc\0def`)
	f.awaitBytes(t, alice, id, 17, 0)
	is("so far", id, exec.Stdout, "0123456789abc\x00def")
	f.tell(t, alice, id, "x0")
	f.awaitEnd(t, alice, id)
	is("settled", id, exec.Stdout, "0123456789abc\x00def")
	is("settled, empty", id, exec.Stderr, "")
	flood := f.finished(t, alice, "printf 'A%.0s' {1..101}; printf x >&2")
	gone("past its cap", flood.ID, exec.Stdout)
	is("the other of one past its cap", flood.ID, exec.Stderr, "x")
	if flood.Stdout.RetainedFrom != 91 || flood.Stdout.SpillPath != "" {
		t.Errorf("past its cap: %+v", flood.Stdout)
	}
	path := f.state + "/owners/aaaa/" + id + "/stdout"
	if err := os.Truncate(path, 5); err != nil {
		t.Fatal(err)
	}
	gone("cut by somebody", id, exec.Stdout)
	if p, err := f.Output(t.Context(), alice, id, exec.ReadOptions{MaxBytes: 100}); err != nil || p.Stdout.Text != "01234" || !p.Lossy || !p.EOF {
		t.Errorf("what is left of what was cut: %+v %v", p, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	gone("removed by somebody", id, exec.Stdout)
	f.restart(t)
	gone("past its cap, after a restart", flood.ID, exec.Stdout)
	if p, err := f.Output(t.Context(), alice, flood.ID, exec.ReadOptions{MaxBytes: 100}); err != nil || p.Stdout.From != 91 || p.Stdout.Text != "AAAAAAAAAA" || !p.Lossy || !p.EOF {
		t.Errorf("the end of the flood after a restart: %+v %v", p, err)
	}
}

// TestOutputFilesAreNotTrusted: a command with full access can put anything in the place of its output. That is
// not taken for what was printed, and nobody waits for it.
func TestOutputFilesAreNotTrusted(t *testing.T) {
	f := newFixture(t)
	for name, replace := range map[string]func(path string) error{
		"fifo":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":   func(path string) error { return os.Symlink("../../../secret", path) },
		"longer": func(path string) error { return os.WriteFile(path, []byte("printed\nand more\n"), 0o600) },
		"dir":    func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		if err := os.WriteFile(f.state+"/secret", []byte("secret!\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		task := f.finished(t, alice, "echo printed")
		path := f.state + "/owners/aaaa/" + task.ID + "/stdout"
		if err := errors.Join(os.Remove(path), replace(path)); err != nil {
			t.Fatal(err)
		}
		if got, err := f.content(alice, task.ID, exec.Stdout); code(err) != exec.CodeGone {
			t.Errorf("%s: %q %v", name, got, err)
		}
		for what, p := range map[string]exec.Page{"read": f.mustRead(t, alice, task.ID, exec.ReadOptions{MaxBytes: 100}), "consumed": f.mustConsume(t, alice, task.ID)} {
			if len(p.Stdout.Data) > 0 || !p.Lossy || !p.EOF {
				t.Errorf("%s, %s: %+v", name, what, p)
			}
		}
	}
}

// TestTakenModes: a command of the same user can take the modes of our files. It keeps nobody's output from being read.
func TestTakenModes(t *testing.T) {
	f := newFixture(t)
	task := f.finished(t, alice, "echo printed")
	dir := f.state + "/owners/aaaa"
	for _, path := range []string{dir + "/" + task.ID + "/stdout", dir + "/" + task.ID, dir, f.state + "/owners"} {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.content(alice, task.ID, exec.Stdout); got != "printed\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if err := errors.Join(os.WriteFile(f.state+"/bashd.db", nil, 0o644), os.Chmod(f.state, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state directory is private again", func() bool {
		st, err := os.Stat(f.state)
		db, dbErr := os.Stat(f.state + "/bashd.db")
		return errors.Join(err, dbErr) == nil && st.Mode().Perm() == 0o700 && db.Mode().Perm() == 0o600
	})
}

// TestListeners: each settled command is told once, to everybody, whatever one of them does.
func TestListeners(t *testing.T) {
	f := newFixture(t)
	f.OnChange(func(exec.Change, exec.Run) { panic("a listener's mistake") })
	after := listen(f.Manager)
	cancelled := make(chan exec.Run, 1)
	f.OnChange(func(_ exec.Change, r exec.Run) { cancelled <- r })()
	task := f.finished(t, alice, "echo t")
	run := f.mustRun(t, alice, exec.Request{Command: "echo r"})
	for _, id := range []string{task.ID, run.ID} {
		f.awaitEvent(t, id)
		for deadline := time.Now().Add(patience); len(after.of(id)) == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if e := after.of(id); len(e) != 1 || !e[0].Status.Terminal() {
			t.Errorf("the one after the panic heard %+v", e)
		}
	}
	if len(cancelled) > 0 {
		t.Error("a cancelled listener heard of it")
	}
}

// TestTaskMetrics: tasks count as such, and so do runs that became tasks.
func TestTaskMetrics(t *testing.T) {
	f := newFixture(t)
	f.finished(t, alice, "true")
	f.mustRun(t, alice, exec.Request{Command: "true"})
	y := f.mustRun(t, alice, exec.Request{Command: "sleep 60", YieldAfter: 20 * time.Millisecond})
	f.hasMetrics(t, `bashd_active{kind="foreground"} 0`, `bashd_active{kind="background"} 1`)
	f.kill(t, alice, y.ID)
	f.awaitEvent(t, y.ID)
	f.hasMetrics(
		t, `bashd_active{kind="background"} 0`, `bashd_active{kind="foreground"} 0`,
		`bashd_runs_total{kind="background",mode="danger-full-access",outcome="completed"} 1`,
		`bashd_runs_total{kind="background",mode="danger-full-access",outcome="killed"} 1`,
		`bashd_runs_total{kind="foreground",mode="danger-full-access",outcome="completed"} 1`,
		`bashd_run_duration_seconds_count{kind="background"} 2`,
	)
}

func (f *fixture) hasMetrics(t *testing.T, lines ...string) {
	t.Helper()
	there := strings.Split(f.metrics(t), "\n")
	for _, want := range lines {
		if !slices.Contains(there, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func (f *fixture) metrics(t *testing.T) string {
	t.Helper()
	rec := httptest.NewRecorder()
	f.settings.Metrics.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return rec.Body.String()
}

// TestShutdownOfTasks does not wait for the drain: nobody waits for a task. It is told why it ended.
func TestShutdownOfTasks(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Drain = time.Minute })
	id := f.obey(t, alice)
	f.tell(t, alice, id, "obefore")
	f.awaitBytes(t, alice, id, 6, 0)
	began := time.Now()
	f.Shutdown(t.Context())
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
	f.awaitEvent(t, id)
	r, err := f.Get(alice, exec.Background, id)
	if err != nil || r.Status != exec.StatusKilled || r.Cause != exec.CauseShutdown || r.Unrecorded {
		t.Errorf("got %+v %v", r, err)
	}
	if _, _, err := f.Start(t.Context(), alice, exec.Request{Command: "true"}); code(err) != exec.CodeShuttingDown {
		t.Errorf("a start afterwards: %v", err)
	}
	f.restart(t)
	if got, err := f.content(alice, id, exec.Stdout); got != "before" || err != nil {
		t.Errorf("its output: %q %v", got, err)
	}
}

// TestTaskFence: another's task is as one that is not there, whatever is tried, and nothing of it changes.
func TestTaskFence(t *testing.T) {
	f := newFixture(t)
	id := f.obey(t, alice)
	f.tell(t, alice, id, "ohello")
	f.awaitBytes(t, alice, id, 5, 0)
	for _, c := range []exec.Caller{bob, none} {
		f.triesInVain(t, c, id)
	}
	if p, err := f.Consume(t.Context(), alice, id); err != nil || p.Stdout.Text != "hello" {
		t.Errorf("the owner reads %+v %v", p, err)
	}
	f.tell(t, alice, id, "x0")
	f.awaitEnd(t, alice, id)
	f.triesInVain(t, bob, id)
}

// triesInVain has c try everything with another's task.
func (f *fixture) triesInVain(tb testing.TB, c exec.Caller, id string) {
	tb.Helper()
	for name, err := range map[string]error{
		"get": second(f.Get(c, exec.Background, id)), "wait": second(f.Wait(tb.Context(), c, id, time.Hour)),
		"output": second(f.Output(tb.Context(), c, id, exec.ReadOptions{MaxBytes: 9, Wait: time.Hour})), "consume": second(f.Consume(tb.Context(), c, id)),
		"stdin": second(f.WriteStdin(tb.Context(), c, id, []byte("x9\n"), true)), "delete": f.Delete(tb.Context(), c, id),
		"kill":   second(second2(f.Kill(tb.Context(), c, exec.Background, id, ""))),
		"stream": closing(f.OpenStream(c, exec.Background, id, exec.Stdout)),
	} {
		if code(err) != exec.CodeNotFound || err.Error() != fmt.Sprintf("no task %q", id) {
			tb.Errorf("%s by another: %v", name, err)
		}
	}
	if slices.Contains(f.tasks(tb, c), id) {
		tb.Error("another lists it")
	}
}

func second2[A, B any](_ A, b B, err error) (B, error) { return b, err }

// TestReadMeetsDelete: who reads what is just being deleted gets it whole, or hears that it is not there.
func TestReadMeetsDelete(t *testing.T) {
	f := newFixture(t)
	for range 40 {
		id := f.finished(t, alice, "echo printed").ID
		readers := map[string]func() (string, error){
			"stream": func() (string, error) { return f.content(alice, id, exec.Stdout) },
			"output": func() (string, error) {
				p, err := f.Output(t.Context(), alice, id, exec.ReadOptions{MaxBytes: 100})
				return p.Stdout.Text, err
			},
			"consume": func() (string, error) {
				p, err := f.Consume(t.Context(), alice, id)
				return p.Stdout.Text, err
			},
		}
		var wg sync.WaitGroup
		for name, read := range readers {
			wg.Go(func() {
				if got, err := read(); got != "printed\n" && code(err) != exec.CodeNotFound {
					t.Errorf("%s: %q %v", name, got, err)
				}
			})
		}
		wg.Go(func() {
			if err := f.Delete(t.Context(), alice, id); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

// TestKillMeetsTheEnd: what a kill is said to have come to is what came of it.
func TestKillMeetsTheEnd(t *testing.T) {
	f := newFixture(t)
	for range 60 {
		task, _, err := f.Start(t.Context(), alice, exec.Request{Command: "exit 3"})
		if err != nil {
			t.Fatal(err)
		}
		outcome, _, err := f.Kill(t.Context(), alice, exec.Background, task.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		end := f.awaitEnd(t, alice, task.ID)
		// What was asked for may come too late all the same; then the task has ended by itself.
		// Where the signal reached bash on its way out, its code may be the one that it was going to give.
		killed := end.Status == exec.StatusKilled && end.Cause == exec.CauseKill
		completed := end.Status == exec.StatusCompleted && end.Cause == exec.CauseNone && *end.ExitCode == 3
		if !killed && !completed || outcome == exec.AlreadyFinished && killed {
			t.Errorf("%s: %s, cause %q, exit code %v", outcome, end.Status, end.Cause, end.ExitCode)
		}
	}
}
