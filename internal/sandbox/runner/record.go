package runner

import (
	"encoding/binary"
	"syscall"
)

// Kind says what a [Record] reports.
type Kind byte

// The kinds, in the order in which a runner sends them: after a Setup, Ready or Failed. After a Job, Exec or Failed; after
// Exec, Exited, then Gone, then Ready unless it ends.
const (
	KindExec   Kind = 'X' // the command's program was executed
	KindFailed Kind = 'F' // it was not; A is the Stage, B the errno
	KindExited Kind = 'E' // the shell ended; A is its wait status, B is 1 if nothing else was left, C is 1 if an order was carried out before
	KindGone   Kind = 'G' // nothing is left; A counts survivors killed, B user µs, C system µs, D the largest resident set in KiB
	KindReady  Kind = 'R' // the runner waits for a job, after its Setup or after another one
)

// RecordSize is the size of an encoded Record.
const RecordSize = 33

// Record is one message of a runner to the daemon. These, and nothing that a
// command can print or return, are what the daemon believes.
type Record struct {
	Kind       Kind
	A, B, C, D uint64
}

// Append appends the encoding of r to b.
func (r Record) Append(b []byte) []byte {
	b = append(b, byte(r.Kind))
	for _, v := range [...]uint64{r.A, r.B, r.C, r.D} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// ParseRecord is the inverse of [Record.Append].
func ParseRecord(b []byte) (Record, bool) {
	if len(b) != RecordSize {
		return Record{}, false
	}
	le := binary.LittleEndian
	return Record{Kind(b[0]), le.Uint64(b[1:]), le.Uint64(b[9:]), le.Uint64(b[17:]), le.Uint64(b[25:])}, true
}

// OrderSize is the size of an order on the pipe: its byte, then the Sequence of the job that
// it is for, little-endian. An order for a job that has ended is ignored.
const OrderSize = 5

// The orders that a daemon sends to a runner.
const (
	OrderTerminate byte = 'T' // SIGTERM and SIGCONT to everything, once
	OrderKill      byte = 'K' // SIGKILL to everything, until nothing is left
)

// Stage names the step at which a start failed.
type Stage byte

// The stages, those of the list in its order, then those of namespaces and of the user.
const (
	StageJob Stage = iota + 1
	StageClone
	StageSweeper
	StageSession
	StageStdio
	StageWorkdir
	StagePriority
	StageLimits
	StageCapabilities
	StageNoNewPrivs
	StageLandlock
	StageDescriptors
	StageSignals
	StageFilter
	StageExec
	StageMounts
	StageDevices
	StageMasks
	StageProc
	StageTemp
	StageRoots
	StageUser
)

var stageNames = [...]string{
	StageJob: "job", StageClone: "clone", StageSweeper: "sweeper", StageSession: "session", StageStdio: "stdio",
	StageWorkdir: "workdir", StagePriority: "priority", StageLimits: "limits", StageCapabilities: "capabilities",
	StageNoNewPrivs: "no-new-privs", StageLandlock: "landlock", StageDescriptors: "descriptors", StageSignals: "signals", StageFilter: "seccomp", StageExec: "exec",
	StageMounts: "mounts", StageDevices: "devices", StageMasks: "masks", StageProc: "proc", StageTemp: "temp", StageRoots: "roots", StageUser: "user",
}

// String is the stage's name as it appears in problems.
func (s Stage) String() string {
	if int(s) < len(stageNames) && stageNames[s] != "" {
		return stageNames[s]
	}
	return "unknown"
}

// StartError says that a command did not run, and which step refused.
type StartError struct {
	Stage Stage
	Errno syscall.Errno
}

// Error names the step and the error.
func (e *StartError) Error() string { return e.Stage.String() + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *StartError) Unwrap() error { return e.Errno }
