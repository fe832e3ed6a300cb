package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/sandbox"
)

// mark puts a variable into the command's environment by which alive finds
// everything that it started.
func mark(tb testing.TB, c *sandbox.Command) (alive func() []string) {
	tb.Helper()
	m := fmt.Sprintf("TREE_MARK=%d-%d", os.Getpid(), time.Now().UnixNano())
	c.Env = append(c.Env, m)
	return func() (found []string) {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			environ, _ := os.ReadFile(dir + "/environ")
			stat, _ := os.ReadFile(dir + "/stat")
			if strings.Contains(string(environ), m) && !strings.Contains(string(stat), ") Z ") {
				found = append(found, string(stat))
			}
		}
		return found
	}
}

// trees are process trees that are hard to kill. The heavy ones are worth their
// time once for each way of killing: by the domain, and without one.
var trees = []struct {
	name, script string
	heavy        bool
}{
	{"setsid", `(setsid nohup sleep 3999 >/dev/null 2>&1 &); echo up`, false},
	{"double fork", `( (sleep 3999 & ) & ) >/dev/null 2>&1; echo up`, false},
	{"stopped", `sleep 3999 >/dev/null 2>&1 & kill -STOP $!; echo up`, false},
	{"trap", `bash -c 'trap "" TERM INT HUP; while :; do sleep 3999; done' >/dev/null 2>&1 & echo up`, false},
	{"many", `for i in $(seq 120); do sleep 3999 >/dev/null 2>&1 & done; echo up`, true},
	{"fork and exit", `for i in 1 2 3 4; do bash -c 'f() { (f) & exit; }; f' >/dev/null 2>&1 & done; echo up`, false},
	{"slow fork and exit", `for i in $(seq 50); do bash -c 'f() { sleep 0.5; (f) & exit; }; f' >/dev/null 2>&1 & done; echo up`, true},
}

// TestNothingSurvivesTheEnd: what a command leaves running is gone when Gone is closed.
func TestNothingSurvivesTheEnd(t *testing.T) {
	t.Parallel()
	everyTier(t, testNothingSurvivesTheEnd)
}

func testNothingSurvivesTheEnd(t *testing.T, f *fixture) {
	f.treesOnce(t)
	for _, mode := range f.modes() {
		for _, tree := range trees {
			t.Run(string(mode)+"/"+tree.name, func(t *testing.T) {
				f.needs(t, mode)
				if tree.heavy && mode == sandbox.WorkspaceWrite {
					t.Skip("confined like read-only, which is tried")
				}
				c := f.command(t, mode, tree.script)
				alive := mark(t, &c)
				got := f.run(t, c)
				if got.stdout != "up\n" || got.status.ExitStatus() != 0 {
					t.Errorf("got %+v", got)
				}
				if left := alive(); len(left) != 0 {
					t.Errorf("left: %q", left)
				}
				if tree.name == "many" && got.survivors != 120 {
					t.Errorf("%d survivors were counted, want 120", got.survivors)
				}
				if tree.name == "setsid" && got.survivors != 1 {
					t.Errorf("%d survivors were counted, want 1", got.survivors)
				}
			})
		}
	}
}

// TestKillReachesAll: a kill in the middle ends bash and everything below it.
func TestKillReachesAll(t *testing.T) {
	t.Parallel()
	everyTier(t, testKillReachesAll)
}

func testKillReachesAll(t *testing.T, f *fixture) {
	f.treesOnce(t)
	for _, mode := range f.modes() {
		for _, tree := range trees {
			t.Run(string(mode)+"/"+tree.name, func(t *testing.T) {
				f.needs(t, mode)
				if tree.heavy && mode == sandbox.ReadOnly {
					t.Skip("confined like workspace-write, which is tried")
				}
				c := f.command(t, mode, tree.script+`; while :; do sleep 3999; done`)
				alive := mark(t, &c)
				p := startAndAwait(t, f, c, "up\n")
				p.Kill()
				awaitGone(t, p, 5*time.Second)
				if ws, ok := p.Status(); !ok || ws.Signal() != syscall.SIGKILL {
					t.Errorf("status %v %v", ws, ok)
				}
				if left := alive(); len(left) != 0 {
					t.Errorf("left: %q", left)
				}
			})
		}
	}
}

