package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// prompt is "at once" on a busy machine under the race detector. What it tells
// it from, a wait for a process left behind, takes 20 s and more.
const prompt = 6 * time.Second

// grace is the default of BASHD_GRACE_MS.
const grace = 3 * time.Second

// exited checks that a run ended by itself with that code and nothing cut it short.
func (r result) exited(tb testing.TB, code int) {
	tb.Helper()
	if r.Status != "completed" || r.code() != code || r.Signal != nil || r.TimedOut || r.Aborted || r.Cause != "" {
		tb.Errorf("status %s, exitCode %d, signal %q, timedOut %t, aborted %t, cause %q; want a plain exit with %d\n%.1000s",
			r.Status, r.code(), r.signal(), r.TimedOut, r.Aborted, r.Cause, code, r.raw)
	}
}

// printed checks both streams, which must be complete.
func (r result) printed(tb testing.TB, stdout, stderr string) {
	tb.Helper()
	for _, s := range []struct {
		name string
		got  stream
		want string
	}{{"stdout", r.Stdout, stdout}, {"stderr", r.Stderr, stderr}} {
		if s.got.Text != s.want || s.got.Truncated || s.got.SpillPath != "" || s.got.URL != "" {
			tb.Errorf("%s: %.300q, truncated %t, spillPath %q; want %.300q, complete", s.name, s.got.Text, s.got.Truncated, s.got.SpillPath, s.want)
		}
	}
}

// wasTimedOut checks that the run's own timeout ended it, and only that.
func (r result) wasTimedOut(tb testing.TB) {
	tb.Helper()
	if r.Status != "killed" || !r.TimedOut || r.Aborted || r.Cause != "timeout" {
		tb.Errorf("status %s, timedOut %t, aborted %t, cause %q; want a timeout\n%.1000s", r.Status, r.TimedOut, r.Aborted, r.Cause, r.raw)
	}
}

// tookLess checks how long the caller waited.
func (r result) tookLess(tb testing.TB, limit time.Duration) {
	tb.Helper()
	if r.took >= limit {
		tb.Errorf("the answer took %v; want less than %v", r.took, limit)
	}
}

// namedCase is one case of a group; the daemon is the group's.
type namedCase struct {
	id  string
	run func(*testing.T, *daemon)
}

func (d *daemon) inParallel(t *testing.T, cases []namedCase) {
	for _, c := range cases {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			c.run(t, d)
		})
	}
}

// TestCasesA is about what a command leaves in the background: it holds up
// neither the answer nor the next command, and does not outlive the run.
func TestCasesA(t *testing.T) {
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"A01", caseA01},
		{"A01 task", caseA01Task},
		{"A02", caseA02},
		{"A03", caseA03},
		{"A04", caseA04},
		{"A05", caseA05},
		{"A06", caseA06},
		{"A07", caseA07},
		{"A08", caseA08},
		{"A09", caseA09},
	})
}

func caseA01(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "sleep 6001 & echo done", "timeoutMs": 20000})
	r.exited(t, 0)
	r.printed(t, "done\n", "")
	r.tookLess(t, prompt)
	if r.SurvivorsKilled != 1 {
		t.Errorf("survivorsKilled %d; want 1", r.SurvivorsKilled)
	}
	d.noneAlive(t, "sleep 6001")
}

// caseA01Task: nothing outlives a task either, whoever holds its pipes.
func caseA01Task(t *testing.T, d *daemon) {
	began := time.Now()
	k := d.task(t, in{"command": "sleep 60011 & setsid sleep 60011 >/dev/null & (setsid sh -c 'sleep 60011; true' &); echo done"})
	end := d.waitTask(t, k.ID)
	d.noneAlive(t, "sleep 60011")
	end.exited(t, 0)
	if took := time.Since(began); took > prompt || end.SurvivorsKilled < 3 {
		t.Errorf("it took %v, survivorsKilled %d; want at least 3", took, end.SurvivorsKilled)
	}
	d.printedInAll(t, k.ID, "done\n", "")
}

func caseA02(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "(for i in $(seq 100); do echo tick; sleep 0.1; done) & echo fg", "timeoutMs": 20000})
	r.exited(t, 0)
	r.tookLess(t, 3*time.Second) // the ticks go on for 10
	if n := strings.Count(r.Stdout.Text, "fg\n"); n != 1 {
		t.Errorf("stdout %q has fg %d times; want it once", r.Stdout.Text, n)
	}
	if rest := strings.ReplaceAll(strings.Replace(r.Stdout.Text, "fg\n", "", 1), "tick\n", ""); rest != "" {
		t.Errorf("stdout %q is not ticks and fg", r.Stdout.Text)
	}
	if !r.DrainIncomplete || r.SurvivorsKilled == 0 {
		t.Errorf("drainIncomplete %t, survivorsKilled %d; want the cut told", r.DrainIncomplete, r.SurvivorsKilled)
	}
	d.noneAlive(t, "echo tick")
}

