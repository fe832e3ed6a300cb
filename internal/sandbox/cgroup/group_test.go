package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNew(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	g := group(t, tr, "a", Limits{})
	if _, err := tr.New("a", Limits{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a name taken: %v", err)
	}
	if !g.dir.has("cgroup.procs") {
		t.Error("the first of a name was removed with the second")
	}
	for _, name := range []string{"", "..", "a/b", "cgroup.procs"} {
		if _, err := tr.New(name, Limits{}); err == nil {
			t.Errorf("name %q was taken", name)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(g.FD()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v: the descriptor would be inherited", flags, err)
	}
	if g.OOMKilled() {
		t.Error("an empty group was killed for want of memory")
	}
	if err := g.Kill(); err != nil {
		t.Errorf("killing nobody: %v", err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if err := g.Kill(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("killing in a removed group: %v", err)
	}
	if err := g.Remove(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("removing a removed group: %v", err)
	}
	if g.OOMKilled() {
		t.Error("a removed group was killed for want of memory")
	}
	// The name is free again.
	if err := group(t, tr, "a", Limits{}).Remove(); err != nil {
		t.Error(err)
	}
}

// hardToKill is a tree of processes that would outlive their parent, in sessions of their own, stopped, deaf to SIGTERM, and in a
// group that it made itself where it may.
const hardToKill = `
trap '' TERM HUP INT
(setsid nohup sleep 601 >/dev/null 2>&1 &)
sleep 602 & kill -STOP $!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 603 & done
(trap '' TERM; while :; do sleep 0.01; done) &
setsid bash -c 'mkdir "$0/own" "$0/own/deeper" && echo $$ >"$0/own/deeper/cgroup.procs"; exec sleep 604' "$1" &
setsid bash -c 'mkdir "$0/own2" && echo $$ >"$0/own2/cgroup.procs"; while :; do (sleep 0.01 & exec true) & wait; done' "$1" &
echo ready
wait
`

// Killing reaches everything, by the kernel's way and by the other.
func TestKill(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	ways := map[string]func(*Group) error{
		"at once":    (*Group).Kill,
		"one by one": func(g *Group) error { return g.dir.killAll(5 * time.Second) },
	}
	sibling := start(t, "hold", group(t, tr, "sibling", Limits{}).FD())
	sibling.line(t)
	for name, kill := range ways {
		t.Run(name, func(t *testing.T) {
			g := group(t, tr, "command", Limits{})
			if name == "at once" && !g.dir.has("cgroup.kill") {
				t.Skip("this kernel has no cgroup.kill")
			}
			path := tr.base.file.Name() + "/command"
			c := shell(t, "set -- "+path+"; "+hardToKill, g.FD())
			if got := c.line(t); got != "ready" {
				t.Fatal(got)
			}
			all := settled(t, g.dir)
			if err := g.Remove(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a group in use was removed: %v", err)
			}
			begin := time.Now()
			if err := kill(g); err != nil {
				t.Fatal(err)
			}
			if err := g.Remove(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d processes killed and the group removed in %v", len(all), time.Since(begin).Round(time.Microsecond))
			for _, pid := range all {
				if !gone(pid) {
					t.Errorf("process %d lives", pid)
				}
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the group is still there: %v", err)
			}
		})
	}
	if state(sibling.Process.Pid) != "S" {
		t.Errorf("the sibling is %q", state(sibling.Process.Pid))
	}
}

// settled waits until all that hardToKill starts is there, and lists it.
func settled(t *testing.T, d dir) []int {
	t.Helper()
	for range 1000 {
		all := everybody(t, d)
		if got := below(t, d.file.Name()); len(all) >= 25 && slices.Equal(got, []string{"own", "own2"}) {
			return all
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("only %d processes, groups %v", len(everybody(t, d)), below(t, d.file.Name()))
	return nil
}

// everybody lists the processes of a group and of those below.
func everybody(t *testing.T, d dir) []int {
	t.Helper()
	all, err := d.members()
	if err != nil {
		t.Fatal(err)
	}
	names, err := d.groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		sub, err := d.sub(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, everybody(t, sub)...)
		sub.close()
	}
	return all
}

// Killing one by one reaches nobody who is not in the group (any more).
func TestKillSparesOthers(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	g := group(t, tr, "command", Limits{})
	inside, moved := start(t, "hold", g.FD()), start(t, "hold", g.FD())
	inside.line(t)
	moved.line(t)
	other := group(t, tr, "other", Limits{})
	if err := other.dir.write("cgroup.procs", strconv.Itoa(moved.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if err := g.dir.killAll(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if !gone(inside.Process.Pid) {
		t.Error("the process in the group lives")
	}
	if gone(moved.Process.Pid) {
		t.Error("the process that was moved out was killed, too")
	}
}

// Remove waits for those who are about to be gone.
func TestRemoveWaits(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	g := group(t, tr, "command", Limits{})
	c := shell(t, "echo ready; read", g.FD())
	c.line(t)
	time.AfterFunc(100*time.Millisecond, func() { c.stdin.Close() })
	begin := time.Now()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < 90*time.Millisecond || took > 700*time.Millisecond {
		t.Errorf("removed after %v", took)
	}
}

// Used by many at once, groups do not get in each other's way, and leave no descriptors.
func TestConcurrent(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	before := descriptors(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				g, err := tr.New(fmt.Sprintf("g-%d-%d", i, j), Limits{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(g.try(), g.Kill(), g.Remove()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if after := descriptors(t); len(after) > len(before) {
		t.Errorf("descriptors %v, before %v", after, before)
	}
	if got := below(t, tr.base.file.Name()); len(got) > 0 {
		t.Errorf("groups %v", got)
	}
}

func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(target, "/proc/") {
			open = append(open, e.Name()+" "+target)
		}
	}
	slices.Sort(open)
	return open
}

// Groups deeper than a bound are left and told, not removed at any price.
func TestTooDeep(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := tree(t)
	g := group(t, tr, "command", Limits{})
	path := tr.base.file.Name() + "/command"
	deep := path + strings.Repeat("/d", maxDepth+2)
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed: %v", err)
	}
	if _, err := g.dir.killMembers(maxDepth); err == nil {
		t.Error("who is below that bound is not seen, and it is not told")
	}
	if err := errors.Join(os.Remove(deep), os.Remove(deep[:len(deep)-2])); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func BenchmarkNewRemove(b *testing.B) {
	tr, err := Open(discard)
	if err != nil {
		b.Skip(err)
	}
	defer tr.Close()
	b.Logf("memory %t, processes %t", tr.Memory(), tr.Pids())
	for b.Loop() {
		g, err := tr.New("bench", Limits{})
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}

// With a process that is born there and gone: what a command costs beyond its spawn.
func BenchmarkNewStartKillRemove(b *testing.B) {
	tr, err := Open(discard)
	if err != nil {
		b.Skip(err)
	}
	defer tr.Close()
	for b.Loop() {
		g, err := tr.New("bench", Limits{})
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(g.try(), g.Kill(), g.Remove()); err != nil {
			b.Fatal(err)
		}
	}
}

// For comparison: the spawn alone.
func BenchmarkSpawn(b *testing.B) {
	for b.Loop() {
		_, _ = os.StartProcess(nowhere, []string{nowhere}, &os.ProcAttr{})
	}
}
