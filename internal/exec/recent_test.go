package exec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// spillFiles lists the files below the owners' directories.
func (f *fixture) spillFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.Walk(f.state+"/owners", func(path string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestSpillFile: a truncated stream has a file that holds all of it, private, under
// a name that cannot be guessed; one that is not truncated has none.
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
}

// TestDiskIsBounded: the oldest runs go first, whole, with their files.
func TestDiskIsBounded(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxStateBytes = 250_000 })
	var ids []string
	for i := range 5 {
		ids = append(ids, f.mustRun(t, alice, exec.Request{Command: fmt.Sprintf("head -c 100000 /dev/zero; exit %d", i)}).ID)
	}
	if got := f.spillFiles(t); len(got) != 2 {
		t.Errorf("files: %q", got)
	}
	for i, id := range ids {
		_, err := f.Get(alice, id)
		if gone := i < 3; gone != (code(err) == exec.CodeNotFound) {
			t.Errorf("run %d: %v", i, err)
		}
	}
}

// TestMemoryIsBounded: no more output is kept than a fixed amount, whatever runs.
func TestMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	for range 4 {
		f.mustRun(t, alice, exec.Request{Command: "head -c 8000000 /dev/zero", StdoutMaxBytes: exec.MaxStdoutBytes})
	}
	if got := len(f.ids(t, alice)); got != 2 {
		t.Errorf("%d runs of 8 MB are remembered, want 2", got)
	}
}

// TestRetention: what is older than the retention is not there any more.
func TestRetention(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Retention = 300 * time.Millisecond })
	run := f.mustRun(t, alice, exec.Request{Command: "head -c 100000 /dev/zero"})
	if _, err := f.Get(alice, run.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(400 * time.Millisecond)
	if _, err := f.Get(alice, run.ID); code(err) != exec.CodeNotFound {
		t.Errorf("get: %v", err)
	}
	if len(f.ids(t, alice)) != 0 || len(f.spillFiles(t)) != 0 {
		t.Error("it is still there")
	}
}

// TestOldOutputIsRemoved: a new Manager begins without the files of an earlier life, and
// touches nothing that a link in there points at.
func TestOldOutputIsRemoved(t *testing.T) {
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(s *exec.Settings) {
		old := s.StateDir + "/owners/aaaa/bash-old"
		if err := os.MkdirAll(old, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(old+"/stdout", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Dir(precious), old+"/link"); err != nil {
			t.Fatal(err)
		}
	})
	if got := f.spillFiles(t); len(got) != 0 {
		t.Errorf("files: %q", got)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// TestNoInputIsKept: of a settled run the input and the values of its environment are gone.
func TestNoInputIsKept(t *testing.T) {
	f := newFixture(t)
	run := f.mustRun(t, alice, exec.Request{Command: "cat >/dev/null; echo ${#V}", Stdin: []byte("canary"), HasStdin: true, Env: map[string]string{"V": "canary"}})
	if string(run.Stdout.Tail) != "6\n" {
		t.Errorf("it printed %q", run.Stdout.Tail)
	}
	again, err := f.Get(alice, run.ID)
	if err != nil || again.Spec.Stdin != nil || again.Spec.StdinBytes != 6 || again.Spec.Env["V"] != "" {
		t.Errorf("kept: %+v %v", again.Spec, err)
	}
	if _, named := again.Spec.Env["V"]; !named {
		t.Error("the name of the variable is gone too")
	}
}

// TestOthersRunsAreNotForgotten: an owner who takes too much loses runs of its own, and nobody
// else's.
func TestOthersRunsAreNotForgotten(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.MaxStateBytes = 1_000_000 })
	mine := f.mustRun(t, alice, exec.Request{Command: "seq 20000"})
	for range 4 {
		f.mustRun(t, bob, exec.Request{Command: "head -c 8000000 /dev/zero", StdoutMaxBytes: exec.MaxStdoutBytes})
	}
	for range 4 {
		f.mustRun(t, bob, exec.Request{Command: "head -c 400000 /dev/zero"})
	}
	if _, err := f.Get(alice, mine.ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mine.Stdout.SpillPath); err != nil {
		t.Error(err)
	}
}

// TestOwnPermissionsAreMended: a command that takes our directories' permissions away stops
// neither its own end nor later commands. Root is not stopped by permissions in the first place.
func TestOwnPermissionsAreMended(t *testing.T) {
	f := newFixture(t)
	if f.sandbox.Report().ReadOnly.Unavailable != "" {
		t.Skip(f.sandbox.Report().ReadOnly.Unavailable)
	}
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
