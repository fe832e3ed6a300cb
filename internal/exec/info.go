package exec

import (
	"fmt"
	"time"

	"bashd/internal/sandbox"
)

// Info tells what callers may know of the configuration.
func (m *Manager) Info() Info {
	vars := []ManagedVar{}
	for _, v := range m.managed {
		vars = append(vars, ManagedVar{Name: v.Name, Source: v.Source})
	}
	vars = append(vars, ManagedVar{Name: "DSH_TASK_ID", Source: "built-in"})
	return Info{
		DefaultMode: m.set.DefaultMode, MaxMode: m.set.MaxMode, ManagedEnv: vars,
		Sandbox: m.set.Sandbox.Report(),
		Limits: Limits{
			Timeout: m.set.Timeout, MaxTimeout: m.set.MaxTimeout, Grace: m.set.Grace,
			MaxCommandBytes: MaxCommandBytes, MaxOutputBytes: m.set.MaxOutputBytes, MaxSpillBytes: m.set.MaxSpillBytes,
			MaxRunning: m.set.MaxRunning, MaxRunningPerOwner: m.perOwner(), MaxTasksPerOwner: m.set.MaxTasksPerOwner,
			Retention: m.set.Retention,
			Command:   m.set.Sandbox.Limits(),
		},
	}
}

// Info is what callers may know of the configuration. It has no values of
// managed variables.
type Info struct {
	DefaultMode, MaxMode sandbox.Mode
	ManagedEnv           []ManagedVar
	Sandbox              sandbox.Report
	Limits               Limits
}

// Limits are the bounds in force.
type Limits struct {
	Timeout, MaxTimeout, Grace     time.Duration
	MaxCommandBytes                int
	MaxOutputBytes                 int
	MaxSpillBytes                  int64
	MaxRunning, MaxRunningPerOwner int
	MaxTasksPerOwner               int // an owner and session
	Retention                      time.Duration
	Command                        sandbox.Limits
}

// Ready lists reasons why work cannot be taken; none: ready.
func (m *Manager) Ready() []string {
	var reasons []string
	m.mu.Lock()
	if m.draining {
		reasons = append(reasons, "draining: the server is shutting down")
	}
	m.mu.Unlock()
	if why := m.set.Sandbox.Report().Mode(m.set.DefaultMode).Unavailable; why != "" {
		reasons = append(reasons, fmt.Sprintf("sandbox: the default mode %s cannot be enforced: %s", m.set.DefaultMode, why))
	}
	if why := m.archive.trouble(); why != "" {
		reasons = append(reasons, "store: "+why)
	}
	return reasons
}
