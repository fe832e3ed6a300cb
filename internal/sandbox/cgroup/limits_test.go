package cgroup

import (
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limited opens a tree with real limits.
func limited(t *testing.T) *Tree {
	t.Helper()
	if !slices.Contains(wanted(), memory) {
		t.Skip("the controllers for memory and processes are not to be had here")
	}
	tr := tree(t)
	if !tr.Memory() || !tr.Pids() {
		t.Fatalf("controllers %v of %v", tr.enabled, wanted())
	}
	return tr
}

func TestLimitsAreSet(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := limited(t)
	g := group(t, tr, "command", Limits{MemoryBytes: 64 << 20, Processes: 17})
	want := map[string]string{"memory.max": strconv.Itoa(64 << 20), "memory.oom.group": "1", "pids.max": "17"}
	if g.dir.has("memory.swap.max") {
		want["memory.swap.max"] = "0"
	}
	for file, value := range want {
		if got, err := g.dir.read(file); err != nil || strings.TrimSpace(got) != value {
			t.Errorf("%s is %q, %v, want %s", file, got, err, value)
		}
	}
	free := group(t, tr, "free", Limits{})
	for _, file := range []string{"memory.max", "pids.max"} {
		if got, err := free.dir.read(file); err != nil || got != "max\n" {
			t.Errorf("without a limit %s is %q, %v", file, got, err)
		}
	}
}

// A memory bomb ends with its group, and with nothing else.
func TestMemoryBomb(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := limited(t)
	limits := Limits{MemoryBytes: 96 << 20, Processes: 64}
	bombed, sibling := group(t, tr, "bombed", limits), group(t, tr, "sibling", limits)
	bomb, innocent, other := start(t, "eat", bombed.FD()), start(t, "hold", bombed.FD()), start(t, "hold", sibling.FD())
	for _, c := range []*child{bomb, innocent, other} {
		c.line(t)
	}
	if bombed.OOMKilled() {
		t.Error("killed before it began")
	}
	if _, err := bomb.stdin.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := bomb.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the bomb ended with %v", err)
	}
	if !bombed.OOMKilled() {
		t.Error("OOMKilled is false")
	}
	if !gone(innocent.Process.Pid) {
		t.Error("half the command lives on")
	}
	if sibling.OOMKilled() || state(other.Process.Pid) != "S" {
		t.Errorf("the sibling is %q, killed %t", state(other.Process.Pid), sibling.OOMKilled())
	}
	if err := bombed.Remove(); err != nil {
		t.Error(err)
	}
}

// A fork bomb gets no further than its limit, and its neighbours go on starting processes.
func TestForkBomb(t *testing.T) {
	if asBoth(t) {
		return
	}
	tr := limited(t)
	bombed, sibling := group(t, tr, "bombed", Limits{Processes: 40}), group(t, tr, "sibling", Limits{Processes: 40})
	c := start(t, "breed", bombed.FD())
	n, err := strconv.Atoi(strings.TrimPrefix(c.line(t), "started "))
	if err != nil || n < 10 || n >= 40 {
		t.Errorf("started %d, %v", n, err)
	}
	events, err := bombed.dir.read("pids.events")
	if hits, valueErr := value(events, "max"); err != nil || valueErr != nil || hits == 0 {
		t.Errorf("pids.events %q, %v", events, err)
	}
	start(t, "hold", sibling.FD()).line(t)
	if err := exec.Command("true").Run(); err != nil {
		t.Errorf("outside: %v", err)
	}
	// A real one, that forks as fast as it is killed.
	second := group(t, tr, "second", Limits{Processes: 40})
	bomb := shell(t, "echo ready; f() { f 2>/dev/null | f 2>/dev/null & }; f; while :; do :; done", second.FD())
	bomb.line(t)
	time.Sleep(300 * time.Millisecond)
	begin := time.Now()
	if err := errors.Join(bombed.Kill(), bombed.Remove()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(second.Kill(), second.Remove()); err != nil {
		t.Error(err)
	}
	t.Logf("both killed and removed in %v", time.Since(begin).Round(time.Millisecond))
}
