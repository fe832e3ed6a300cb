package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCasesL is about spill files: private, complete, bounded, and gone in the end.
func TestCasesL(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"L01", caseL01},
		{"L01 owners", caseL01Owners},
		{"L01 run as", caseL01RunAs},
		{"L01 from inside", caseL01Inside},
		{"L01 modes", caseL01Modes},
		{"L04", caseL04},
		{"L05", caseL05},
		{"L05 deep", caseL05Deep},
	})
}

// caseL01 plants links where the daemon will write.
func caseL01(t *testing.T, _ *daemon) {
	d := launchIn(t, surroundings{prepare: func(d *daemon) {
		if err := os.Mkdir(d.state, 0o700); err != nil {
			t.Fatal(err)
		}
		plantLink(t, d, "probe")
	}})
	t.Cleanup(func() { d.stop(t) })
	r := d.sh(t, "seq 1 400000; seq 1 400000 >&2")
	r.exited(t, 0)
	if r.Stdout.SpillPath == r.Stderr.SpillPath || !strings.Contains(r.Stdout.SpillPath, r.ID) {
		t.Errorf("spill files %q, %q; want a name that nobody can guess", r.Stdout.SpillPath, r.Stderr.SpillPath)
	}
	for _, path := range []string{r.Stdout.SpillPath, r.Stderr.SpillPath} {
		st, err := os.Lstat(path)
		if err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v %v; want a file of mode 0600", path, st, err)
		}
		for dir := filepath.Dir(path); len(dir) >= len(d.state); dir = filepath.Dir(dir) {
			if st, err := os.Lstat(dir); err != nil || st.Mode() != fs.ModeDir|0o700 {
				t.Errorf("%s: %v %v; want a directory of mode 0700", dir, st, err)
			}
		}
	}
	var found []string
	_ = filepath.WalkDir(d.out, func(path string, e fs.DirEntry, _ error) error {
		if !e.IsDir() {
			found = append(found, strings.TrimPrefix(path, d.out)+"="+content(path))
		}
		return nil
	})
	if got := strings.Join(found, " "); got != "/probe/file=untouched" {
		t.Errorf("what the link pointed at is now %q", got)
	}
}

// TestCasesLInEveryTier: output files can be read by the commands of their owner, whoever they run as, and changed by none.
func TestCasesLInEveryTier(t *testing.T) {
	t.Parallel()
	inEveryTier(t, func(t *testing.T, d *daemon, _ tierDaemon) { caseL01Inside(t, d) })
}

// caseL01RunAs is caseL01 where commands have a user of their own: its group may read the files, and nobody but root may write.
func caseL01RunAs(t *testing.T, _ *daemon) {
	needsRoot(t)
	place := runAsPlace(t)
	d := launchIn(t, surroundings{prepare: func(d *daemon) {
		place.prepare(d)
		if err := os.Mkdir(d.state, 0o700); err != nil {
			t.Fatal(err)
		}
		plantLink(t, d, "probe")
	}}, "BASHD_RUN_AS=65534:65533")
	t.Cleanup(func() { d.stop(t) })
	r := d.sh(t, "seq 1 400000")
	r.exited(t, 0)
	file, ok := strings.CutPrefix(r.Stdout.SpillPath, d.state)
	if !ok {
		t.Fatalf("the spill file is %q", r.Stdout.SpillPath)
	}
	d.owned(t, file, "-rw-r----- 0:65533")
	d.owned(t, filepath.Dir(file), "drwxr-x--- 0:65533")
	d.owned(t, filepath.Dir(filepath.Dir(file)), "drwxr-x--- 0:65533")
	d.owned(t, "/owners", "drwx--x--x 0:65533")
	d.owned(t, "", "drwx--x--x 0:0")
	if got := content(d.out + "/probe/file"); got != "untouched" {
		t.Errorf("what the link pointed at is now %q", got)
	}
	d.sh(t, "tail -n1 '"+r.Stdout.SpillPath+"'").printed(t, "400000\n", "")
	for _, id := range []uint32{nobody, 12345} { // the user without the group, and somebody else
		cat := osexec.Command("cat", r.Stdout.SpillPath)
		cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		if out, err := cat.Output(); err == nil || len(out) > 0 {
			t.Errorf("uid %d reads it: %d bytes", id, len(out))
		}
	}
}

// plantLink puts a link to a directory outside into the state directory.
func plantLink(t *testing.T, d *daemon, name string) {
	t.Helper()
	victim := filepath.Join(d.out, name)
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, victim+"/file", "untouched")
	if err := os.Symlink(victim, filepath.Join(d.state, name)); err != nil {
		t.Fatal(err)
	}
}