func caseA03(t *testing.T, _ *daemon) {
	own := launch(t)
	t.Cleanup(func() {
		began := time.Now()
		own.stop(t)
		if took := time.Since(began); took > prompt {
			t.Errorf("the shutdown took %v", took)
		}
	})
	r := own.run(t, in{"command": "setsid sleep 6003 & disown; echo ok", "timeoutMs": 20000})
	r.exited(t, 0)
	r.printed(t, "ok\n", "")
	r.tookLess(t, prompt)
	own.noneAlive(t, "sleep 6003")
}

func caseA04(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "(setsid sh -c 'sleep 6004; true' &); echo ok", "timeoutMs": 20000})
	r.exited(t, 0)
	r.printed(t, "ok\n", "")
	r.tookLess(t, prompt)
	if r.SurvivorsKilled == 0 {
		t.Error("survivorsKilled 0: a double fork was not seen")
	}
	d.noneAlive(t, "sleep 6004")
}

func caseA05(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "{ sleep 3; echo late; } & echo early", "timeoutMs": 20000})
	r.exited(t, 0)
	if r.Stdout.Text != "early\n" && r.Stdout.Text != "early\nlate\n" {
		t.Errorf("stdout %q", r.Stdout.Text)
	}
	r.tookLess(t, prompt)
}

func caseA06(t *testing.T, d *daemon) {
	r := d.sh(t, "sleep 0.3 >/dev/null 2>&1 & wait; echo $-")
	r.exited(t, 0)
	if r.Stderr.Bytes != 0 {
		t.Errorf("stderr %q; want no job notices", r.Stderr.Text)
	}
	if flags := strings.TrimSpace(r.Stdout.Text); flags == "" || strings.ContainsAny(flags, "im") {
		t.Errorf("$- is %q; want neither i nor m", flags)
	}
	if r.SurvivorsKilled != 0 || r.DrainIncomplete {
		t.Errorf("survivorsKilled %d, drainIncomplete %t after a wait; want none", r.SurvivorsKilled, r.DrainIncomplete)
	}
}

func caseA07(t *testing.T, d *daemon) {
	first := d.sh(t, "sleep 6007 >/dev/null 2>&1 & echo $!")
	first.exited(t, 0)
	if first.SurvivorsKilled != 1 {
		t.Errorf("survivorsKilled %d; want 1: the caller has to learn of it", first.SurvivorsKilled)
	}
	// A confined command may not even ask about others, so the host is asked too; and where each has a pid namespace of its own, the
	// number may be that of the second command's shell.
	d.noneAlive(t, "sleep 6007")
	pid := strings.TrimSpace(first.Stdout.Text)
	d.sh(t, "[ "+pid+" != $$ ] && kill -0 "+pid+" 2>/dev/null && echo alive || echo dead").printed(t, "dead\n", "")
}

func caseA08(t *testing.T, d *daemon) {
	var runs []*pending
	for i, shape := range []string{"sleep %d", "sleep %d; true", "sleep %d & wait", "(sleep %d)", "sleep %d | cat"} {
		runs = append(runs, d.post(t, in{"command": fmt.Sprintf(shape, 60080+i), "timeoutMs": 1000}))
	}
	for _, p := range runs {
		r := p.wait(t)
		r.wasTimedOut(t)
		r.tookLess(t, time.Second+grace)
		if r.ExitCode != nil || r.signal() != "SIGTERM" || r.TimeoutMs != 1000 {
			t.Errorf("%v: exitCode %d, signal %q, timeoutMs %d; want SIGTERM after 1000", r.Spec["command"], r.code(), r.signal(), r.TimeoutMs)
		}
	}
	d.noneAlive(t, "sleep 6008")
}

func caseA09(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": `head -c 1000000 /dev/zero | tr '\0' a; echo END >&2`, "timeoutMs": 10000})
	r.exited(t, 0)
	r.tookLess(t, prompt)
	if r.Stderr.Text != "END\n" {
		t.Errorf("stderr %q", r.Stderr.Text)
	}
	if r.Stdout.Bytes != 1000000 || !r.Stdout.Truncated || r.Stdout.Text != strings.Repeat("a", 64000) {
		t.Errorf("stdout: %d bytes, truncated %t, %d in the text", r.Stdout.Bytes, r.Stdout.Truncated, len(r.Stdout.Text))
	}
}
