package tool

import (
	"fmt"
	"strings"

	"bashd/internal/exec"
	"bashd/internal/output"
)

const escalationHint = "[sandbox: escalation available — retry this exact command once with sandbox_permissions" +
	" (the narrowest wider mode that suffices) + justification; the approval prompt asks the user]"

// Foreground renders a settled foreground run: stdout, stderr under its
// heading, then one line for each fact worth a line, the exit marker last.
// escalation says that an approval could widen the mode, so that a denial
// carries the hint how to ask for it. What the command printed is passed on as
// it is, with or without a newline at its end.
func Foreground(r exec.Run, escalation bool) string {
	var t text
	t.stream(r.Stdout)
	if len(r.Stderr.Tail) > 0 {
		t.line("[stderr]")
		t.stream(r.Stderr)
	}
	if t.b.Len() == 0 {
		t.line("(no output)")
	}
	t.sandbox(r, escalation)
	t.survivors(r.SurvivorsKilled)
	t.end(r)
	return t.b.String()
}

// text collects pieces, each beginning on a line of its own.
type text struct {
	b        strings.Builder
	openLine bool // the last piece did not end its line
}

func (t *text) add(s string) {
	if s == "" {
		return
	}
	if t.openLine {
		t.b.WriteByte('\n')
	}
	t.b.WriteString(s)
	t.openLine = !strings.HasSuffix(s, "\n")
}

func (t *text) line(format string, args ...any) { t.add(fmt.Sprintf(format, args...)) }

func (t *text) stream(s exec.Stream) {
	t.add(output.Text(s.Tail, s.Truncated))
	if s.Truncated {
		path := s.SpillPath
		if path == "" {
			path = "(unavailable)"
		}
		t.line("[output truncated; full output: %s]", path)
	}
}

func (t *text) sandbox(r exec.Run, escalation bool) {
	if !r.Sandbox.Denied {
		return
	}
	t.line("[sandbox: file access denied under %s mode]", r.Sandbox.Mode)
	if escalation {
		t.add(escalationHint)
	}
}

func (t *text) survivors(n int) {
	const rest = "stopped when the command ended; use run_in_background to keep a process]"
	switch {
	case n == 1:
		t.line("[1 background process was %s", rest)
	case n > 1:
		t.line("[%d background processes were %s", n, rest)
	}
}

// end tells how the command ended. A timeout is told besides the exit, since a
// command may survive the signal and exit in its own way.
func (t *text) end(r exec.Run) {
	if r.TimedOut() {
		t.line("[timed out after %dms]", r.Spec.Timeout.Milliseconds())
	}
	switch {
	case r.Status == exec.StatusFailed:
		t.line("[status: %s, %s]", r.Status, r.Detail)
	case r.Signal != 0:
		t.line("[killed by signal: %s]", SignalName(r.Signal))
	case r.ExitCode != nil && *r.ExitCode != 0:
		t.line("[exit code: %d]", *r.ExitCode)
	}
}
