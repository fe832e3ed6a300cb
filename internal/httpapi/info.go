package httpapi

import (
	"cmp"
	"net/http"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

type infoBody struct {
	Version    string           `json:"version"`
	Modes      infoModes        `json:"modes"`
	Approvals  bool             `json:"approvals"`
	ManagedEnv []infoManagedVar `json:"managedEnv"`
	Sandbox    infoSandbox      `json:"sandbox"`
	Limits     infoLimits       `json:"limits"`
}

type infoModes struct {
	Default sandbox.Mode `json:"default"`
	Max     sandbox.Mode `json:"max"`
}

// infoManagedVar has no value: what a managed fact says is for commands.
type infoManagedVar struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

type infoSandbox struct {
	Tier           string   `json:"tier"`
	ABI            int      `json:"abi"`
	Cleanup        string   `json:"cleanup"`
	RunAs          bool     `json:"runAs"`
	ProcessLimit   string   `json:"processLimit"`
	MemoryLimit    bool     `json:"memoryLimit"`
	ReadOnly       infoMode `json:"readOnly"`
	WorkspaceWrite infoMode `json:"workspaceWrite"`
}

type infoMode struct {
	Enforcement sandbox.Enforcement `json:"enforcement,omitempty"`
	Gaps        []string            `json:"gaps,omitempty"`
	Unavailable string              `json:"unavailable,omitempty"`
}

// info is GET /v1/info: what this server is and what it allows.
func (s *Server) info(*http.Request) (reply, error) {
	i := s.o.Runner.Info()
	body := infoBody{
		Version:    s.o.Version,
		Modes:      infoModes{i.DefaultMode, i.MaxMode},
		ManagedEnv: make([]infoManagedVar, len(i.ManagedEnv)),
		Sandbox: infoSandbox{
			Tier:           i.Sandbox.Tier,
			ABI:            i.Sandbox.ABI,
			Cleanup:        i.Sandbox.Cleanup,
			RunAs:          i.Sandbox.RunAs,
			ProcessLimit:   cmp.Or(i.Sandbox.Processes, sandbox.ProcessesUnlimited),
			MemoryLimit:    i.Sandbox.Memory,
			ReadOnly:       infoMode(i.Sandbox.ReadOnly),
			WorkspaceWrite: infoMode(i.Sandbox.WorkspaceWrite),
		},
		Limits: s.encodeLimits(i.Limits),
	}
	for n, v := range i.ManagedEnv {
		body.ManagedEnv[n] = infoManagedVar{v.Name, v.Source}
	}
	return asJSON(http.StatusOK, body), nil
}

// infoLimits are the limits in force: of a request, of a run, of the server.
// Those of a command's processes are absent where there is none.
type infoLimits struct {
	CommandBytes       int    `json:"commandBytes"`
	BodyBytes          int64  `json:"bodyBytes"`
	DefaultTimeoutMs   int64  `json:"defaultTimeoutMs"`
	MaxTimeoutMs       int64  `json:"maxTimeoutMs"`
	GraceMs            int64  `json:"graceMs"`
	DefaultOutputBytes int    `json:"defaultOutputBytes"`
	MaxStdoutBytes     int    `json:"maxStdoutBytes"`
	MaxSpillBytes      int64  `json:"maxSpillBytes"`
	MaxRunning         int    `json:"maxRunning"`
	MaxRunningPerOwner int    `json:"maxRunningPerOwner"`
	MaxTasksPerOwner   int    `json:"maxTasksPerOwner"`
	RetentionMs        int64  `json:"retentionMs"`
	CommandOpenFiles   uint64 `json:"commandOpenFiles,omitempty"`
	CommandFileBytes   uint64 `json:"commandFileBytes,omitempty"`
	CommandCPUSeconds  uint64 `json:"commandCpuSeconds,omitempty"`
	CommandProcesses   uint64 `json:"commandProcesses,omitempty"`
	CommandMemoryBytes uint64 `json:"commandMemoryBytes,omitempty"`
}

func (s *Server) encodeLimits(l exec.Limits) infoLimits {
	return infoLimits{
		CommandBytes:       l.MaxCommandBytes,
		BodyBytes:          s.o.MaxBodyBytes,
		DefaultTimeoutMs:   l.Timeout.Milliseconds(),
		MaxTimeoutMs:       l.MaxTimeout.Milliseconds(),
		GraceMs:            l.Grace.Milliseconds(),
		DefaultOutputBytes: l.MaxOutputBytes,
		MaxStdoutBytes:     exec.MaxStdoutBytes,
		MaxSpillBytes:      l.MaxSpillBytes,
		MaxRunning:         l.MaxRunning,
		MaxRunningPerOwner: l.MaxRunningPerOwner,
		MaxTasksPerOwner:   l.MaxTasksPerOwner,
		RetentionMs:        l.Retention.Milliseconds(),
		CommandOpenFiles:   l.Command.OpenFiles,
		CommandFileBytes:   l.Command.FileBytes,
		CommandCPUSeconds:  l.Command.CPUSeconds,
		CommandProcesses:   l.Command.Processes,
		CommandMemoryBytes: l.Command.MemoryBytes,
	}
}