// caseL01Owners: where the output of former lives lies nothing is swept away, so a link there stops the start.
func caseL01Owners(t *testing.T, _ *daemon) {
	d := &daemon{state: t.TempDir(), out: t.TempDir()}
	if err := os.Chmod(d.state, 0o700); err != nil {
		t.Fatal(err)
	}
	plantLink(t, d, "owners")
	failedLate(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.out, "BASHD_STATE_DIR=" + d.state, "BASHD_WORKSPACE=" + d.out + "/workspace"}, d.state+"/owners", "not a directory")
	if entries, err := os.ReadDir(d.out + "/owners"); err != nil || len(entries) != 1 || content(d.out+"/owners/file") != "untouched" {
		t.Errorf("what the link pointed at is now %v (%v)", entries, err)
	}
}

// caseL01Inside: a confined command can read its owner's spill file and do no harm to it.
func caseL01Inside(t *testing.T, d *daemon) {
	r := d.sh(t, "seq 1 400000")
	before := content(r.Stdout.SpillPath)
	dir := filepath.Dir(r.Stdout.SpillPath)
	attack := "cd '" + dir + "' || exit 7; rm -f stdout; echo x >stdout; echo x >>stdout; mv stdout y; : >new; ln -s / l; mv '" + dir + "' '" + dir + "x'; rm -rf '" + dir + "'; tail -n1 stdout"
	for _, mode := range modes[:2] {
		a := d.run(t, in{"command": attack, "sandboxMode": mode})
		if a.Stdout.Text != "400000\n" {
			t.Errorf("%s: %s", mode, a.raw)
		}
	}
	if content(r.Stdout.SpillPath) != before || int64(len(before)) != r.Stdout.Bytes {
		t.Error("the spill file has changed")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("its directory holds %v (%v); want it alone", entries, err)
	}
}

// caseL05Deep: a command's temporary directory goes with it, however deep it was made.
func caseL05Deep(t *testing.T, d *daemon) {
	needsTool(t, "python3")
	const script = `import os
os.chdir(os.environ["TMPDIR"])
for i in range(2000):
    os.mkdir("d"); os.chdir("d")
print("deep")`
	r := d.run(t, in{"command": "python3 -c '" + script + "'"})
	r.printed(t, "deep\n", "")
	d.await(t, "it is gone", func() bool {
		for _, dir := range []string{"/trash", "/owners/shared/tmp/" + r.ID} {
			if left, err := os.ReadDir(d.state + dir); err == nil && len(left) > 0 {
				return false
			}
		}
		return true
	})
}

// caseL01Modes: a command that takes the modes of the state directory's files opens them to nobody for
// long, and keeps no later bashd from starting.
func caseL01Modes(t *testing.T, _ *daemon) {
	exe := &sharedProgram{}
	t.Cleanup(exe.remove)
	// Where commands have a file tree of their own no mode outside can be changed.
	users := daemonUsers()
	kind := tierDaemon{users[len(users)-1], noNamespaces, exe}
	d := kind.launch(t)
	relaunch := func() *daemon {
		again := kind.launch(t, "BASHD_STATE_DIR="+d.state, "BASHD_WORKSPACE="+d.ws)
		again.state, again.ws, again.out = d.state, d.ws, d.out
		return again
	}
	output := d.task(t, in{"command": "echo kept"})
	d.waitTask(t, output.ID)
	attack := func(mode string) {
		// The ways to them first: then what is below cannot be reached any more by a user that is not root.
		r := d.run(t, in{"command": "cd '" + d.state + "' && chmod " + mode + " . && echo changed; chmod " + mode + " bashd.db* cursor.key lock owners '" + d.ws + "' ..", "sandboxMode": "workspace-write"})
		if r.Stdout.Text != "changed\n" {
			t.Fatal("this shows nothing: the modes could not be changed")
		}
	}
	wrong := func() (all []string) {
		for path, want := range map[string]os.FileMode{".": 0o700, "owners": 0o700, "bashd.db": 0o600, "bashd.db-wal": 0o600, "cursor.key": 0o600, "lock": 0o600} {
			if st, err := os.Stat(filepath.Join(d.state, path)); err != nil || st.Mode().Perm() != want {
				all = append(all, fmt.Sprint(path, st, err))
			}
		}
		for _, dir := range []string{filepath.Dir(d.state), d.ws} {
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm()&0o700 != 0o700 {
				all = append(all, fmt.Sprint(dir, st, err))
			}
		}
		return all
	}
	for _, mode := range []string{"a+rwx", "a-rwx"} {
		attack(mode)
		d.await(t, "the modes are mended", func() bool { return len(wrong()) == 0 })
		d.printedInAll(t, output.ID, "kept\n", "")
	}
	for mode, bits := range map[string]os.FileMode{"a+rx": 0o755, "a-rwx": 0} {
		attack(mode)
		d.crash(t)
		d.awaitNoProcess(t, 3*time.Second)
		// It may have mended them before its end. What a command did in its last moment is as if it were done now.
		for _, path := range []string{d.state + "/cursor.key", d.state} {
			if err := os.Chmod(path, bits); err != nil && os.Geteuid() == 0 { // else the way may be taken, and that is as good
				t.Fatal(err)
			}
		}
		d = relaunch()
		if all := wrong(); len(all) > 0 || !strings.Contains(d.log.String(), "was mended") {
			t.Errorf("after the start: %q\n%s", all, d.log)
		}
		d.printedInAll(t, output.ID, "kept\n", "")
	}
	attack("a+rwx")
	d.stop(t)
	if all := slices.DeleteFunc(wrong(), func(s string) bool { return strings.Contains(s, "-wal") }); len(all) > 0 { // that is gone by then
		t.Errorf("after the end: %q", all)
	}
}

