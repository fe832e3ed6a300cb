package sandbox

import "strings"

// The tiers, the strongest first. Each comes with Landlock and the system call filter.
const (
	TierNamespaces = "A"  // a file tree, process ids and IPC of the command's own
	TierUser       = "B"  // another user
	TierLandlock   = "C"  // as the daemon's user
	TierOld        = "C-" // the same with a Landlock that does not know truncation
	TierNone       = "none"
)

// The ways to end a command's tree.
const (
	CleanupNamespace = "namespace" // the kernel ends a pid namespace with its first process
	CleanupDomain    = "domain"    // one signal to everything in a Landlock domain
	CleanupSubreaper = "subreaper" // descendants, until none is left
)

// The ways to limit a command's processes.
const (
	ProcessesCgroup    = "cgroup"         // exactly
	ProcessesUserNS    = "user-namespace" // exactly
	ProcessesPidNS     = "pid-namespace"  // the limit and up to 300 more
	ProcessesUser      = "user"           // together with what the user runs besides
	ProcessesUnlimited = "none"           // uid 0 is held to no limit of its user
)

// Report tells what this host enforces. It does not change after [New].
type Report struct {
	Tier           string // see the Tier constants
	ABI            int    // of Landlock; 0: none
	Cleanup        string // how the tree of a confined command is killed, see the Cleanup constants
	RunAs          bool   // commands run as a user of their own
	Processes      string // how their number is limited for confined commands, see the Processes constants
	Memory         bool   // a limit on memory can be enforced
	ReadOnly       ModeReport
	WorkspaceWrite ModeReport
	Stronger       []string // why stronger tiers cannot be used here
}

// ModeReport tells how one confined mode is enforced.
type ModeReport struct {
	Enforcement Enforcement // of what the mode says about files; empty when Unavailable
	Gaps        []string    // what is missing of the whole promise, see the Gap constants; sorted
	Unavailable string      // why commands in this mode are refused; empty: they are not
}

// The gaps, each a part of the promise that is not kept.
const (
	GapCleanup         = "cleanup"          // a process may escape the kill of its tree
	GapCommandLines    = "command-lines"    // other processes' command lines can be read
	GapAbstractSockets = "abstract-sockets" // abstract unix sockets outside can be connected to
	GapDeviceIoctl     = "device-ioctl"     // ioctl on devices that are open for writing
	GapHiddenNames     = "hidden-names"     // names below hidden paths can be listed
	GapHiddenSockets   = "hidden-sockets"   // unix sockets and metadata below hidden paths can be reached
	GapMetadata        = "metadata"         // modes, owners, attributes of files outside can be changed where permissions allow
	GapProcessLimit    = "process-limit"    // the limit on processes is approximate, and none for uid 0
	GapScheduling      = "scheduling"       // priorities and limits of others' processes can be changed where the uid allows
	GapSignals         = "signals"          // processes outside can be signalled where the uid allows
	GapSystemCalls     = "system-calls"     // calls that no command has a business with are not refused
	GapTimestamps      = "timestamps"       // times of files outside can be changed where permissions allow
	GapTruncate        = "truncate"         // files outside can be truncated where permissions allow
)

// Mode returns the part of r that concerns m; full access has none.
func (r Report) Mode(m Mode) ModeReport {
	switch m {
	case ReadOnly:
		return r.ReadOnly
	case WorkspaceWrite:
		return r.WorkspaceWrite
	}
	return ModeReport{}
}

func (r Report) unavailable(m Mode) string { return r.Mode(m).Unavailable }

// unavailable is the report of a host that can confine nothing.
func unavailable(reason string) Report {
	no := ModeReport{Unavailable: reason}
	return Report{Tier: TierNone, Cleanup: CleanupSubreaper, Processes: ProcessesUnlimited, ReadOnly: no, WorkspaceWrite: no}
}

// Summary is the report of a mode in a few words, for the log.
func (r ModeReport) Summary() string {
	switch {
	case r.Unavailable != "":
		return "refused"
	case len(r.Gaps) == 0:
		return string(r.Enforcement)
	}
	return string(r.Enforcement) + " (" + strings.Join(r.Gaps, ", ") + ")"
}
