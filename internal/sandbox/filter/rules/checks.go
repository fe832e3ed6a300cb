package rules

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// check is what becomes of a call: instructions that end in a return on every path. Checks of one name are one
// check, and are in the program once.
type check struct {
	name string
	code []bpf.Instruction
}

// Offsets into struct seccomp_data. Both architectures are little-endian: the lower half of an argument comes first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16 // eight bytes each
)

var (
	allow  = check{"allow", []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}}}
	refuse = fail(unix.EPERM)
	absent = fail(unix.ENOSYS)
	noTTY  = fail(unix.ENOTTY)
)

func fail(errno unix.Errno) check {
	name := fmt.Sprintf("fail with %s", unix.ErrnoName(errno))
	return check{name, []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}}}
}

// ret is the return of a check that is nothing else.
func (c check) ret() bpf.Instruction { return c.code[0] }

// low loads the lower half of an argument. The kernel takes pids, modes, commands and most flags from there: what is in the upper
// half says nothing, and a filter that looks at it can be told lies.
func low(arg uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: dataArgs + 8*arg, Size: 4} }

// high loads the upper half, which counts in pointers and in what the kernel takes as a long.
func high(arg uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: dataArgs + 8*arg + 4, Size: 4} }

// unless returns r unless the condition on what was loaded holds.
func unless(cond bpf.JumpTest, val uint32, r check) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: cond, Val: val, SkipTrue: 1}, r.ret()}
}

// oneOf returns r where what was loaded is one of the values.
func oneOf(values []uint32, r check) (code []bpf.Instruction) {
	for i, v := range values {
		jump := bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - 1 - i)}
		if i == len(values)-1 {
			jump.SkipFalse = 1
		}
		code = append(code, jump)
	}
	return append(code, r.ret())
}

// A command must make no file that runs as the user or group that it belongs to: for a bashd that runs as root that
// would be a way to root for every other user of the host, and else one to bashd's own user. Landlock has no
// right for modes, so the bits are refused in every call that has the mode in a register.
const setIDBits = unix.S_ISUID | unix.S_ISGID

// setID refuses a mode with one of the bits.
func setID(mode uint32) check { return noBits(mode, setIDBits) }

// makesFile are the flags of an open that make its mode count. O_TMPFILE holds O_DIRECTORY, which alone makes nothing; that bit
// is another one on arm64, and the difference is the same.
const makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// made is setID for a call that opens: without one of the flags anything can be in the mode's register.
func made(flags, mode uint32) check {
	code := []bpf.Instruction{low(flags)}
	code = append(code, unless(bpf.JumpBitsSet, makesFile, allow)...)
	return check{fmt.Sprintf("set-ID bits in argument %d if argument %d makes a file", mode, flags), append(code, setID(mode).code...)}
}

// node is setID for mknod, which makes no devices either.
func node(mode uint32) check {
	code := []bpf.Instruction{low(mode)}
	code = append(code, unless(bpf.JumpBitsNotSet, setIDBits, refuse)...)
	code = append(code, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.S_IFMT})
	code = append(code, oneOf([]uint32{unix.S_IFCHR, unix.S_IFBLK}, refuse)...)
	return check{fmt.Sprintf("set-ID bits or a device in argument %d", mode), append(code, allow.ret())}
}

const renameWhiteout = unix.RENAME_WHITEOUT

// newNamespace are the flags of clone that make a namespace. CLONE_NEWTIME is not among them: clone takes its bit for a part of
// the signal at the end.
const newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// What unshare can take apart without a namespace.
const (
	cloneFS      = unix.CLONE_FS
	cloneFiles   = unix.CLONE_FILES
	cloneSysVSem = unix.CLONE_SYSVSEM
)

// noBits refuses any of the bits in an argument.
func noBits(arg, bits uint32) check {
	code := append([]bpf.Instruction{low(arg)}, unless(bpf.JumpBitsNotSet, bits, refuse)...)
	return check{fmt.Sprintf("bits %#x in argument %d", bits, arg), append(code, allow.ret())}
}

// onlyBits refuses everything but the bits in an argument that is a long.
func onlyBits(arg, bits uint32) check {
	code := append([]bpf.Instruction{high(arg)}, unless(bpf.JumpEqual, 0, refuse)...)
	code = append(code, low(arg))
	code = append(code, unless(bpf.JumpBitsNotSet, ^bits, refuse)...)
	return check{fmt.Sprintf("bits but %#x in argument %d", bits, arg), append(code, allow.ret())}
}

// zero refuses an argument that is not 0.
func zero(arg uint32) check {
	code := append([]bpf.Instruction{low(arg)}, unless(bpf.JumpEqual, 0, refuse)...)
	return check{fmt.Sprintf("argument %d not 0", arg), append(code, allow.ret())}
}

// The first arguments of setpriority and ioprio_set that make the second a process, not a group or a user.
const (
	prioProcess   = 0
	ioprioProcess = 1
)

// zeroOf refuses a second argument that is not 0, or a first one that is not kind.
func zeroOf(kind uint32) check {
	code := append([]bpf.Instruction{low(0)}, unless(bpf.JumpEqual, kind, refuse)...)
	return check{fmt.Sprintf("not process %d 0", kind), append(code, zero(1).code...)}
}

// ownLimits refuses prlimit64 with another pid and a new limit; asking is harmless.
func ownLimits() check {
	code := append([]bpf.Instruction{low(0)}, unless(bpf.JumpNotEqual, 0, allow)...)
	code = append(code, low(2))
	code = append(code, unless(bpf.JumpEqual, 0, refuse)...)
	code = append(code, high(2))
	code = append(code, unless(bpf.JumpEqual, 0, refuse)...)
	return check{"limits of others", append(code, allow.ret())}
}

// noLease refuses leases and delegations: with one, the owner of a file that it can only read makes everybody else's open
// of it wait for most of a minute, outside too.
func noLease() check {
	code := append([]bpf.Instruction{low(1)}, oneOf([]uint32{unix.F_SETLEASE, unix.F_SETDELEG, unix.F_SET_RW_HINT, unix.F_SET_FILE_RW_HINT}, refuse)...)
	return check{"leases", append(code, allow.ret())}
}