// startAndAwait starts c and returns when it has printed want.
func startAndAwait(t *testing.T, f *fixture, c sandbox.Command, want string) *sandbox.Process {
	t.Helper()
	p, err := f.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Gone(); p.Stdout.Close(); p.Stderr.Close() })
	buf := make([]byte, len(want))
	_ = p.Stdout.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(p.Stdout, buf); err != nil || string(buf) != want {
		t.Fatalf("it printed %q (%v), want %q", buf, err, want)
	}
	return p
}

func awaitGone(t *testing.T, p *sandbox.Process, within time.Duration) {
	t.Helper()
	select {
	case <-p.Gone():
	case <-time.After(within):
		t.Fatalf("not gone within %v", within)
	}
}

// TestTerminateReachesAll: SIGTERM goes to the whole tree, to stopped processes too,
// and a trap's output and exit code are kept.
func TestTerminateReachesAll(t *testing.T) {
	t.Parallel()
	everyTier(t, testTerminateReachesAll)
}

func testTerminateReachesAll(t *testing.T, f *fixture) {
	f.treesOnce(t)
	for _, mode := range f.modes() {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			c := f.command(t, mode, `trap 'echo cleaned; exit 9' TERM
				(trap 'echo stopped one; exit' TERM; kill -STOP $BASHPID; while :; do sleep 0.05; done) &
				echo up; wait`)
			p := startAndAwait(t, f, c, "up\n")
			awaitStoppedChild(t, shellOf(t, p))
			p.Terminate()
			out, _ := io.ReadAll(p.Stdout)
			awaitGone(t, p, 5*time.Second)
			for _, want := range []string{"cleaned\n", "stopped one\n"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in %q", want, out)
				}
			}
			if ws, ok := p.Status(); !ok || ws.ExitStatus() != 9 {
				t.Errorf("status %v %v, want exit code 9", ws, ok)
			}
		})
	}
}

// awaitStoppedChild waits until a child of pid has stopped itself: a SIGCONT that came before would be in vain.
func awaitStoppedChild(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Skip("this kernel does not list children")
		}
		for child := range strings.FieldsSeq(string(b)) {
			if stat, err := os.ReadFile("/proc/" + child + "/stat"); err == nil && strings.Contains(string(stat), ") T ") {
				return
			}
		}
	}
	t.Fatal("no child has stopped")
}

// TestRunnerKilled: SIGKILL of the runner leaves nothing of a confined command, and is
// told apart from every way in which a command can end.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	everyTier(t, testRunnerKilled)
}

func testRunnerKilled(t *testing.T, f *fixture) {
	f.treesOnce(t)
	for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		for _, tree := range trees {
			t.Run(string(mode)+"/"+tree.name, func(t *testing.T) {
				f.needs(t, mode)
				if f.Report().Cleanup == sandbox.CleanupSubreaper {
					t.Skip("this kernel has no signal scope (Landlock ABI 6)")
				}
				if tree.heavy && mode == sandbox.ReadOnly {
					t.Skip("confined like workspace-write, which is tried")
				}
				c := f.command(t, mode, tree.script+`; while :; do sleep 3999; done`)
				alive := mark(t, &c)
				p := startAndAwait(t, f, c, "up\n")
				if err := syscall.Kill(p.Runner(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				awaitGone(t, p, 5*time.Second)
				if _, ok := p.Status(); ok {
					t.Error("a status was told although the runner could not have told one")
				}
				for deadline := time.Now().Add(time.Second); len(alive()) > 0; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("left: %q", alive())
					}
				}
			})
		}
	}
}

