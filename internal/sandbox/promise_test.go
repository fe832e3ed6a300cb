package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// The promise of this package, item by item: the numbers in the names of these tests are those of the list of what must
// hold. Each "refused" is looked at from outside, bytes and metadata; and what a command tries is also done under full
// access, where it must succeed: else its failure would say nothing.
//
// What tries is this test binary itself, as the command: it does the system calls one by one, and prints what became of each.

// roleEnv names what the binary does instead of the tests.
const roleEnv = "PROMISE_ROLE"

// roles are what it can do.
var roles = map[string]func(){
	"files":     attackFiles,
	"secrets":   attackSecrets,
	"processes": attackProcesses,
	"privilege": attackPrivilege,
	"foreign":   foreignChmod,
}

// confinedModes are those that promise something about files.
var confinedModes = []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite}

// raceEnv spares the race detector a second's sleep at the end of each process.
const raceEnv = "GORACE=atexit_sleep_ms=0"

// programEnv is the copy of the binary that a parent process has made.
const programEnv = "PROMISE_PROGRAM"

var programCopy struct {
	sync.Mutex
	path string
}

// ownProgram is a copy of this binary that every user and every command can execute.
func ownProgram(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(programEnv); path != "" {
		return path
	}
	programCopy.Lock()
	defer programCopy.Unlock()
	if programCopy.path == "" {
		dir, err := os.MkdirTemp("/var/tmp", "bashd-test-")
		must(tb, err)
		must(tb, os.Chmod(dir, 0o755))
		programCopy.path = dir + "/program"
		copyFile(tb, "/proc/self/exe", programCopy.path, 0o755)
	}
	return programCopy.path
}

// removeProgram removes the copy.
func removeProgram() {
	if programCopy.path != "" {
		_ = os.RemoveAll(filepath.Dir(programCopy.path))
	}
}

func copyFile(tb testing.TB, from, to string, mode os.FileMode) {
	tb.Helper()
	in, err := os.Open(from)
	must(tb, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	must(tb, err)
	_, err = io.Copy(out, in)
	must(tb, errors.Join(err, out.Chmod(mode), out.Close()))
}

// succeeded is what a try is told to have come to where it did not fail.
const succeeded = "did"

// tell prints what a try came to, for [tries].
func tell(name string, err error) {
	result := succeeded
	if err != nil {
		result = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Printf("%s\t%s\n", name, result)
}

// tries runs this binary in a role as the command and returns what it printed: what each try came to, by name.
func (f *fixture) tries(t *testing.T, mode sandbox.Mode, role string, env ...string) map[string]string {
	t.Helper()
	c := f.command(t, mode, `"$PROGRAM"; echo "status $?"`)
	c.Env = append(c.Env, roleEnv+"="+role, "PROGRAM="+ownProgram(t), raceEnv)
	c.Env = append(c.Env, env...)
	got := f.run(t, c)
	lines, ended := strings.CutSuffix(got.stdout, "status 0\n")
	if !ended {
		t.Fatalf("the command did not come to its end: %+v", got)
	}
	results := map[string]string{}
	for line := range strings.Lines(lines) {
		name, result, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("it printed %q", line)
		}
		results[name] = result
	}
	if len(results) == 0 {
		t.Fatalf("nothing was tried: %+v", got)
	}
	return results
}

// done lists the tries that succeeded.
func done(results map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if results[name] == succeeded {
			names = append(names, name)
		}
	}
	return names
}

// tells reports that the report tells a gap of that mode.
func (f *fixture) tells(mode sandbox.Mode, gap string) bool {
	return slices.Contains(f.Report().Mode(mode).Gaps, gap)
}

// owner is whom the commands run as.
func (f *fixture) owner() sandbox.Credential {
	if f.runAs != nil {
		return *f.runAs
	}
	return sandbox.Credential{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
}

// grant makes everything below dir the commands' own, and dir passable.
func (f *fixture) grant(tb testing.TB, dir string) {
	tb.Helper()
	if f.runAs == nil {
		return
	}
	must(tb, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(f.runAs.UID), int(f.runAs.GID)))
	}))
}

// inProcess runs the test again in a process of its own, with more in its environment and its command line, and reports whether
// this is that process. The test can then do what it likes to itself, and be hit by what commands do.
func inProcess(t *testing.T, env, args []string) (inside bool) {
	t.Helper()
	const inEnv = "PROMISE_INSIDE"
	if os.Getenv(inEnv) == t.Name() {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-test.run", "^" + t.Name() + "$", "-test.v", "--"}, args...)...)
	cmd.Env = append(os.Environ(), append(env, inEnv+"="+t.Name(), programEnv+"="+ownProgram(t))...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("in its own process: %v", err)
	}
	return false
}

// beDaemon makes this process what the daemon makes of itself: one that others of its user may not look into.
func beDaemon(t *testing.T) {
	t.Helper()
	must(t, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// TestAsNobody keeps the promise as an unprivileged daemon: all its tests, in a process of that user.
func TestAsNobody(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become somebody else: the tests themselves have run as an unprivileged user already")
	}
	home := tempDir(t)
	must(t, os.Chown(home, int(nobody.UID), int(nobody.GID)))
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	_ = workCache(t) // which is for nobody, too
	args := []string{"-test.run", "^TestPromise", "-test.v"}
	if !long {
		args = append(args, "-test.skip", "^(TestPromise7TimeLimit|TestPromise7RunnerLost|TestPromise8Memory)$") // as root they are the same
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(ctx, ownProgram(t), args...)
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody.UID, Gid: nobody.GID}}
	cmd.Env = []string{
		"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "USER=nobody",
		programEnv + "=" + ownProgram(t), setIDEnv + "=" + setIDProgram(t),
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as nobody: %v", err)
	}
	for _, name := range []string{
		"1To3Files", "4Canary", "5Processes", "6Privilege", "7DaemonKilled", "8Load", "9Work", "10Parallel", "12Denied",
	} {
		if name == "9Work" && testing.Short() {
			continue
		}
		// A test whose every tier was skipped passes all the same: what counts is that a tier did.
		if !regexp.MustCompile(`(?m)^ +--- PASS: TestPromise` + name + `/\S+ `).Match(out) {
			t.Errorf("all of %s was skipped", name)
		}
	}
}
