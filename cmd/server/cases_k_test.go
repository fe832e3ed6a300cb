package main

import (
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestCasesK is about the life of the service: crashes, shutdowns, being PID 1.
func TestCasesK(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{{"K01", caseK01}, {"K02", caseK02}, {"K04 K05", caseK04K05}, {"K06", caseK06}})
}

// caseK01 kills the daemon under runs that do all to survive it.
func caseK01(t *testing.T, _ *daemon) {
	d := launch(t, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	for i, command := range []string{
		"sleep 6301", "trap '' TERM HUP; sleep 6302 & sleep 6302", "setsid nohup sleep 6303 & (setsid sh -c 'sleep 6303 & sleep 6303' &) ; sleep 6303",
	} {
		for _, mode := range modes {
			d.begin(t, in{"command": fmt.Sprintf("%s # %d %s", command, i, mode), "sandboxMode": mode})
		}
	}
	spilled := d.run(t, in{"command": "seq 1 100000"})
	d.await(t, "the commands run", func() bool { return len(d.alive("sleep 630")) >= 9 })
	d.crash(t)
	d.awaitNoProcess(t, 3*time.Second)

	again := d.restart(t)
	if runs := again.list(t); len(runs) != 0 {
		t.Errorf("listed after the restart: %v", runs)
	}
	for _, path := range []string{"/v1/runs/" + spilled.ID, spilled.Stdout.URL} {
		if status, raw := again.request(t, "GET", path, ""); status != 404 {
			t.Errorf("GET %s: %d %s; want 404: runs do not survive the server", path, status, raw)
		}
	}
	if exists(spilled.Stdout.SpillPath) {
		t.Error("a spill file that nobody knows of was left")
	}
	again.sh(t, "echo ok").printed(t, "ok\n", "")
}

// caseK02 shuts the daemon down under runs that take no notice of it.
func caseK02(t *testing.T, _ *daemon) {
	d := launch(t)
	stubborn := d.begin(t, in{"command": "trap '' TERM; echo up; sleep 6311; sleep 6311"})
	obedient := d.begin(t, in{"command": "echo up; sleep 6312"})
	trapping := d.begin(t, in{"command": "trap 'echo cleaned; exit 9' TERM; echo up; sleep 6313 & wait"})
	brief := d.begin(t, in{"command": "sleep 2; echo finished"})
	d.await(t, "the commands run", func() bool { return len(d.alive("sleep 631")) >= 3 })

	began := time.Now()
	if err := syscall.Kill(d.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.await(t, "it says that it is draining", func() bool {
		status, raw := d.request(t, "GET", "/readyz", "")
		return status == 503 && strings.Contains(string(raw), "draining")
	})
	refusal := d.refused(t, in{"command": "echo late"}, 503, "SHUTTING_DOWN")
	if !strings.Contains(refusal.Detail, "shutting down") {
		t.Errorf("detail %q", refusal.Detail)
	}
	if status, _ := d.request(t, "GET", "/healthz", ""); status != 200 {
		t.Errorf("healthz while draining: %d; want 200", status)
	}
	brief.wait(t).printed(t, "finished\n", "")
	for name, p := range map[string]*pending{"stubborn": stubborn, "obedient": obedient, "trapping": trapping} {
		r := p.wait(t)
		if !r.Aborted || r.TimedOut || r.Cause != "shutdown" || r.Status != "killed" || !strings.HasPrefix(r.Stdout.Text, "up\n") {
			t.Errorf("%s: %s", name, r.raw)
		}
		if want := map[string]string{"stubborn": "SIGKILL", "obedient": "SIGTERM", "trapping": ""}[name]; r.signal() != want {
			t.Errorf("%s: signal %q; want %q", name, r.signal(), want)
		}
		if name == "trapping" && (r.code() != 9 || r.Stdout.Text != "up\ncleaned\n") {
			t.Errorf("the trap: %s", r.raw)
		}
	}
	if err := <-d.done; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	d.checkLog(t)
	d.awaitNoProcess(t, time.Second)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the shutdown took %v; want less than Docker's 10 s, on an idle machine", took)
	}
}

// asInit starts the daemon as PID 1 of a PID namespace, as in a container. It has a uid of
// its own, as this test's processes are none that it can see: with the same uid it
// could not tell them from its commands, and would refuse them.
func asInit(t *testing.T) *daemon {
	t.Helper()
	needsTool(t, "unshare")
	needsTool(t, "setpriv")
	if os.Geteuid() != 0 {
		t.Skip("only root can give the daemon another uid")
	}
	wrapper := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := osexec.Command(wrapper[0], append(wrapper[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no PID namespace can be made here: %v %s", err, out)
	}
	d := launchIn(t, surroundings{wrapper: wrapper, nobody: true})
	t.Cleanup(func() { d.stop(t) })
	return d
}

// caseK04K05: a daemon that is PID 1 inherits every orphan. It reaps them all, and takes
// no run's exit status for an orphan's.
func caseK04K05(t *testing.T, _ *daemon) {
	d := asInit(t)
	d.needsSandbox(t)
	if status := content(procDir(d.pid) + "/status"); !strings.Contains(status, "\t1\n") {
		t.Fatalf("the daemon is not PID 1:\n%s", status)
	}
	var wrong atomic.Int32
	var g errgroup.Group
	g.SetLimit(32)
	run := func(command string, code int) {
		g.Go(func() error {
			r, err := d.quick(in{"command": command})
			if err == nil && (r.code() != code || r.signal() != "") {
				wrong.Add(1)
			}
			return err
		})
	}
	for n := range times(500) {
		if n%5 == 0 {
			run("(sleep 0.2 &); true", 0)
		}
		command := fmt.Sprintf("exit %d", n%256)
		if n%3 == 0 {
			command = "(sleep 0.1 &); " + command
		}
		run(command, n%256)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d exit codes are wrong", n)
	}
	d.await(t, "no zombie is left", func() bool { return zombiesBelow(d.pid) == 0 })
}

func zombiesBelow(pid int) (n int) {
	for _, child := range childrenOf(pid) {
		if _, state := statOf(procDir(child) + "/stat"); state == "Z" {
			n++
		}
		n += zombiesBelow(child)
	}
	return n
}

// caseK06: a burst of processes costs the others nothing, and ends as one.
func caseK06(t *testing.T, _ *daemon) {
	d := start(t)
	up := d.shared() + "/up-k06"
	// A busy machine may need long to fork 300 times; an attempt that ended before shows nothing.
	for limit := 2 * time.Second; ; limit *= 2 {
		run := d.post(t, in{
			"command":     "for i in $(seq 300); do sleep 6306 & done; : >up-k06; wait",
			"sandboxMode": "workspace-write", "timeoutMs": limit.Milliseconds(),
		})
		slowest := d.askUntil(t, run)
		r := run.wait(t)
		r.wasTimedOut(t)
		d.noneAlive(t, "sleep 6306")
		r.tookLess(t, limit+grace+prompt)
		if slowest > prompt {
			t.Errorf("healthz took up to %v meanwhile", slowest)
		}
		if exists(up) {
			break
		}
		if limit > 20*time.Second {
			t.Fatal("300 processes did not come up: this shows nothing")
		}
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

// askUntil asks for the service's health until the run's answer is there, and
// returns how long an answer took at most.
func (d *daemon) askUntil(t *testing.T, run *pending) (slowest time.Duration) {
	t.Helper()
	for {
		select {
		case a := <-run.answer:
			run.answer <- a // for wait
			return slowest
		case <-time.After(50 * time.Millisecond):
			began := time.Now()
			if status, _ := d.request(t, "GET", "/healthz", ""); status != 200 {
				t.Errorf("healthz: %d", status)
			}
			slowest = max(slowest, time.Since(began))
		}
	}
}
