package sandbox_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/sandbox"
	"bashd/internal/sandbox/runner"
)

// Item 7. That trees are gone at the end, after a kill, and after a SIGKILL of a confined command's runner is proven tree by
// tree elsewhere in this package; here are a time limit, a lost runner under full access, and a lost daemon.

// goneWithin is how long the trees of a lost daemon or runner may outlive it.
const goneWithin = time.Second

// treesOf are the trees to start in a mode. Those that are heavy are worth their time once for each way of killing.
func treesOf(mode sandbox.Mode) (scripts []string) {
	for _, tree := range trees {
		if !tree.heavy || mode != sandbox.ReadOnly {
			scripts = append(scripts, tree.script+`; while :; do sleep 3999; done`)
		}
	}
	return scripts
}

// TestPromise7TimeLimit: first SIGTERM, and soon after SIGKILL, as at a time limit. All trees at once.
func TestPromise7TimeLimit(t *testing.T) {
	t.Parallel() // most of it is waiting
	everyTier(t, func(t *testing.T, f *fixture) {
		f.treesOnce(t)
		for _, mode := range f.modes() {
			t.Run(string(mode), func(t *testing.T) {
				f.needs(t, mode)
				var running []*sandbox.Process
				var alive []func() []string
				for _, script := range treesOf(mode) {
					c := f.command(t, mode, script)
					alive = append(alive, mark(t, &c))
					running = append(running, startAndAwait(t, f, c, "up\n"))
				}
				for _, p := range running {
					p.Terminate()
				}
				time.Sleep(50 * time.Millisecond)
				for _, p := range running {
					p.Kill()
				}
				for i, p := range running {
					awaitGone(t, p, 10*time.Second)
					if left := alive[i](); len(left) > 0 {
						t.Errorf("left: %q", left)
					}
				}
			})
		}
	})
}

// TestPromise7RunnerLost: under full access, where no domain and no namespace holds a tree together, what a killed runner
// leaves falls to the daemon, which ends it.
func TestPromise7RunnerLost(t *testing.T) {
	t.Parallel() // most of it is waiting
	if !inProcess(t, nil, nil) {
		return // the daemon takes every child that is no runner for what a runner left
	}
	for _, runAs := range []*sandbox.Credential{nil, &nobody} {
		t.Run(fmt.Sprint("as another user: ", runAs != nil), func(t *testing.T) {
			if runAs != nil && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			f := newFixture(t, func(c *sandbox.Config) { c.Subreaper, c.RunAs = true, runAs })
			for _, script := range treesOf(sandbox.FullAccess) {
				c := f.command(t, sandbox.FullAccess, script)
				alive := mark(t, &c)
				p := startAndAwait(t, f, c, "up\n")
				must(t, syscall.Kill(p.Runner(), syscall.SIGKILL))
				awaitGone(t, p, 5*time.Second)
				if _, ok := p.Status(); ok {
					t.Error("a status was told although the runner could not have told one")
				}
				vanish(t, patience(goneWithin), alive)
			}
		})
	}
}

// patience is d on a machine that has nothing else to do; the race detector and a load of its own take their time.
func patience(d time.Duration) time.Duration {
	b, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(b), " ")
	if busy, err := strconv.ParseFloat(load, 64); err == nil && busy > 2 {
		return 5 * d
	}
	return 3 * d
}

// vanish waits until nothing is alive any more.
func vanish(t *testing.T, within time.Duration, alive func() []string) {
	t.Helper()
	start := time.Now()
	for left := alive(); len(left) > 0; left = alive() {
		if time.Since(start) > within {
			t.Fatalf("left after %v: %q", time.Since(start), left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestPromise7DaemonKilled: SIGKILL of the daemon ends everything that it had started, in every tier, under every mode: the
// trees, the runners, the sweepers, and the runners that wait.
func TestPromise7DaemonKilled(t *testing.T) {
	t.Parallel() // most of it is waiting
	if tier := os.Getenv("PROMISE_TIER"); tier != "" {
		beKilledDaemon(t, tier)
		return
	}
	for _, tier := range []string{"A", "A nobody", "B nobody", "C"} {
		for _, modes := range []string{"read-only workspace-write", "danger-full-access"} {
			t.Run(tier+"/"+modes, func(t *testing.T) {
				if strings.HasSuffix(tier, " nobody") && os.Geteuid() != 0 {
					t.Skip("needs root")
				}
				if !long && (tier == "A nobody" || tier == "C" && modes == string(sandbox.FullAccess)) {
					t.Skip("in the long form only: as in A")
				}
				testDaemonKilled(t, tier, modes)
			})
		}
	}
}

func testDaemonKilled(t *testing.T, tier, modes string) {
	dir := tempDir(t)
	must(t, os.Chmod(dir, 0o711))
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestPromise7DaemonKilled$", "-test.v")
	cmd.Env = append(os.Environ(), "PROMISE_TIER="+tier, "PROMISE_MODES="+modes, tempEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var said []string
	ready := false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = lines.Text() == "ready"
		said = append(said, lines.Text())
	}
	left := runner.Descendants(cmd.Process.Pid)
	must(t, cmd.Process.Kill())
	killed := time.Now()
	_ = cmd.Wait() // of course it was killed
	if !ready {
		if slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "--- SKIP") }) {
			t.Skip("this host has no such tier")
		}
		t.Fatalf("the daemon did not start its commands: %q", said)
	}
	if len(left) < 20 {
		t.Errorf("only %d processes were running", len(left))
	}
	marked := fmt.Sprintf("TREE_MARK=%d-", cmd.Process.Pid)
	vanish(t, patience(goneWithin), func() []string { return append(stillThere(left), withMark(marked)...) })
	t.Logf("%d processes and what they had started meanwhile were gone %v after the daemon", len(left), time.Since(killed))
}

// stillThere lists those of the processes that have not ended.
func stillThere(list []runner.Proc) (found []string) {
	for _, p := range list {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			found = append(found, string(stat))
		}
	}
	return found
}

// withMark lists the processes that have the mark in their environment.
func withMark(mark string) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(dir + "/environ")
		stat, _ := os.ReadFile(dir + "/stat")
		if strings.Contains(string(environ), mark) && !strings.Contains(string(stat), ") Z ") {
			found = append(found, string(stat))
		}
	}
	return found
}

// beKilledDaemon starts all trees, says so, and waits to be killed.
func beKilledDaemon(t *testing.T, tier string) {
	f := newFixture(t, func(c *sandbox.Config) {
		c.Warm, c.Subreaper = 2, true
		name, _, _ := strings.Cut(tier, " ")
		c.Tier = name
		if strings.HasSuffix(tier, " nobody") {
			c.RunAs = &nobody
		}
	})
	for field := range strings.FieldsSeq(os.Getenv("PROMISE_MODES")) {
		mode, ok := sandbox.ParseMode(field)
		if !ok {
			t.Fatalf("%q is no mode", field)
		}
		f.needs(t, mode)
		for _, script := range treesOf(mode) {
			c := f.command(t, mode, script)
			_ = mark(t, &c)
			startAndAwait(t, f, c, "up\n")
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	time.Sleep(time.Minute) // its standard input is the null device
	t.Error("nobody killed it")
}
