package httpapi

import (
	"encoding/base64"
	"maps"
	"slices"
	"time"

	"bashd/internal/exec"
	"bashd/internal/output"
	"bashd/internal/sandbox"
	"bashd/internal/tool"
)

const (
	timeFormat       = "2006-01-02T15:04:05.000Z"
	maxListedCommand = 4 << 10
)

// runBody is a run as the wire has it. Only exitCode and signal are ever null;
// what else has no value is absent.
type runBody struct {
	ID               string      `json:"id"`
	Status           exec.Status `json:"status"`
	ExitCode         *int        `json:"exitCode"`
	Signal           *string     `json:"signal"`
	TimedOut         bool        `json:"timedOut"`
	Aborted          bool        `json:"aborted"`
	TimeoutMs        int64       `json:"timeoutMs"`
	Stdout           streamBody  `json:"stdout"`
	Stderr           streamBody  `json:"stderr"`
	Sandbox          sandboxBody `json:"sandbox"`
	Spec             *specBody   `json:"spec,omitempty"`
	Command          string      `json:"command,omitempty"`
	CommandTruncated bool        `json:"commandTruncated,omitempty"`
	Cause            exec.Cause  `json:"cause,omitempty"`
	Detail           string      `json:"detail,omitempty"`
	DrainIncomplete  bool        `json:"drainIncomplete,omitempty"`
	StartedAt        string      `json:"startedAt"`
	FinishedAt       string      `json:"finishedAt,omitempty"`
	DurationMs       *int64      `json:"durationMs,omitempty"`
	SurvivorsKilled  int         `json:"survivorsKilled"`
	Usage            *usageBody  `json:"usage,omitempty"`
	Unrecorded       bool        `json:"unrecorded,omitempty"`
}

type streamBody struct {
	Text       *string `json:"text,omitempty"`
	DataBase64 *string `json:"dataBase64,omitempty"`
	Truncated  bool    `json:"truncated"`
	Bytes      int64   `json:"bytes"`
	SpillPath  string  `json:"spillPath,omitempty"`
	URL        string  `json:"url,omitempty"`
}

type sandboxBody struct {
	Mode         sandbox.Mode        `json:"mode"`
	Denied       bool                `json:"denied"`
	Enforcement  sandbox.Enforcement `json:"enforcement,omitempty"`
	Gaps         []string            `json:"gaps,omitempty"`
	Denial       *denialBody         `json:"denial,omitempty"`
	Hint         string              `json:"hint,omitempty"`
	RunnerFailed bool                `json:"runnerFailed,omitempty"`
}

type denialBody struct {
	Path     string `json:"path"`
	Evidence string `json:"evidence"`
}

// specBody shows what ran, with the names of env but no value, and of stdin
// only the length.
type specBody struct {
	Command        string        `json:"command"`
	Description    string        `json:"description,omitempty"`
	Workdir        string        `json:"workdir"`
	Session        string        `json:"session,omitempty"`
	TimeoutMs      int64         `json:"timeoutMs,omitempty"`
	StdoutMaxBytes int           `json:"stdoutMaxBytes"`
	StderrMaxBytes int           `json:"stderrMaxBytes"`
	SandboxMode    sandbox.Mode  `json:"sandboxMode"`
	WorkspaceRoot  string        `json:"workspaceRoot"`
	EnvNames       []string      `json:"envNames,omitempty"`
	StdinBytes     *int          `json:"stdinBytes,omitempty"`
	StdinOpen      bool          `json:"stdinOpen,omitempty"`
	MergeStderr    bool          `json:"mergeStderr"`
	OutputEncoding exec.Encoding `json:"outputEncoding"`
}

type usageBody struct {
	UserMs      int64 `json:"userMs"`
	SystemMs    int64 `json:"systemMs"`
	MaxRSSBytes int64 `json:"maxRssBytes"`
}

// encodeRun is the whole of a run.
func encodeRun(r exec.Run) runBody {
	b := encodeFacts(r)
	b.Stdout.setData(r.Stdout, r.Spec.Encoding)
	b.Stderr.setData(r.Stderr, r.Spec.Encoding)
	b.Spec = encodeSpec(r.Spec)
	return b
}

