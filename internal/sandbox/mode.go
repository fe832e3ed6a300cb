package sandbox

import "slices"

// Mode says what files a command may write. It says nothing about the network.
type Mode string

// The modes, from the narrowest to the widest.
const (
	ReadOnly       Mode = "read-only"          // nothing but its private temporary directory
	WorkspaceWrite Mode = "workspace-write"    // also below the workspace root
	FullAccess     Mode = "danger-full-access" // not confined
)

var modes = []Mode{ReadOnly, WorkspaceWrite, FullAccess}

// Modes lists all modes, the narrowest first.
func Modes() []Mode { return slices.Clone(modes) }

// ParseMode returns the mode of that exact name.
func ParseMode(s string) (Mode, bool) {
	m := Mode(s)
	return m, slices.Contains(modes, m)
}

// Confined reports that commands under m are confined.
func (m Mode) Confined() bool { return m != FullAccess }

// WiderThan reports that m allows strictly more than n.
func (m Mode) WiderThan(n Mode) bool { return slices.Index(modes, m) > slices.Index(modes, n) }

// Enforcement says how completely a confined mode is enforced on this host.
type Enforcement string

// The enforcements. Partial comes with gaps that say what is missing.
const (
	Full    Enforcement = "full"
	Partial Enforcement = "partial"
)
