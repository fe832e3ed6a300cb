package sandbox

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A command must make no file that runs as the user or group that it belongs to: for a bashd that runs as root that
// would be a way to root for every other user of the host, and else one to bashd's own user. Landlock has no
// right for modes, so the filter refuses the bits, in every call that has the mode in a register. Where it is in
// memory, out of a filter's sight, the whole call is refused like one that the kernel does not know.

// setID are the bits of a mode that make a program run as its file's owner or group.
const setID = unix.S_ISUID | unix.S_ISGID

// modeCall is a system call whose argument arg is a mode.
type modeCall struct{ number, arg uint32 }

// modeCalls are those of every architecture; archModeCalls those that only older ones have.
var modeCalls = append([]modeCall{
	{unix.SYS_FCHMOD, 1},
	{unix.SYS_FCHMODAT, 2},
	{unix.SYS_FCHMODAT2, 2},
	{unix.SYS_MKNODAT, 2},
}, archModeCalls...)

// openCall is a system call whose argument arg is a mode only where its argument flags says that a file is made; else
// anything can be in that register.
type openCall struct{ number, flags, arg uint32 }

var openCalls = append([]openCall{{unix.SYS_OPENAT, 2, 3}}, archOpenCalls...)

// unseenCalls have the mode in memory, or do calls that no filter sees.
var unseenCalls = []uint32{unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP}

// makesFile are the flags of an open that make its mode count. O_TMPFILE holds O_DIRECTORY, which alone makes nothing.
const makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// noSetID refuses what would make a file with one of the bits.
func noSetID(refuse, unknown bpf.Instruction) (prog []bpf.Instruction) {
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	mode := func(arg uint32) []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: dataArgs + 8*arg, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: setID, SkipTrue: 1},
			refuse,
			allow,
		}
	}
	for _, c := range modeCalls {
		prog = append(prog, onlyFor(c.number, mode(c.arg))...)
	}
	for _, c := range openCalls {
		prog = append(prog, onlyFor(c.number, slices.Concat([]bpf.Instruction{
			bpf.LoadAbsolute{Off: dataArgs + 8*c.flags, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: makesFile, SkipTrue: 1},
			allow,
		}, mode(c.arg)))...)
	}
	for _, number := range unseenCalls {
		prog = append(prog, onlyFor(number, []bpf.Instruction{unknown})...)
	}
	return prog
}