// encodeListedRun is a run as lists have it: without output and spec, with
// the beginning of the command.
func encodeListedRun(r exec.Run) runBody {
	b := encodeFacts(r)
	b.Command, b.CommandTruncated = listedCommand(r.Spec.Command)
	return b
}

// listedCommand is the beginning of a command.
func listedCommand(command string) (shown string, truncated bool) {
	if len(command) <= maxListedCommand {
		return command, false
	}
	return command[:runeStart(command, maxListedCommand)], true
}

func encodeFacts(r exec.Run) runBody {
	b := runBody{
		ID:              r.ID,
		Status:          r.Status,
		ExitCode:        r.ExitCode,
		TimedOut:        r.TimedOut(),
		Aborted:         r.Aborted(),
		TimeoutMs:       r.Spec.Timeout.Milliseconds(),
		Stdout:          encodeStream(r.ID, "stdout", r.Stdout),
		Stderr:          encodeStream(r.ID, "stderr", r.Stderr),
		Sandbox:         encodeSandbox(r),
		Cause:           r.Cause,
		Detail:          r.Detail,
		DrainIncomplete: r.DrainIncomplete,
		StartedAt:       encodeTime(r.StartedAt),
		SurvivorsKilled: r.SurvivorsKilled,
		Signal:          encodeSignal(r),
		Unrecorded:      r.Unrecorded,
	}
	if !r.FinishedAt.IsZero() {
		b.FinishedAt = encodeTime(r.FinishedAt)
		b.DurationMs = new(r.Duration.Milliseconds())
		b.Usage = encodeUsage(r)
	}
	return b
}

// encodeSignal is nil, which is null, where no signal ended the command.
func encodeSignal(r exec.Run) *string {
	if r.Signal == 0 {
		return nil
	}
	return new(tool.SignalName(r.Signal))
}

func encodeUsage(r exec.Run) *usageBody {
	return &usageBody{r.Usage.User.Milliseconds(), r.Usage.System.Milliseconds(), r.Usage.MaxRSSBytes}
}

func encodeStream(id, name string, s exec.Stream) streamBody {
	b := streamBody{Truncated: s.Truncated, Bytes: s.Bytes, SpillPath: s.SpillPath}
	if s.SpillPath != "" {
		b.URL = "/v1/runs/" + id + "/streams/" + name
	}
	return b
}

func (b *streamBody) setData(s exec.Stream, e exec.Encoding) {
	if e == exec.EncodingBase64 {
		b.DataBase64 = new(base64.StdEncoding.EncodeToString(s.Tail))
		return
	}
	b.Text = new(output.Text(s.Tail, s.Truncated))
}

// encodeSandbox tells a tree that could not be proven empty as the gap that it is.
func encodeSandbox(r exec.Run) sandboxBody {
	f := r.Sandbox
	b := sandboxBody{Mode: f.Mode, Denied: f.Denied, Enforcement: f.Enforcement, Gaps: f.Gaps, Hint: f.Hint, RunnerFailed: f.RunnerFailed}
	if r.CleanupIncomplete && !slices.Contains(b.Gaps, "cleanup") {
		b.Gaps = append(slices.Clone(b.Gaps), "cleanup")
	}
	if f.Denial != nil {
		b.Denial = &denialBody{f.Denial.Path, f.Denial.Evidence}
	}
	return b
}

func encodeSpec(s exec.Spec) *specBody {
	b := &specBody{
		Command:        s.Command,
		Description:    s.Description,
		Workdir:        s.Workdir,
		Session:        s.Session,
		TimeoutMs:      s.Timeout.Milliseconds(),
		StdoutMaxBytes: s.StdoutMaxBytes,
		StderrMaxBytes: s.StderrMaxBytes,
		SandboxMode:    s.Mode,
		WorkspaceRoot:  s.WorkspaceRoot,
		EnvNames:       slices.Sorted(maps.Keys(s.Env)),
		StdinOpen:      s.StdinOpen,
		MergeStderr:    s.MergeStderr,
		OutputEncoding: s.Encoding,
	}
	if s.HasStdin {
		b.StdinBytes = new(s.StdinBytes)
	}
	return b
}

// encodeTime always has three digits of fraction, so that times sort as text.
func encodeTime(t time.Time) string { return t.UTC().Format(timeFormat) }
