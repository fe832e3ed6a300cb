package httpapi

import "bashd/internal/exec"

// taskBody is a task as the wire has it. Only exitCode and signal are ever null; what else has no
// value is absent, and what is known only at the end is absent until then.
type taskBody struct {
	ID               string         `json:"id"`
	Status           exec.Status    `json:"status"`
	ExitCode         *int           `json:"exitCode"`
	Signal           *string        `json:"signal"`
	TimedOut         bool           `json:"timedOut,omitempty"`
	Cause            exec.Cause     `json:"cause,omitempty"`
	Command          string         `json:"command"`
	CommandTruncated bool           `json:"commandTruncated,omitempty"`
	Description      string         `json:"description,omitempty"`
	Session          string         `json:"session,omitempty"`
	Detail           string         `json:"detail,omitempty"`
	Stdout           taskStreamBody `json:"stdout"`
	Stderr           taskStreamBody `json:"stderr"`
	Sandbox          *sandboxBody   `json:"sandbox,omitempty"`
	Spec             *specBody      `json:"spec,omitempty"`
	DrainIncomplete  bool           `json:"drainIncomplete,omitempty"`
	StartedAt        string         `json:"startedAt"`
	FinishedAt       string         `json:"finishedAt,omitempty"`
	DurationMs       *int64         `json:"durationMs,omitempty"`
	SurvivorsKilled  *int           `json:"survivorsKilled,omitempty"`
	Usage            *usageBody     `json:"usage,omitempty"`
	Unrecorded       bool           `json:"unrecorded,omitempty"`
}

type taskStreamBody struct {
	Bytes        int64  `json:"bytes"`
	RetainedFrom int64  `json:"retainedFrom"`
	SpillPath    string `json:"spillPath,omitempty"`
	URL          string `json:"url"`
}

func taskPath(id string) string { return "/v1/tasks/" + id }

// encodeTask is the whole of a task.
func encodeTask(r exec.Run) taskBody {
	b := encodeListedTask(r)
	b.Command, b.CommandTruncated = r.Spec.Command, false
	b.Spec = encodeSpec(r.Spec)
	return b
}

// encodeListedTask is a task as lists and pages of output have it: without spec, with the beginning
// of the command.
func encodeListedTask(r exec.Run) taskBody {
	b := taskBody{
		ID:              r.ID,
		Status:          r.Status,
		ExitCode:        r.ExitCode,
		Signal:          encodeSignal(r),
		TimedOut:        r.TimedOut(),
		Cause:           r.Cause,
		Description:     r.Spec.Description,
		Session:         r.Spec.Session,
		Detail:          r.Detail,
		Stdout:          encodeTaskStream(r.ID, "stdout", r.Stdout),
		Stderr:          encodeTaskStream(r.ID, "stderr", r.Stderr),
		DrainIncomplete: r.DrainIncomplete,
		StartedAt:       encodeTime(r.StartedAt),
		Unrecorded:      r.Unrecorded,
	}
	b.Command, b.CommandTruncated = listedCommand(r.Spec.Command)
	if r.Status.Terminal() {
		b.Sandbox = new(encodeSandbox(r))
		b.FinishedAt = encodeTime(r.FinishedAt)
		b.DurationMs = new(r.Duration.Milliseconds())
		b.SurvivorsKilled = new(r.SurvivorsKilled)
		b.Usage = encodeUsage(r)
	}
	return b
}

func encodeTaskStream(id, name string, s exec.Stream) taskStreamBody {
	return taskStreamBody{Bytes: s.Bytes, RetainedFrom: s.RetainedFrom, SpillPath: s.SpillPath, URL: taskPath(id) + "/streams/" + name}
}