func caseL04(t *testing.T, d *daemon) {
	const size = 3388895
	r := d.sh(t, "seq 1 500000")
	r.exited(t, 0)
	if !r.Stdout.Truncated || r.Stdout.Bytes != size || r.Stderr.Truncated || r.Stderr.SpillPath != "" {
		t.Errorf("stdout %t %d, stderr %t %q; want only stdout truncated, of %d bytes",
			r.Stdout.Truncated, r.Stdout.Bytes, r.Stderr.Truncated, r.Stderr.SpillPath, size)
	}
	status, download := d.request(t, "GET", r.Stdout.URL, "")
	if status != 200 {
		t.Errorf("GET %s: %d", r.Stdout.URL, status)
	}
	inside := d.run(t, in{"command": "sha256sum <'" + r.Stdout.SpillPath + "' | cut -c1-64"}).Stdout.Text
	for name, sum := range map[string]string{
		"file": sha256Hex(content(r.Stdout.SpillPath)), "download": sha256Hex(string(download)), "command": strings.TrimSpace(inside),
	} {
		if sum != "18c68655ed84064b77ff577ca9275d99a308ad9603eda1201b9cd1670ad755f3" {
			t.Errorf("%s: sha256 %s", name, sum)
		}
	}
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// caseL05 puts far more output through the daemon than it may keep, by runs and by tasks.
func caseL05(t *testing.T, _ *daemon) {
	const bound, size = 1 << 20, 100_000
	d := launch(t, "BASHD_MAX_STATE_BYTES=1048576")
	write(t, d.state+"/foreign", "not ours")
	write(t, d.out+"/file", "not ours")
	body := in{"command": "head -c 100000 /dev/zero", "stdoutMaxBytes": 1}
	var run result
	var task string
	for range times(200) / 2 {
		var err error
		if run, err = d.quick(body); err != nil || run.Stdout.Bytes != size {
			t.Fatalf("%v %+v", err, run)
		}
		if task, err = d.quickTask(body, size); err != nil {
			t.Fatal(err)
		}
	}
	within := func() bool { return diskUse(d.state+"/owners") <= bound }
	d.await(t, "no more is kept than allowed", within)
	if used := diskUse(d.state + "/owners"); used < bound/2 {
		t.Errorf("%d bytes of output are kept; want up to %d", used, bound)
	}
	for _, url := range []string{run.Stdout.URL, "/v1/tasks/" + task + "/streams/stdout"} {
		if status, raw := d.request(t, "GET", url, ""); status != 200 || len(raw) != size {
			t.Errorf("the newest stream, %s: %d, %d bytes", url, status, len(raw))
		}
	}
	// A run bigger than the bound is not kept, and its path is not left pointing nowhere.
	d.sh(t, "head -c 2000000 /dev/zero").exited(t, 0)
	d.await(t, "no more is kept than allowed after one run beyond the bound", within)
	last, err := d.quick(body)
	if err != nil {
		t.Fatal(err)
	}
	d.stop(t)

	again := d.relaunch(t, "BASHD_MAX_STATE_BYTES=1048576")
	if status, raw := again.request(t, "GET", last.Stdout.URL, ""); status != 200 || len(raw) != size || !within() {
		t.Errorf("the newest stream after a restart: %d, %d bytes; %d bytes are kept", status, len(raw), diskUse(d.state+"/owners"))
	}
	again.stop(t)
	expiring := d.restart(t, "BASHD_RETENTION=1s")
	expiring.await(t, "all has expired", func() bool { return diskUse(d.state+"/owners") == 0 })
	expiring.sh(t, "echo ok").printed(t, "ok\n", "")
	if content(d.state+"/foreign") != "not ours" || content(d.out+"/file") != "not ours" {
		t.Error("something was deleted that is not the daemon's")
	}
}

// diskUse adds up the sizes of the files below dir.
func diskUse(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if st, err := e.Info(); err == nil {
				n += st.Size()
			}
		}
		return nil
	})
	return n
}
