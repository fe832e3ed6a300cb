package cgroup

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Alone in a group with controllers: this process moves into the leaf, and all is as it was but for that after Close.
func TestAlone(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	if tr.Place() != inside() || !slices.Equal(tr.enabled, wanted()) {
		t.Errorf("place %s, controllers %v, want %s, %v", tr.Place(), tr.enabled, inside(), wanted())
	}
	if want := slices.Contains(wanted(), memory); tr.Memory() != want || tr.Pids() != want {
		t.Errorf("memory %t, processes %t, want %t", tr.Memory(), tr.Pids(), want)
	}
	want := "."
	if len(wanted()) > 0 {
		want = leaf
	}
	if got := groupOf(t, os.Getpid()); got != want {
		t.Errorf("this process is in %s, want %s", got, want)
	}
	g := group(t, tr, "command", Limits{})
	c := start(t, "hold", g.FD())
	c.line(t)
	if got, want := groupOf(t, c.Process.Pid), tr.name+"/command"; got != want {
		t.Errorf("the command is in %s, want %s", got, want)
	}
	// A second one, as after an execve of this process: the same place, although it has moved.
	second := tree(t)
	if second.Place() != tr.Place() || !slices.Equal(second.enabled, tr.enabled) {
		t.Errorf("second tree: %s, %v", second.Place(), second.enabled)
	}
	if err := tr.Close(); err == nil {
		t.Error("closing a tree in which a command runs: no error")
	}
	c.end()
	if _, err := tr.New("late", Limits{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed tree makes a group: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range below(t, inside()) {
		if name != leaf {
			t.Errorf("left behind: %s", name)
		}
	}
}

// Another process in the group is not ours to move: groups without limits, and this process stays.
func TestShared(t *testing.T) {
	if asBoth(t) {
		return
	}
	here, err := openDir(inside())
	if err != nil {
		t.Fatal(err)
	}
	defer here.close()
	start(t, "hold", -1).line(t)
	var log bytes.Buffer
	tr, err := open(slog.New(slog.NewTextHandler(&log, nil)), wanted()...)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.enabled) > 0 {
		t.Errorf("controllers %v", tr.enabled)
	}
	if len(wanted()) > 0 && !strings.Contains(log.String(), errShared.Error()) {
		t.Errorf("the log does not say why: %s", log.String())
	}
	if got := groupOf(t, os.Getpid()); got != "." {
		t.Errorf("this process was moved to %s", got)
	}
	if on, err := here.among("cgroup.subtree_control", wanted()); err != nil || len(on) > 0 {
		t.Errorf("controllers were left on: %v, %v", on, err)
	}
	if got := below(t, inside()); !slices.Equal(got, []string{tr.name}) {
		t.Errorf("groups %v", got)
	}
	g := group(t, tr, "command", Limits{})
	c := shell(t, "sleep 60 & echo $!; wait", g.FD())
	c.line(t)
	if err := errors.Join(g.Kill(), g.Remove()); err != nil {
		t.Error(err)
	}
	if _, err := tr.New("limited", Limits{MemoryBytes: 1 << 30}); err == nil {
		t.Error("a limit that cannot be set: no error")
	}
	if got := below(t, filepath.Join(inside(), tr.name)); len(got) > 0 {
		t.Errorf("groups of the tree: %v", got)
	}
}

// What a service manager delegates in part is used in part, or not at all, and left as it was.
func TestPartlyDelegated(t *testing.T) {
	if inside() == "" {
		t.Run("no subtree_control", func(t *testing.T) {
			s := newScene(t)
			s.give(t, "cgroup.procs", "cgroup.threads")
			s.again(t, nobody, ".", caseVar+"=groups")
		})
		t.Run("no procs", func(t *testing.T) {
			s := newScene(t)
			s.give(t)
			s.again(t, nobody, ".", caseVar+"=nothing")
		})
		t.Run("nothing", func(t *testing.T) { newScene(t).again(t, nobody, ".", caseVar+"=nothing") })
		return
	}
	tr, err := open(discard, wanted()...)
	if os.Getenv(caseVar) == "groups" {
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.enabled) > 0 {
			t.Errorf("controllers %v", tr.enabled)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	} else if err == nil || tr != nil {
		t.Fatalf("a tree was opened: %+v", tr)
	} else {
		t.Log(err)
	}
	if got := groupOf(t, os.Getpid()); got != "." {
		t.Errorf("this process was moved to %s", got)
	}
	if got := below(t, inside()); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A service manager may have put this process into the leaf itself (DelegateSubgroup=).
func TestStartedInLeaf(t *testing.T) {
	if inside() == "" {
		for uid, name := range map[int]string{0: "root", nobody: "user"} {
			t.Run(name, func(t *testing.T) {
				s := newScene(t)
				if err := s.dir.mkdir(leaf); err != nil {
					t.Fatal(err)
				}
				if uid != 0 {
					s.give(t, append(delegated, leaf, leaf+"/cgroup.procs")...)
				}
				s.again(t, uid, leaf)
			})
		}
		return
	}
	tr := tree(t)
	if tr.Place() != inside() || !slices.Equal(tr.enabled, wanted()) {
		t.Errorf("place %s, controllers %v", tr.Place(), tr.enabled)
	}
	if got := groupOf(t, os.Getpid()); got != leaf {
		t.Errorf("this process is in %s", got)
	}
	g := group(t, tr, "command", Limits{})
	start(t, "hold", g.FD()).line(t)
}

// Groups of one that is gone are removed when the next starts; those of one that lives, and those with processes, are not.
func TestEarlierLives(t *testing.T) {
	if asBoth(t) {
		return
	}
	living, dead := startDaemon(t), startDaemon(t)
	orphan := startDaemon(t)
	command, err := openDir(filepath.Join(inside(), orphan.tree, "command"))
	if err != nil {
		t.Fatal(err)
	}
	defer command.close()
	left := start(t, "hold", int(command.file.Fd()))
	left.line(t)
	strange := filepath.Join(inside(), "bashd-strange")
	if err := os.Mkdir(strange, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(strange)
	dead.end()
	orphan.end()

	var log bytes.Buffer
	tr, err := open(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	want := []string{living.tree, orphan.tree, tr.name, "bashd-strange"}
	slices.Sort(want)
	if got := below(t, inside()); !slices.Equal(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
	if !strings.Contains(log.String(), "group="+orphan.tree) || strings.Contains(log.String(), living.tree) || left.ProcessState != nil {
		t.Errorf("log: %s", log.String())
	}
	if state(left.Process.Pid) != "S" {
		t.Errorf("the process that was left is %s", state(left.Process.Pid))
	}
	left.end()
	living.end()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if got := below(t, inside()); !slices.Equal(got, []string{"bashd-strange"}) {
		t.Errorf("after closing: %v", got)
	}
}

// daemon is another process of this program, with a tree.
type daemon struct {
	*child
	tree string
}

func startDaemon(t *testing.T) daemon {
	t.Helper()
	before := below(t, inside())
	// Without controllers: this process is in the group too.
	c := start(t, "daemon", -1, wantVar+"=")
	if got := c.line(t); got != "ready <nil>" {
		t.Fatal(got)
	}
	for _, name := range below(t, inside()) {
		if !slices.Contains(before, name) {
			return daemon{c, name}
		}
	}
	t.Fatal("no tree was made")
	return daemon{}
}

// Who starts while another does takes none of what that one makes.
func TestManyAtOnce(t *testing.T) {
	if asBoth(t) {
		return
	}
	var daemons []*child
	for range 8 {
		daemons = append(daemons, start(t, "daemon", -1, wantVar+"="))
	}
	for _, d := range daemons {
		if got := d.line(t); got != "ready <nil>" {
			t.Error(got)
		}
	}
	if got := below(t, inside()); len(got) != len(daemons) {
		t.Errorf("%d trees of %d: %v", len(got), len(daemons), got)
	}
	for _, d := range daemons {
		d.end()
	}
	tr := tree(t)
	if got := below(t, inside()); len(got) > 2 { // the tree, and the leaf
		t.Errorf("groups %v beside %s", got, tr.name)
	}
}

// Where nothing can be made there is no tree but a reason.
func TestRefused(t *testing.T) {
	if inside() == "" && os.Geteuid() != 0 {
		tr, err := Open(discard)
		if err == nil {
			t.Skip("this user has control groups: ", tr.Place(), tr.Close())
		}
		if tr != nil || err.Error() == "" {
			t.Errorf("%v, %v", tr, err)
		}
		return
	}
	if _, err := openDir("/proc"); err == nil {
		t.Error("/proc is taken for a control group")
	}
	if _, err := find("1 2 0:3 / /proc rw - cgroup2 none rw\n", "/", "."); err == nil {
		t.Error("/proc is taken for this process's group")
	}
	if _, err := find("1 2 0:3 / /nowhere rw - cgroup2 none rw\n", "/a", "."); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a mount that is not there: %v", err)
	}
	if _, err := find("", "/a", "."); err == nil {
		t.Error("no mounts: no error")
	}
	if inside() != "" {
		return
	}
	// A group that this process is not in.
	s := newScene(t)
	if err := holdsUs(s.dir, "."); err == nil {
		t.Error("another group is taken for this process's")
	}
}

// What turns out too late not to work is taken back: with room for two groups there is none for the leaf, ours and one for a
// command, so that this process moves back; with room for one there is nothing.
func TestNoRoom(t *testing.T) {
	if inside() == "" {
		for _, room := range []string{"2", "1", "0"} {
			for uid, name := range map[int]string{0: "root", nobody: "user"} {
				t.Run(room+" "+name, func(t *testing.T) {
					s := newScene(t)
					if err := s.dir.write("cgroup.max.descendants", room); err != nil {
						t.Fatal(err)
					}
					if uid != 0 {
						s.give(t, delegated...)
					}
					s.again(t, uid, ".", caseVar+"="+room)
				})
			}
		}
		return
	}
	here, err := openDir(inside())
	if err != nil {
		t.Fatal(err)
	}
	defer here.close()
	var log bytes.Buffer
	tr, err := open(slog.New(slog.NewTextHandler(&log, nil)), wanted()...)
	if enough := os.Getenv(caseVar) == "2"; enough != (err == nil) || enough != (tr != nil) {
		t.Errorf("%v, %v", tr, err)
	}
	if tr != nil {
		if len(tr.enabled) > 0 {
			t.Errorf("controllers %v", tr.enabled)
		}
		if len(wanted()) > 0 && !strings.Contains(log.String(), "resource temporarily unavailable") {
			t.Errorf("the log does not say why: %s", log.String())
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := groupOf(t, os.Getpid()); got != "." {
		t.Errorf("this process was left in %s", got)
	}
	if on, err := here.among("cgroup.subtree_control", wanted()); err != nil || len(on) > 0 {
		t.Errorf("controllers were left on: %v, %v", on, err)
	}
	if got := below(t, inside()); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}
