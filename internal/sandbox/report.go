package sandbox

import "strconv"

// Report tells what this host enforces. It does not change after [New].
type Report struct {
	Tier           string // "C", "C-", or "none"
	ABI            int    // of Landlock; 0: none
	Cleanup        string // how a tree is killed: "domain" or "subreaper"
	ReadOnly       ModeReport
	WorkspaceWrite ModeReport
}

// ModeReport tells how one confined mode is enforced.
type ModeReport struct {
	Enforcement Enforcement // empty when Unavailable
	Gaps        []string    // what is missing from full, see the Gap constants; sorted
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
	return Report{Tier: "none", Cleanup: "subreaper", ReadOnly: no, WorkspaceWrite: no}
}

// Summary is the report in one line, for the log.
func (r Report) Summary() string {
	return "tier " + r.Tier + ", Landlock ABI " + strconv.Itoa(r.ABI) + ", cleanup " + r.Cleanup
}
