package exec_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
	"bashd/internal/store"
	"bashd/internal/store/storetest"
)

const lostTask = "the server stopped before the task finished"

// onDisk has the Manager keep its records in a database, which reopen opens anew, as another process would.
func onDisk(tb testing.TB, c *cut) (change func(*exec.Settings), reopen func(*fixture)) {
	tb.Helper()
	path := tb.TempDir() + "/bashd.db"
	var db *store.DB
	open := func(s *exec.Settings) {
		var err error
		if db, err = store.Open(path); err != nil {
			tb.Fatal(err)
		}
		s.Store = &storetest.Faulty{Store: db, Before: c.before}
	}
	change = func(s *exec.Settings) {
		tb.Cleanup(func() { db.Close() })
		open(s)
	}
	return change, func(f *fixture) {
		tb.Helper()
		if err := db.Close(); err != nil {
			tb.Fatal(err)
		}
		open(&f.settings)
		c.off.Store(false)
		f.open(tb)
	}
}

// TestLostTasks: what the server's death took with it is settled as failed, with its output as far as it went; what had
// settled before is as it was; cursors go on.
func TestLostTasks(t *testing.T) {
	var c cut
	change, reopen := onDisk(t, &c)
	f := newFixture(t, change)
	settled := f.finished(t, alice, "echo settled; exit 4")
	f.mustConsume(t, alice, settled.ID)
	id := f.obey(t, alice)
	f.tell(t, alice, id, "oonetwo", "eerr")
	f.awaitBytes(t, alice, id, 6, 3)
	f.mustConsume(t, alice, id)
	page := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: 4})
	f.tell(t, alice, id, `othree\xe2`) // ends within a character
	f.awaitBytes(t, alice, id, 12, 3)
	yielded := f.mustRun(t, alice, exec.Request{Command: "echo y; exec sleep 60", YieldAfter: 50 * time.Millisecond})
	run, result := f.inBackground(t, t.Context(), alice, exec.Request{Command: "head -c 100000 /dev/zero; echo up; exec sleep 60"})
	f.awaitOutput(t, alice, run, "up")
	time.Sleep(100 * time.Millisecond) // a run has no record before it is 50 ms old
	c.off.Store(true)
	shut(f.Manager)
	if r := <-result; !r.Unrecorded || !r.Status.Terminal() {
		t.Errorf("the run's answer: %+v", r)
	}
	reopen(f)

	if r, err := f.Get(alice, exec.Background, settled.ID); err != nil || !same(r, settled) {
		t.Errorf("settled before:\n%+v\n%+v %v", comparable(r), comparable(settled), err)
	}
	if p := f.mustConsume(t, alice, settled.ID); p.Delta() != "" || !p.EOF {
		t.Errorf("consumed before: %+v", p)
	}
	for _, id := range []string{id, yielded.ID} {
		r, err := f.Get(alice, exec.Background, id)
		if err != nil || r.Status != exec.StatusFailed || r.Detail != lostTask || r.ExitCode != nil || r.Cause != exec.CauseNone || r.Signal != 0 || r.FinishedAt.IsZero() {
			t.Errorf("lost: %+v %v", r, err)
		}
		if e := f.events.of(id); len(e) != 0 {
			t.Errorf("it settled again: %+v", e)
		}
	}
	rest := f.mustRead(t, alice, id, exec.ReadOptions{Cursor: page.Next, MaxBytes: 100})
	if got := page.Stdout.Text + rest.Stdout.Text; got != "onetwothree\uFFFD" || page.Stderr.Text+rest.Stderr.Text != "err" || rest.Lossy || !rest.EOF {
		t.Errorf("read on from before: %q, %+v", got, rest)
	}
	if p := f.mustConsume(t, alice, id); p.Stdout.Text != "three\uFFFD" || len(p.Stderr.Data) > 0 || p.Lossy {
		t.Errorf("consumed on from before: %+v", p)
	}
	if got, err := f.content(alice, id, exec.Stdout); got != "onetwothree\xe2" || err != nil {
		t.Errorf("whole: %q %v", got, err)
	}
	if r, err := f.Get(alice, exec.Foreground, run); err != nil || r.Status != exec.StatusFailed || r.Stdout.Bytes != 0 {
		t.Errorf("the run: %+v %v", r, err)
	}
	if files := strings.Join(f.spillFiles(t), " "); strings.Contains(files, run) {
		t.Errorf("the run's output, of no use, is left: %s", files)
	}
}

