package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// The JSON forms are what the columns "facts" and "spec" hold. Their names are a format on disk: one may
// be added, none renamed or given another meaning without a migration. What has a column of
// its own (id, owner, kind, session, status, the end) is not in them.
//
// Strings are UTF-8; an invalid byte is stored as U+FFFD, which is what the wire shows for it too.

// factsForm is what lists show, and the beginning of the command.
type factsForm struct {
	Command           string      `json:"command"`
	Description       string      `json:"description,omitempty"`
	TimeoutNs         int64       `json:"timeoutNs,omitempty"`
	ExitCode          *int        `json:"exitCode,omitempty"`
	Signal            int         `json:"signal,omitempty"`
	Cause             string      `json:"cause,omitempty"`
	Detail            string      `json:"detail,omitempty"`
	Stdout            streamForm  `json:"stdout,omitzero"`
	Stderr            streamForm  `json:"stderr,omitzero"`
	Sandbox           sandboxForm `json:"sandbox,omitzero"`
	StartedAtUs       int64       `json:"startedAtUs,omitempty"`
	DurationNs        int64       `json:"durationNs,omitempty"`
	DrainIncomplete   bool        `json:"drainIncomplete,omitempty"`
	SurvivorsKilled   int         `json:"survivorsKilled,omitempty"`
	CleanupIncomplete bool        `json:"cleanupIncomplete,omitempty"`
	Usage             usageForm   `json:"usage,omitzero"`
}

type streamForm struct {
	Truncated    bool  `json:"truncated,omitempty"`
	Bytes        int64 `json:"bytes,omitempty"`
	RetainedFrom int64 `json:"retainedFrom,omitempty"`
	HasFile      bool  `json:"hasFile,omitempty"`
}

type sandboxForm struct {
	Mode         string      `json:"mode,omitempty"`
	Enforcement  string      `json:"enforcement,omitempty"`
	Gaps         []string    `json:"gaps,omitempty"`
	Denied       bool        `json:"denied,omitempty"`
	Denial       *denialForm `json:"denial,omitempty"`
	Hint         string      `json:"hint,omitempty"`
	RunnerFailed bool        `json:"runnerFailed,omitempty"`
}

type denialForm struct {
	Path     string `json:"path,omitempty"`
	Evidence string `json:"evidence,omitempty"`
}

type usageForm struct {
	UserNs      int64 `json:"userNs,omitempty"`
	SystemNs    int64 `json:"systemNs,omitempty"`
	MaxRSSBytes int64 `json:"maxRssBytes,omitempty"`
}

// specForm is a Spec, whole but for its owner and session. Of Env it has the names, of stdin the length.
type specForm struct {
	Command        string   `json:"command"`
	Description    string   `json:"description,omitempty"`
	Workdir        string   `json:"workdir,omitempty"`
	TimeoutNs      int64    `json:"timeoutNs,omitempty"`
	HasStdin       bool     `json:"hasStdin,omitempty"`
	StdinBytes     int      `json:"stdinBytes,omitempty"`
	EnvNames       []string `json:"envNames,omitempty"`
	Mode           string   `json:"mode,omitempty"`
	WorkspaceRoot  string   `json:"workspaceRoot,omitempty"`
	StdoutMaxBytes int      `json:"stdoutMaxBytes,omitempty"`
	StderrMaxBytes int      `json:"stderrMaxBytes,omitempty"`
	MergeStderr    bool     `json:"mergeStderr,omitempty"`
	StdinOpen      bool     `json:"stdinOpen,omitempty"`
	Encoding       string   `json:"encoding,omitempty"`
}

// row is what Insert and Settle write of a Run, besides its tails.
type row struct {
	kind, session, status    string
	settled                  bool
	finishedAt               int64
	yieldStdout, yieldStderr *int64
	facts, spec              string
}

func encode(r exec.Record) (row, error) {
	facts, err := marshal(factsOf(r.Run))
	if err != nil {
		return row{}, fmt.Errorf("store: record %s: facts: %w", r.Run.ID, err)
	}
	spec, err := marshal(specOf(r.Run.Spec))
	if err != nil {
		return row{}, fmt.Errorf("store: record %s: spec: %w", r.Run.ID, err)
	}
	w := row{
		kind: string(r.Run.Kind), session: r.Run.Spec.Session, status: string(r.Run.Status),
		settled: r.Run.Status.Terminal(), finishedAt: micros(r.Run.FinishedAt), facts: facts, spec: spec,
	}
	if y := r.Run.Yielded; y != nil {
		w.yieldStdout, w.yieldStderr = &y.Stdout, &y.Stderr
	}
	return w, nil
}

