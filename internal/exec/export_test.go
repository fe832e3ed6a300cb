package exec

import "time"

// Bounds that tests go to.
const (
	KeyLifetime = keyLifetime
	MaxRecords  = maxRecords
)

// SetStdinPatience changes how long a write to a task's stdin waits. Call it while nobody writes.
func (m *Manager) SetStdinPatience(d time.Duration) { m.stdinPatience = d }

// Sweep does what the janitor does from time to time, as if it were now.
func (m *Manager) Sweep(now time.Time) { m.sweep(now) }

// CatchUp does what the janitor does each second.
func (m *Manager) CatchUp() { m.catchUp() }

// ChmodDir is what the removal of a tree gives directories their mode back with.
var ChmodDir = chmodDir