// TestLostWhileTheStoreFails: a store that takes nothing at the start, as on a full disk, keeps nobody from
// starting. What was lost is told at once, and recorded when that can be.
func TestLostWhileTheStoreFails(t *testing.T) {
	var c cut
	f := newFixture(t, cuttable(&c))
	id := f.obey(t, alice)
	f.tell(t, alice, id, "oonetwo")
	f.awaitBytes(t, alice, id, 6, 0)
	f.mustConsume(t, alice, id)
	c.off.Store(true)
	shut(f.Manager)
	f.open(t)
	lost := func(unrecorded bool) bool {
		r, err := f.Get(alice, exec.Background, id)
		return err == nil && r.Status == exec.StatusFailed && r.Detail == lostTask && r.Unrecorded == unrecorded
	}
	if !lost(true) {
		t.Error("the task is not there")
	}
	if p := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: 100}); p.Stdout.Text != "onetwo" || p.Lossy || !p.EOF {
		t.Errorf("its output: %+v", p)
	}
	if len(f.Ready()) == 0 {
		t.Error("ready without a store")
	}
	c.off.Store(false)
	eventually(t, "it is recorded", func() bool { return lost(false) && len(f.Ready()) == 0 })
	if p := f.mustConsume(t, alice, id); p.Delta() != "" || !p.EOF {
		t.Errorf("consumed twice: %+v", p)
	}
}

// TestMissingDatabase: output that may be all that is left is not tidied away for want of records, in this life or the next, until
// it is as old as what is forgotten.
func TestMissingDatabase(t *testing.T) {
	f := newFixture(t)
	task := f.finished(t, alice, "echo kept")
	path := f.state + "/owners/aaaa/" + task.ID + "/stdout"
	orphan := filepath.Dir(filepath.Dir(path)) + "/bash-orphan"
	shut(f.Manager)
	records := f.settings.Store
	f.settings.Store = storetest.NewMemory()
	f.open(t)
	f.finished(t, alice, "true")
	f.restart(t)
	f.finished(t, alice, "true") // by then the janitor has looked twice
	if b, err := os.ReadFile(path); err != nil || string(b) != "kept\n" {
		t.Errorf("the output: %q %v", b, err)
	}
	shut(f.Manager)
	f.settings.Store = records
	if err := os.Mkdir(orphan, 0o700); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * time.Hour) // longer than the retention
	if err := os.Chtimes(orphan, long, long); err != nil {
		t.Fatal(err)
	}
	f.open(t)
	eventually(t, "the orphan is gone", func() bool { _, err := os.Stat(orphan); return errors.Is(err, os.ErrNotExist) })
	empty := f.state + "/owners/cccc"
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	if _, err := os.Stat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of an owner of whom nothing is left: %v", err)
	}
	if got, err := f.content(alice, task.ID, exec.Stdout); got != "kept\n" || err != nil {
		t.Errorf("with its records again: %q %v", got, err)
	}
}