// marshal leaves <, > and & as they are: commands are full of them.
func marshal(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

func factsOf(r exec.Run) factsForm {
	f := factsForm{
		Command: head(r.Spec.Command), Description: r.Spec.Description, TimeoutNs: int64(r.Spec.Timeout),
		ExitCode: r.ExitCode, Signal: int(r.Signal), Cause: string(r.Cause), Detail: r.Detail,
		Stdout: streamOf(r.Stdout), Stderr: streamOf(r.Stderr),
		Sandbox: sandboxForm{
			Mode: string(r.Sandbox.Mode), Enforcement: string(r.Sandbox.Enforcement), Gaps: r.Sandbox.Gaps,
			Denied: r.Sandbox.Denied, Hint: r.Sandbox.Hint, RunnerFailed: r.Sandbox.RunnerFailed,
		},
		StartedAtUs: micros(r.StartedAt), DurationNs: int64(r.Duration), DrainIncomplete: r.DrainIncomplete,
		SurvivorsKilled: r.SurvivorsKilled, CleanupIncomplete: r.CleanupIncomplete,
		Usage: usageForm{int64(r.Usage.User), int64(r.Usage.System), r.Usage.MaxRSSBytes},
	}
	if d := r.Sandbox.Denial; d != nil {
		f.Sandbox.Denial = &denialForm{d.Path, d.Evidence}
	}
	return f
}

func streamOf(s exec.Stream) streamForm {
	return streamForm{s.Truncated, s.Bytes, s.RetainedFrom, s.HasFile}
}

func specOf(s exec.Spec) specForm {
	return specForm{
		Command: s.Command, Description: s.Description, Workdir: s.Workdir, TimeoutNs: int64(s.Timeout),
		HasStdin: s.HasStdin, StdinBytes: s.StdinBytes, EnvNames: slices.Sorted(maps.Keys(s.Env)), Mode: string(s.Mode),
		WorkspaceRoot: s.WorkspaceRoot, StdoutMaxBytes: s.StdoutMaxBytes, StderrMaxBytes: s.StderrMaxBytes,
		MergeStderr: s.MergeStderr, StdinOpen: s.StdinOpen, Encoding: string(s.Encoding),
	}
}

// head is the part of a command that lists have: whole characters.
func head(command string) string {
	if len(command) <= exec.ListedCommandBytes {
		return command
	}
	end := exec.ListedCommandBytes
	for end > exec.ListedCommandBytes-utf8.UTFMax && !utf8.RuneStart(command[end]) {
		end--
	}
	return command[:end]
}

// fill puts what a JSON form of the facts holds into r.
func (f factsForm) fill(r *exec.Run) {
	r.Spec.Command, r.Spec.Description, r.Spec.Timeout = f.Command, f.Description, time.Duration(f.TimeoutNs)
	r.ExitCode, r.Signal, r.Cause, r.Detail = f.ExitCode, syscall.Signal(f.Signal), exec.Cause(f.Cause), f.Detail
	r.Stdout, r.Stderr = f.Stdout.stream(), f.Stderr.stream()
	r.Sandbox = exec.SandboxFacts{
		Mode: sandbox.Mode(f.Sandbox.Mode), Enforcement: sandbox.Enforcement(f.Sandbox.Enforcement), Gaps: f.Sandbox.Gaps,
		Denied: f.Sandbox.Denied, Hint: f.Sandbox.Hint, RunnerFailed: f.Sandbox.RunnerFailed,
	}
	if d := f.Sandbox.Denial; d != nil {
		r.Sandbox.Denial = &exec.Denial{Path: d.Path, Evidence: d.Evidence}
	}
	r.StartedAt, r.Duration = fromMicros(f.StartedAtUs), time.Duration(f.DurationNs)
	r.DrainIncomplete, r.SurvivorsKilled, r.CleanupIncomplete = f.DrainIncomplete, f.SurvivorsKilled, f.CleanupIncomplete
	r.Usage = sandbox.Usage{
		User: time.Duration(f.Usage.UserNs), System: time.Duration(f.Usage.SystemNs), MaxRSSBytes: f.Usage.MaxRSSBytes,
	}
}

func (s streamForm) stream() exec.Stream {
	return exec.Stream{Truncated: s.Truncated, Bytes: s.Bytes, RetainedFrom: s.RetainedFrom, HasFile: s.HasFile}
}

// fill puts what a JSON form of a Spec holds into s, and leaves its owner and session.
func (f specForm) fill(s *exec.Spec) {
	*s = exec.Spec{
		Command: f.Command, Description: f.Description, Workdir: f.Workdir, Session: s.Session, Timeout: time.Duration(f.TimeoutNs),
		HasStdin: f.HasStdin, StdinBytes: f.StdinBytes, Env: withoutValues(f.EnvNames), Mode: sandbox.Mode(f.Mode), Owner: s.Owner,
		WorkspaceRoot: f.WorkspaceRoot, StdoutMaxBytes: f.StdoutMaxBytes, StderrMaxBytes: f.StderrMaxBytes,
		MergeStderr: f.MergeStderr, StdinOpen: f.StdinOpen, Encoding: exec.Encoding(f.Encoding),
	}
}

func withoutValues(names []string) map[string]string {
	env := make(map[string]string, len(names))
	for _, name := range names {
		env[name] = ""
	}
	return env
}

// decodeFacts and decodeSpec fill r from what is stored; the error names the record.
func decodeFacts(stored []byte, r *exec.Run) error {
	var f factsForm
	if err := json.Unmarshal(stored, &f); err != nil {
		return fmt.Errorf("store: record %s: the stored facts are damaged: %w", r.ID, err)
	}
	f.fill(r)
	return nil
}

func decodeSpec(stored []byte, r *exec.Run) error {
	var f specForm
	if err := json.Unmarshal(stored, &f); err != nil {
		return fmt.Errorf("store: record %s: the stored spec is damaged: %w", r.ID, err)
	}
	f.fill(&r.Spec)
	return nil
}

// micros is a time as it is stored: in microseconds, 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
