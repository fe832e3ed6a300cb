package exec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bashd/internal/exec"
)

// TestSpillFile: a truncated stream has a file that holds all of it, private, under
// a name that cannot be guessed; of a run, one that is not truncated has none.
func TestSpillFile(t *testing.T) {
	f := newFixture(t)
	run := f.mustRun(t, alice, exec.Request{Command: "seq 100000; echo e >&2"})
	if !run.Stdout.Truncated || run.Stdout.Bytes != 588895 || run.Stderr.Truncated || run.Stderr.SpillPath != "" {
		t.Fatalf("got %+v %+v", run.Stdout.SpillPath, run.Stderr)
	}
	st, err := os.Stat(run.Stdout.SpillPath)
	if err != nil || st.Size() != 588895 || st.Mode() != 0o600 {
		t.Errorf("the file: %v %v", st, err)
	}
	for dir := filepath.Dir(run.Stdout.SpillPath); len(dir) > len(f.state); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, st.Mode(), err)
		}
	}
	if got := f.spillFiles(t); len(got) != 1 || got[0] != run.Stdout.SpillPath {
		t.Errorf("files: %q", got)
	}
	f.restart(t)
	if again, err := f.Get(alice, exec.Foreground, run.ID); err != nil || !same(run, again) {
		t.Errorf("after a restart: %+v %v", again.Stdout.SpillPath, err)
	}
}

// TestDiskIsBounded: the oldest go first, whole, with their files.
func TestDiskIsBounded(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxStateBytes = 240_000 })
	var ids []string
	for i := range 3 {
		ids = append(ids, f.finished(t, alice, fmt.Sprintf("head -c 80000 /dev/zero; exit %d", i)).ID)
	}
	eventually(t, "the first is gone", func() bool { return len(f.spillFiles(t)) == 2 })
	for i := range 2 {
		ids = append(ids, f.mustRun(t, alice, exec.Request{Command: fmt.Sprintf("head -c 40000 /dev/zero; exit %d", i), StdoutMaxBytes: 10}).ID)
	}
	eventually(t, "the second is gone", func() bool { return len(f.spillFiles(t)) == 3 })
	for i, id := range ids {
		k := exec.Background
		if i > 2 {
			k = exec.Foreground
		}
		gone := func() bool { _, err := f.Get(alice, k, id); return code(err) == exec.CodeNotFound }
		if i < 2 {
			eventually(t, "its record goes after its files", gone)
		} else if gone() {
			t.Errorf("command %d is gone", i)
		}
	}
}

// TestRetention: what ended longer ago than the retention goes with its files; what runs stays, however old.
func TestRetention(t *testing.T) {
	f := newFixture(t)
	run := f.mustRun(t, alice, exec.Request{Command: "head -c 100000 /dev/zero"})
	task := f.finished(t, bob, "echo x")
	old := f.obey(t, alice)
	f.tell(t, alice, old, "ohello")
	f.awaitBytes(t, alice, old, 5, 0)
	f.Sweep(time.Now().Add(f.settings.Retention - time.Minute))
	if _, err := f.Get(alice, exec.Foreground, run.ID); err != nil || len(f.spillFiles(t)) != 3 {
		t.Errorf("before its time: %v, %q", err, f.spillFiles(t))
	}
	f.Sweep(time.Now().Add(f.settings.Retention + time.Minute))
	if _, err := f.Get(alice, exec.Foreground, run.ID); code(err) != exec.CodeNotFound {
		t.Errorf("the run: %v", err)
	}
	if _, err := f.Get(bob, exec.Background, task.ID); code(err) != exec.CodeNotFound {
		t.Errorf("the task: %v", err)
	}
	if got := f.mustConsume(t, alice, old); got.Stdout.Text != "hello" || len(f.spillFiles(t)) != 1 {
		t.Errorf("what runs: %+v, %q", got, f.spillFiles(t))
	}
}

// TestRetentionIsKept: the janitor looks by himself.
func TestRetentionIsKept(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Retention = 300 * time.Millisecond })
	run := f.mustRun(t, alice, exec.Request{Command: "head -c 100000 /dev/zero"})
	if _, err := f.Get(alice, exec.Foreground, run.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return len(f.ids(t, alice)) == 0 && len(f.spillFiles(t)) == 0 })
}

// TestOthersAreNotForgotten: an owner who takes too much loses commands of its own, and nobody
// else's.
func TestOthersAreNotForgotten(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxStateBytes = 1_000_000 })
	mine := f.mustRun(t, alice, exec.Request{Command: "seq 20000"})
	var last string
	for range 4 {
		last = f.finished(t, bob, "head -c 400000 /dev/zero").ID
	}
	eventually(t, "the other has what fits", func() bool { return len(f.tasks(t, bob)) == 2 })
	if _, err := f.Get(bob, exec.Background, last); err != nil {
		t.Errorf("the newest: %v", err)
	}
	if _, err := f.Get(alice, exec.Foreground, mine.ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mine.Stdout.SpillPath); err != nil {
		t.Error(err)
	}
}

// crowded is a Store in which one owner has so many more records than are there.
type crowded struct {
	exec.Store
	owner exec.Owner
	more  int64
}

func (c crowded) Usage() ([]exec.OwnerUsage, error) {
	all, err := c.Store.Usage()
	for i := range all {
		if all[i].Owner == c.owner {
			all[i].Records += c.more
		}
	}
	return all, err
}

// TestRecordsAreBounded: so many commands are remembered, whatever they take; the owner of most loses the oldest.
func TestRecordsAreBounded(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Store = crowded{s.Store, alice.Owner, exec.MaxRecords - 4} })
	his := f.mustRun(t, bob, exec.Request{Command: "seq 20000"})
	var ids []string
	for range 5 {
		ids = append(ids, f.mustRun(t, alice, exec.Request{Command: "true"}).ID)
	}
	f.Sweep(time.Now())
	if left := f.ids(t, alice); len(left) != 3 || left[ids[0]] || left[ids[1]] {
		t.Errorf("left: %v of %v", left, ids)
	}
	if _, err := f.Get(bob, exec.Foreground, his.ID); err != nil {
		t.Error(err)
	}
}

// TestNoInputIsKept: of a settled command the input and the values of its environment are gone.
func TestNoInputIsKept(t *testing.T) {
	f := newFixture(t)
	run := f.mustRun(t, alice, exec.Request{Command: "cat >/dev/null; echo ${#V}", Stdin: []byte("canary"), HasStdin: true, Env: map[string]string{"V": "canary"}})
	if string(run.Stdout.Tail) != "6\n" {
		t.Errorf("it printed %q", run.Stdout.Tail)
	}
	again, err := f.Get(alice, exec.Foreground, run.ID)
	if err != nil || again.Spec.Stdin != nil || again.Spec.StdinBytes != 6 || again.Spec.Env["V"] != "" {
		t.Errorf("kept: %+v %v", again.Spec, err)
	}
	if _, named := again.Spec.Env["V"]; !named {
		t.Error("the name of the variable is gone too")
	}
}
