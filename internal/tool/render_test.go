package tool

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/exec"
)

func exited(code int, stdout, stderr string) exec.Run {
	return exec.Run{
		Spec:     exec.Spec{Timeout: 1500 * time.Millisecond},
		Status:   exec.StatusCompleted,
		ExitCode: &code,
		Stdout:   exec.Stream{Tail: []byte(stdout), Bytes: int64(len(stdout))},
		Stderr:   exec.Stream{Tail: []byte(stderr), Bytes: int64(len(stderr))},
		Sandbox:  exec.SandboxFacts{Mode: "read-only"},
	}
}

func with(r exec.Run, changes ...func(*exec.Run)) exec.Run {
	for _, change := range changes {
		change(&r)
	}
	return r
}

func denied(r *exec.Run)   { r.Sandbox.Denied = true }
func timedOut(r *exec.Run) { r.Cause = exec.CauseTimeout }
func signalled(s syscall.Signal) func(*exec.Run) {
	return func(r *exec.Run) { r.Signal, r.ExitCode = s, nil }
}
func survivors(n int) func(*exec.Run) { return func(r *exec.Run) { r.SurvivorsKilled = n } }
func cutOut(path string) func(*exec.Run) {
	return func(r *exec.Run) { r.Stdout.Truncated, r.Stdout.SpillPath = true, path }
}

func cutErr(path string) func(*exec.Run) {
	return func(r *exec.Run) { r.Stderr.Truncated, r.Stderr.SpillPath = true, path }
}

func TestForeground(t *testing.T) {
	const hint = "[sandbox: escalation available — retry this exact command once with sandbox_permissions (the narrowest wider mode that suffices) + justification; the approval prompt asks the user]"
	for _, c := range []struct {
		name       string
		run        exec.Run
		escalation bool
		want       string
	}{
		{"stdout as it is", exited(0, "hi\n", ""), false, "hi\n"},
		{"no newline is added at the end", exited(0, "hi", ""), false, "hi"},
		{"nothing", exited(0, "", ""), false, "(no output)"},
		{"nothing and a code", exited(3, "", ""), false, "(no output)\n[exit code: 3]"},
		{"lost", with(exited(0, "", ""), func(r *exec.Run) { r.Status, r.ExitCode, r.Detail = exec.StatusFailed, nil, "the server stopped" }), false, "(no output)\n[status: failed, the server stopped]"},
		{"only a newline is output", exited(1, "\n", ""), false, "\n[exit code: 1]"},
		{"stderr alone", exited(0, "", "oops\n"), false, "[stderr]\noops\n"},
		{"both, newline there", exited(0, "a\n", "b\n"), false, "a\n[stderr]\nb\n"},
		{"both, newline missing", exited(0, "a", "b"), false, "a\n[stderr]\nb"},
		{"blank lines are kept", exited(2, "a\n\n", "b\n\n"), false, "a\n\n[stderr]\nb\n\n[exit code: 2]"},
		{"exit code", exited(127, "a", "b"), false, "a\n[stderr]\nb\n[exit code: 127]"},
		{"stdout cut", with(exited(0, "tail\n", ""), cutOut("/s/o")), false, "tail\n[output truncated; full output: /s/o]"},
		{"stdout cut, file gone", with(exited(0, "tail", ""), cutOut("")), false, "tail\n[output truncated; full output: (unavailable)]"},
		{
			"each cut line follows its stream", with(exited(1, "o", "e"), cutOut("/s/o"), cutErr("/s/e")), false,
			"o\n[output truncated; full output: /s/o]\n[stderr]\ne\n[output truncated; full output: /s/e]\n[exit code: 1]",
		},
		{"stderr cut only", with(exited(0, "o\n", "e\n"), cutErr("")), false, "o\n[stderr]\ne\n[output truncated; full output: (unavailable)]"},
		{"denied", with(exited(1, "", "no\n"), denied), false, "[stderr]\nno\n[sandbox: file access denied under read-only mode]\n[exit code: 1]"},
		{"denied, escalation", with(exited(1, "", ""), denied), true, "(no output)\n[sandbox: file access denied under read-only mode]\n" + hint + "\n[exit code: 1]"},
		{"escalation without denial", exited(1, "x", ""), true, "x\n[exit code: 1]"},
		{"timed out and killed", with(exited(0, "p\n", ""), timedOut, signalled(syscall.SIGKILL)), false, "p\n[timed out after 1500ms]\n[killed by signal: SIGKILL]"},
		{"timed out, trap exits 0", with(exited(0, "p\n", ""), timedOut), false, "p\n[timed out after 1500ms]"},
		{"timed out, trap exits 9", with(exited(9, "", ""), timedOut), false, "(no output)\n[timed out after 1500ms]\n[exit code: 9]"},
		{"signal", with(exited(0, "", ""), signalled(syscall.SIGSEGV)), false, "(no output)\n[killed by signal: SIGSEGV]"},
		{"137 is a code", exited(137, "", ""), false, "(no output)\n[exit code: 137]"},
		{"one survivor", with(exited(0, "ok\n", ""), survivors(1)), false, "ok\n[1 background process was stopped when the command ended; use run_in_background to keep a process]"},
		{"survivors", with(exited(0, "ok\n", ""), survivors(12)), false, "ok\n[12 background processes were stopped when the command ended; use run_in_background to keep a process]"},
		{
			"everything, in order",
			with(exited(0, "o", "e"), cutOut("/s/o"), cutErr(""), denied, survivors(2), timedOut, signalled(syscall.SIGTERM)), true,
			strings.Join([]string{
				"o", "[output truncated; full output: /s/o]", "[stderr]", "e", "[output truncated; full output: (unavailable)]",
				"[sandbox: file access denied under read-only mode]", hint,
				"[2 background processes were stopped when the command ended; use run_in_background to keep a process]",
				"[timed out after 1500ms]", "[killed by signal: SIGTERM]",
			}, "\n"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Foreground(c.run, c.escalation); got != c.want {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
		})
	}
}

func TestForegroundReplacesInvalidBytes(t *testing.T) {
	if got := Foreground(exited(0, "a\xffb", "\xfe"), false); got != "a\uFFFDb\n[stderr]\n\uFFFD" {
		t.Errorf("%q", got)
	}
}

func TestSignalName(t *testing.T) {
	for s, want := range map[syscall.Signal]string{
		0: "", syscall.SIGKILL: "SIGKILL", syscall.SIGSYS: "SIGSYS", 32: "SIG32", 34: "SIGRTMIN", 35: "SIGRTMIN+1",
		64: "SIGRTMIN+30", 65: "SIG65",
	} {
		if got := SignalName(s); got != want {
			t.Errorf("%d: %q, want %q", s, got, want)
		}
	}
}
