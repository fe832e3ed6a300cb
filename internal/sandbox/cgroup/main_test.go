package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	roleVar  = "BASHD_CGROUP_TEST_ROLE"   // what the test binary is to be instead
	insideOf = "BASHD_CGROUP_TEST_INSIDE" // the group that a test was started again in
	wantVar  = "BASHD_CGROUP_TEST_WANTED" // the controllers that it is to use
	caseVar  = "BASHD_CGROUP_TEST_CASE"   // what it is to expect
	nobody   = 65534
)

var discard = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVar); role {
	case "":
		os.Exit(m.Run())
	case "hold": // lives until its stdin ends
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "daemon": // has a tree with one group in it, and lives on
		t, err := open(discard, wanted()...)
		if err == nil {
			_, err = t.New("command", Limits{})
		}
		fmt.Println("ready", err)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "eat": // takes memory until it is killed
		fmt.Println("ready")
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		var all [][]byte
		for range 4096 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		fmt.Println("survived", len(all))
	case "breed": // starts processes until it can no more, and tells how many there are
		started := 0
		for ; started < 200; started++ {
			if err := exec.Command("sleep", "60").Start(); err != nil {
				break
			}
		}
		fmt.Println("started", started)
		_, _ = io.Copy(io.Discard, os.Stdin)
	default:
		fmt.Fprintln(os.Stderr, "no such role", role)
		os.Exit(2)
	}
}

// child is this test binary, or a shell, as another process.
type child struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// start starts this test binary in a role, in the group of that descriptor where there is one.
func start(t *testing.T, role string, group int, env ...string) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), append(env, roleVar+"="+role)...)
	return begin(t, cmd, group)
}

// shell starts bash with a script.
func shell(t *testing.T, script string, group int) *child {
	t.Helper()
	return begin(t, exec.Command("bash", "-c", script), group)
}

func begin(t *testing.T, cmd *exec.Cmd, group int) *child {
	t.Helper()
	c := &child{Cmd: cmd}
	if group >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: group}
	}
	cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(c.end)
	return c
}

// line reads the next line that the process prints.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the process said nothing more: %v", c.lines.Err())
	}
	return c.lines.Text()
}

// end kills the process, if it still lives, and reaps it.
func (c *child) end() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// wanted are the controllers that a test started again is to use.
func wanted() []string { return strings.Fields(os.Getenv(wantVar)) }

// scene is a group that is given to a test to be used as a service's.
type scene struct {
	dir   dir
	path  string
	wants []string // controllers that it has
}

// controllers are those that tests can have here: the real ones, or one that at least can be switched on.
func controllers(t *testing.T, d dir) []string {
	t.Helper()
	for _, set := range [][]string{{memory, tasks}, {"hugetlb"}, {tasks}} {
		if found, err := d.among("cgroup.controllers", set); err == nil && len(found) == len(set) {
			return set
		}
	}
	return nil
}

// newScene makes a group below this process's, with controllers where there are any.
func newScene(t *testing.T) *scene {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a group away")
	}
	places, err := candidates()
	if err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	own := places[0].dir
	t.Cleanup(own.close)
	// One run of these tests at a time: what the first switches on, the second would find on, and the first could not switch off.
	if err := own.do("lock", "", func(fd int) error { return unix.Flock(fd, unix.LOCK_EX) }); err != nil {
		t.Fatal(err)
	}
	s := &scene{wants: controllers(t, own)}
	// In a place with processes that is not the root, controllers cannot be had for what is below.
	if !own.isRoot() {
		if s.wants, err = own.among("cgroup.subtree_control", s.wants); err != nil {
			t.Fatal(err)
		}
	}
	var undo undoList
	t.Cleanup(undo.run)
	t.Cleanup(func() { undo.run(); undo = nil })
	if err := own.switchOn(s.wants, &undo); err != nil {
		t.Fatal(err)
	}
	name := "cgroup-test-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := own.mkdir(name); err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	if s.dir, err = own.sub(name); err != nil {
		t.Fatal(err)
	}
	s.path = filepath.Join(own.file.Name(), name)
	if err := os.Chmod(s.path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.dir.waitEmpty(5*time.Second), own.remove(name, maxDepth)); err != nil {
			t.Errorf("left behind: %v", err)
		}
		s.dir.close()
	})
	return s
}

// give gives the group, and in it the files, to nobody, as a service manager does that delegates.
func (s *scene) give(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range append(files, ".") {
		if err := os.Chown(filepath.Join(s.path, f), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
}

var delegated = []string{"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"}

// again runs the test that calls it once more, as another user, alone in a group; that run does not come back from
// [inside].
func (s *scene) again(t *testing.T, uid int, group string, env ...string) {
	t.Helper()
	dir, err := s.dir.sub(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.close()
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), append(env, "GORACE=atexit_sleep_ms=0", insideOf+"="+s.path, wantVar+"="+strings.Join(s.wants, " "))...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(dir.file.Fd()),
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
	}
	out, err := cmd.CombinedOutput()
	t.Logf("as user %d:\n%s", uid, out)
	switch {
	case err != nil:
		t.Errorf("as user %d: %v", uid, err)
	case strings.Contains(string(out), "--- SKIP: "+name+" ("):
		t.Skipf("skipped as user %d", uid)
	case !strings.Contains(string(out), "--- PASS: "+name):
		t.Errorf("as user %d: did not run", uid)
	}
}

// inside is the group that this test was started again in; empty in the first run.
func inside() string { return os.Getenv(insideOf) }

// asBoth runs the test again in a group of its own, as root and as the user who was given it. It returns true in the first run.
func asBoth(t *testing.T) bool {
	t.Helper()
	if inside() != "" {
		return false
	}
	t.Run("root", func(t *testing.T) { newScene(t).again(t, 0, ".") })
	t.Run("user", func(t *testing.T) {
		s := newScene(t)
		s.give(t, delegated...)
		s.again(t, nobody, ".")
	})
	return true
}

// tree opens a tree with what can be had.
func tree(t testing.TB) *Tree {
	t.Helper()
	tr, err := open(discard, wanted()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return tr
}

// group makes a group; what runs in it at the test's end is killed.
func group(t testing.TB, tr *Tree, name string, l Limits) *Group {
	t.Helper()
	g, err := tr.New(name, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.dir.has("cgroup.procs") {
			if err := errors.Join(g.Kill(), g.Remove()); err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

// groupOf is the group of a process, as a path below the scene; "." is the scene itself.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	path, err := ownPath(string(b))
	if err != nil {
		t.Fatal(err)
	}
	scene := filepath.Base(inside())
	_, below, ok := strings.Cut(path, scene)
	if !ok {
		t.Fatalf("process %d is in %s, not below %s", pid, path, scene)
	}
	return filepath.Clean("./" + below)
}

// below lists the groups in the scene, sorted.
func below(t *testing.T, path string) []string {
	t.Helper()
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	names, err := d.groups()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// gone says whether a process ends within two seconds; it need not be a child.
func gone(pid int) bool {
	for range 200 {
		if unix.Kill(pid, 0) != nil || state(pid) == "Z" {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	s, _, _ := strings.Cut(rest, " ")
	return s
}