// shellOf is the pid of bash, or of what it has become: a child of its runner.
func shellOf(t *testing.T, p *sandbox.Process) int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Runner(), p.Runner()))
	if err != nil {
		t.Skip("this kernel does not list children")
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Runner()))
	must(t, err)
	for pid := range strings.FieldsSeq(string(children)) {
		// The sweeper is a child, too, and the same program as its parent.
		if comm, _ := os.ReadFile("/proc/" + pid + "/comm"); string(comm) != string(own) {
			n, err := strconv.Atoi(pid)
			must(t, err)
			return n
		}
	}
	t.Fatal("the command has ended")
	return 0
}

// TestKillIsNotForStrangers: signals that a command sends reach nothing outside of it.
func TestKillIsNotForStrangers(t *testing.T) { everyTier(t, testKillIsNotForStrangers) }

func testKillIsNotForStrangers(t *testing.T, f *fixture) {
	f.needs(t, sandbox.ReadOnly)
	if f.Report().Cleanup == sandbox.CleanupSubreaper {
		t.Skip("this kernel has no signal scope (Landlock ABI 6)")
	}
	sibling := startAndAwait(t, f, f.command(t, sandbox.WorkspaceWrite, `echo up; sleep 3999`), "up\n")
	c := f.command(t, sandbox.WorkspaceWrite, `
		for pid in $DAEMON $SIBLING $(ls /proc/$DAEMON/task) $RUNNER $(ls /proc/$RUNNER/task); do kill -9 $pid && echo hit $pid; done 2>/dev/null
		kill -9 -1 2>/dev/null
		echo survived`)
	c.Env = append(c.Env, fmt.Sprintf("DAEMON=%d", os.Getpid()), fmt.Sprintf("SIBLING=%d", shellOf(t, sibling)), fmt.Sprintf("RUNNER=%d", sibling.Runner()))
	got := f.run(t, c)
	if got.stdout != "survived\n" {
		t.Errorf("got %+v", got)
	}
	select {
	case <-sibling.Exited():
		t.Error("the sibling was hit")
	default:
	}
}

// TestCancelledStart: a context that has ended starts nothing.
func TestCancelledStart(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Start(ctx, f.command(t, sandbox.FullAccess, "true")); err == nil {
		t.Error("it started")
	}
}

// TestCloseKillsAll: Close ends what runs and waits for it.
func TestCloseKillsAll(t *testing.T) {
	for _, mode := range sandbox.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			f := newFixture(t)
			f.needs(t, mode)
			c := f.command(t, mode, `(setsid sleep 3999 &) ; echo up; sleep 3999`)
			alive := mark(t, &c)
			startAndAwait(t, f, c, "up\n")
			f.Close()
			if left := alive(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestOrdersRacingTheEnd: orders that cross with the end of a command cost none of its facts. (A
// socket that is closed with unread data resets its peer, whose next read then fails
// ahead of the records that are waiting.)
func TestOrdersRacingTheEnd(t *testing.T) {
	f := newFixture(t)
	for range 100 {
		p, err := f.Start(t.Context(), f.command(t, sandbox.FullAccess, "trap '' TERM; exit 3"))
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.Terminate()
				}
			}
		}()
		got := finish(t, p)
		close(stop)
		if t.Failed() || (got.status.ExitStatus() != 3 && got.status.Signal() != syscall.SIGTERM) {
			t.Fatalf("got %+v", got)
		}
	}
}

// TestTracedByItsRunner: a command that has its parent trace it, and stops, has not ended; nor has what it leaves.
func TestTracedByItsRunner(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	everyTier(t, func(t *testing.T, f *fixture) {
		for _, mode := range f.modes() {
			c := f.command(t, mode, "exec python3 -c \"$SCRIPT\"")
			c.Env = append(c.Env, `SCRIPT=
import ctypes, os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
def traced():
    if ctypes.CDLL(None).ptrace(0, 0, 0, 0): sys.exit(9)
    os.kill(os.getpid(), signal.SIGUSR1)
traced()
print("going on", flush=True)
sys.exit(3)`)
			got := f.run(t, c)
			if got.status.ExitStatus() != 3 || !strings.Contains(got.stdout, "handled\ngoing on\n") {
				t.Errorf("%s: %+v", mode, got)
			}
		}
	})
}
