package exec

import (
	"fmt"

	"bashd/internal/sandbox"
)

// stampSandbox puts what is known of the confinement into r: how far it was
// enforced, and whether it is why the command failed.
func (m *Manager) stampSandbox(j *job, r *Run, runnerFailed bool) {
	report := m.set.Sandbox.Report().Mode(j.spec.Mode)
	r.Sandbox = SandboxFacts{Mode: j.spec.Mode, Enforcement: report.Enforcement, Gaps: report.Gaps, RunnerFailed: runnerFailed}
	if r.Status == StatusFailed || r.ExitCode == nil {
		return // a signal or a lost runner is never a denial
	}
	stderr := r.Stderr.Tail
	if j.spec.MergeStderr {
		stderr = r.Stdout.Tail
	}
	found, denied := m.set.Sandbox.Denied(j.policy, j.spec.Workdir, *r.ExitCode, false, stderr)
	if !denied {
		return
	}
	r.Sandbox.Denied = true
	r.Sandbox.Denial = &Denial{found.Path, found.Evidence}
	r.Sandbox.Hint = m.hint(j, found.Path)
}

// hint names the narrowest wider mode that would have allowed it, if the
// caller may choose that.
func (m *Manager) hint(j *job, path string) string {
	wider := sandbox.FullAccess
	if j.spec.Mode == sandbox.ReadOnly && j.policy.Holds(path) {
		wider = sandbox.WorkspaceWrite
	}
	if wider.WiderThan(m.set.MaxMode) {
		return ""
	}
	return fmt.Sprintf("sandboxMode %q is allowed", wider)
}

// measure tells the metrics about a settled command.
func (m *Manager) measure(r Run) {
	mode, met := string(r.Spec.Mode), m.set.Metrics
	met.RunFinished(string(r.Kind), mode, metricOutcome(r), r.Duration)
	met.SurvivorsKilled(r.SurvivorsKilled)
	if r.TimedOut() {
		met.TimedOut(string(r.Kind))
	}
	if r.Sandbox.Denied {
		met.Denied(mode)
	}
}

// metricOutcome folds the facts into the one label of bashd_runs_total.
func metricOutcome(r Run) string {
	switch {
	case r.TimedOut():
		return "timed_out"
	case r.Aborted():
		return "aborted"
	}
	return string(r.Status)
}