// TestDeepTree: how deep and wide a command makes its temporary directory is up to the command. It neither stays, nor
// keeps a later bashd from starting, though there are far fewer descriptors than levels.
func TestDeepTree(t *testing.T) {
	f := newFixture(t)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 256
	shut(f.Manager)
	dir := f.state + "/owners/aaaa/tmp/bash-deep"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for level := 0; level < 3000 && err == nil; level++ {
		var next, file int
		if file, err = unix.Openat(at, "file", unix.O_CREAT|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(file)
			err = unix.Mkdirat(at, "d", 0o700)
		}
		if err == nil {
			next, err = unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if level%100 == 50 && err == nil {
			err = unix.Fchmod(at, 0) // as root it does not matter
		}
		unix.Close(at)
		at = next
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(at)
	// What a command with full access can put in the way.
	err = errors.Join(
		os.MkdirAll(f.state+"/trash", 0o700), unix.Mkfifo(f.state+"/trash/fifo", 0o600), os.WriteFile(f.state+"/trash/file", nil, 0),
		unix.Mkfifo(f.state+"/owners/fifo", 0o600), os.Mkdir(f.state+"/owners/bbbb", 0o700), unix.Mkfifo(f.state+"/owners/bbbb/tmp", 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	f.open(t)
	if _, err := os.Lstat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	eventually(t, "the trash is empty", func() bool {
		left, err := os.ReadDir(f.state + "/trash")
		return err == nil && len(left) == 0
	})
}

// TestTornOutput: what is left on disk need not be whole.
func TestTornOutput(t *testing.T) {
	var c cut
	f := newFixture(t, cuttable(&c), func(s *exec.Settings) { s.MaxOutputBytes, s.MaxSpillBytes = 50, 1000 })
	start := func(bytes, atOnce int) (id, cursor, path string) {
		id = f.obey(t, alice)
		for at := 0; at < bytes; at += atOnce {
			f.tell(t, alice, id, "o"+strings.Repeat("a", min(atOnce, bytes-at)))
			f.awaitBytes(t, alice, id, int64(min(at+atOnce, bytes)), 0)
		}
		p := f.mustRead(t, alice, id, exec.ReadOptions{MaxBytes: 2000})
		return id, p.Next, f.state + "/owners/aaaa/" + id + "/stdout"
	}
	cutID, cutCursor, cutPath := start(100, 500)
	droppedID, droppedCursor, droppedPath := start(1500, 500)
	neverID, neverCursor, _ := start(1500, 1500) // more than the file may hold, with the first byte
	missingID, missingCursor, missingPath := start(10, 500)
	c.off.Store(true)
	shut(f.Manager)
	for _, err := range []error{os.Truncate(cutPath, 60), os.Remove(missingPath)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(droppedPath + ".dropped"); err != nil {
		t.Error(err)
	}
	c.off.Store(false)
	f.open(t)
	for _, x := range []struct {
		name, id, cursor string
		size             int64 // that is told
		text             string
		lossy, gone      bool // from the start
		later            bool // lossy from where it had been
	}{
		{"cut", cutID, cutCursor, 60, strings.Repeat("a", 60), false, false, true},
		{"dropped", droppedID, droppedCursor, 1000, "", true, true, true},
		{"never made", neverID, neverCursor, 1, "", true, true, true},
		{"missing", missingID, missingCursor, 0, "", false, false, true},
	} {
		p := f.mustRead(t, alice, x.id, exec.ReadOptions{MaxBytes: 2000})
		if p.Stdout.Text != x.text || p.Lossy != x.lossy || !p.EOF || p.Task.Detail != lostTask || p.Task.Stdout.Bytes != x.size {
			t.Errorf("%s, from the start: %+v", x.name, p)
		}
		if from := p.Task.Stdout.RetainedFrom; (from == x.size) != (x.size == 0 || x.gone) || from != 0 && !x.gone {
			t.Errorf("%s: retained from %d", x.name, from)
		}
		if _, err := f.content(alice, x.id, exec.Stdout); (code(err) == exec.CodeGone) != x.gone || !x.gone && err != nil {
			t.Errorf("%s, whole: %v", x.name, err)
		}
		p = f.mustRead(t, alice, x.id, exec.ReadOptions{Cursor: x.cursor, MaxBytes: 2000})
		if !p.EOF || len(p.Stdout.Data) > 0 || p.Lossy != x.later || p.Stdout.To != x.size {
			t.Errorf("%s, from where it had been: %+v", x.name, p)
		}
		if p = f.mustRead(t, alice, x.id, exec.ReadOptions{Cursor: p.Next, MaxBytes: 2000}); p.Lossy || !p.EOF {
			t.Errorf("%s: the loss is told twice: %+v", x.name, p)
		}
	}
}

// TestLeftoversAreRemoved: output that no record names and temporary directories go; what a link in there points at stays.
func TestLeftoversAreRemoved(t *testing.T) {
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	kept := f.finished(t, alice, "echo kept")
	shut(f.Manager)
	long := time.Now().Add(-2 * time.Hour)
	for _, dir := range []string{"/owners/aaaa/bash-old", "/owners/shared/bash-old", "/owners/aaaa/tmp/bash-old"} {
		if err := errors.Join(
			os.MkdirAll(f.state+dir, 0o700), os.WriteFile(f.state+dir+"/stdout", []byte("x"), 0o600), os.Symlink(filepath.Dir(precious), f.state+dir+"/link"),
			os.Chtimes(f.state+dir, long, long),
		); err != nil {
			t.Fatal(err)
		}
	}
	f.open(t)
	eventually(t, "the leftovers are removed", func() bool { return len(f.spillFiles(t)) == 1 })
	if left, _ := filepath.Glob(f.state + "/owners/*/tmp/*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if got, err := f.content(alice, kept.ID, exec.Stdout); got != "kept\n" || err != nil {
		t.Errorf("the recorded one: %q %v", got, err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func eventually(tb testing.TB, what string, good func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !good(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("it did not come to be that ", what)
		}
	}
}

// TestOwnPermissionsAreMended: a command that takes our directories' permissions away stops
// neither its own end nor later commands. Root is not stopped by permissions in the first place.
func TestOwnPermissionsAreMended(t *testing.T) {
	f := newPlace(t).runAs(t, sandbox.TierLandlock, nil) // elsewhere the directories are not ours
	for _, script := range []string{`chmod 500 "$TMPDIR/.."`, `chmod 0 "$TMPDIR/../.."`, `chmod 0 "$TMPDIR/../../.."`} {
		f.mustRun(t, alice, exec.Request{Command: script, SandboxMode: sandbox.ReadOnly})
		run := f.mustRun(t, alice, exec.Request{Command: `mktemp >/dev/null && seq 100000`, SandboxMode: sandbox.ReadOnly})
		if *run.ExitCode != 0 || run.Stdout.SpillPath == "" {
			t.Errorf("after %s: %s", script, run.Stderr.Tail)
		}
	}
	if left, err := os.ReadDir(f.state + "/owners/aaaa/tmp"); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
