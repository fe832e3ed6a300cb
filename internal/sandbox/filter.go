package sandbox

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The system call filter refuses what Landlock has no right for and what would
// reach processes outside: with the same user, a command could else limit the processor time of
// the daemon to nothing, and so kill it, or slow down its runner for whoever comes next.
//
// Refused is what names another process, even where it is the command's own child or the
// caller by its pid: pids cannot be told apart here. Calls on the caller itself (pid 0) go through, which is what
// ulimit, nice, taskset and ionice do for a program that they start.

// Offsets into struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16 // eight bytes each
)

// selfOnly are the calls whose argument with that index must be 0, the caller.
var selfOnly = []struct{ number, arg uint32 }{
	{unix.SYS_SCHED_SETPARAM, 0},
	{unix.SYS_SCHED_SETSCHEDULER, 0},
	{unix.SYS_SCHED_SETAFFINITY, 0},
	{unix.SYS_SCHED_SETATTR, 0},
	{unix.SYS_SETPRIORITY, 1},
	{unix.SYS_IOPRIO_SET, 1},
}

// firstOnly are those of them whose first argument must name a process, not a
// group or a user: PRIO_PROCESS is 0, IOPRIO_WHO_PROCESS is 1.
var firstOnly = map[uint32]uint32{unix.SYS_SETPRIORITY: 0, unix.SYS_IOPRIO_SET: 1}

// x32 marks the calls of a foreign calling convention on amd64.
const x32 = 0x40000000

func auditArch() (uint32, error) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, nil
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, nil
	}
	return 0, fmt.Errorf("no system call filter for %s", runtime.GOARCH)
}

// seccompUsable asks whether the kernel takes filters at all.
func seccompUsable() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}

// buildFilter returns the program as the kernel takes it: eight bytes an instruction.
func buildFilter() ([]byte, error) {
	arch, err := auditArch()
	if err != nil {
		return nil, err
	}
	refuse := func(errno unix.Errno) bpf.Instruction {
		return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	prog := []bpf.Instruction{
		// A call by another architecture's numbers would pass for something else.
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		refuse(unix.ENOSYS),
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		refuse(unix.ENOSYS),
	}
	for _, call := range selfOnly {
		prog = append(prog, zeroOrRefuse(call.number, call.arg, refuse(unix.EPERM))...)
	}
	prog = append(prog, noForeignLimits(refuse(unix.EPERM))...)
	prog = append(prog, noSetID(refuse(unix.EPERM), refuse(unix.ENOSYS))...)
	prog = append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return nil, fmt.Errorf("assembling the system call filter: %w", err)
	}
	var b []byte
	for _, in := range raw {
		b = binary.NativeEndian.AppendUint16(b, in.Op)
		b = append(b, in.Jt, in.Jf)
		b = binary.NativeEndian.AppendUint32(b, in.K)
	}
	return b, nil
}

// zeroOrRefuse lets the call through when its argument is 0. The kernel takes a pid
// from the lower half of a register, so the upper half says nothing.
func zeroOrRefuse(number, arg uint32, refuse bpf.Instruction) []bpf.Instruction {
	body := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArgs + 8*arg, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		refuse,
	}
	if first, ok := firstOnly[number]; ok {
		body = append([]bpf.Instruction{
			bpf.LoadAbsolute{Off: dataArgs, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: first, SkipTrue: 1},
			refuse,
		}, body...)
	}
	return onlyFor(number, append(body, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
}

// noForeignLimits refuses prlimit64 with another pid and a new limit; asking is harmless.
func noForeignLimits(refuse bpf.Instruction) []bpf.Instruction {
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	return onlyFor(unix.SYS_PRLIMIT64, []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArgs, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		allow,
		bpf.LoadAbsolute{Off: dataArgs + 16, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 3},
		bpf.LoadAbsolute{Off: dataArgs + 20, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		allow,
		refuse,
	})
}

// onlyFor runs body, which decides, for that call and goes on with the number loaded for
// every other.
func onlyFor(number uint32, body []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))},
	}, body...)
}

// filters builds the two system call filters; nil where the kernel takes none.
func filters() (map[bool]string, error) {
	if !seccompUsable() {
		return nil, nil
	}
	f, err := buildFilter()
	if err != nil {
		return nil, err
	}
	return map[bool]string{true: string(f), false: string(f)}, nil
}

// filterOf is the filter for a mode. Where nothing but the filter protects the metadata of files, it refuses
// every change of them under read-only.
func (s *Sandbox) filterOf(m Mode) string {
	return s.filter[s.tier == TierNamespaces || m == WorkspaceWrite]
}
