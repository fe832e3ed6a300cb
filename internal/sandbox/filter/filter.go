// Package filter holds the system call filter that every confined command runs under, compiled for each architecture.
//
// It refuses what the other layers have no say in. A kernel's filter sees the number of a call and its six
// registers and nothing in memory, so each rule is about those alone:
//
//   - calls that reach beyond the command's tree: mounts, namespaces, modules, clocks, keys, the memory, descriptors, limits
//     and scheduling of other processes;
//   - changes of files for which Landlock has no right: ioctls, the set-user-ID and set-group-ID bits, devices, leases and,
//     in the stricter of the two programs (Options), all metadata;
//   - calls whose arguments lie in memory, or that carry out others out of sight (openat2, clone3, io_uring), and calls that nobody
//     knew when this was written. They are answered ENOSYS, as by a kernel that is older, for which programs have another way.
//
// What else is refused gets EPERM, an ioctl of no known kind ENOTTY. Calls by the numbers of another architecture,
// x32 included, get ENOSYS.
//
// It does not govern which files are read and written, or who is signalled and traced: that is for Landlock and the
// namespaces. It does not touch the network. It cannot tell a command's own children by their pids from anybody else, so calls that set
// limits, priority or scheduling by pid are refused for them too; on the caller itself (pid 0) they go through.
//
// The rules are data, in package rules, which nothing needs at run time. Its tests compile them and compare the
// result with the generated file of this package.
package filter

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:generate go test ./rules -run ^TestGenerated$ -update

// Options choose between the two programs of an architecture.
type Options struct {
	// Metadata lets changes of the metadata of files through: mode (but for the set-user-ID and set-group-ID bits), owner,
	// times, extended attributes. Without it each is refused, wherever the file lies, and so is making and removing message
	// queues: for a mode that writes nothing on a host where nothing but Landlock and the filter protects files.
	Metadata bool
}

// Program returns the program for the architecture that this process runs on: see ProgramFor.
func Program(o Options) ([]byte, error) {
	return ProgramFor(runtime.GOARCH, o)
}

// ProgramFor returns the program for an architecture by its Go name, "amd64" or "arm64", as the kernel takes it: eight
// bytes an instruction, in the byte order of both, and at most unix.BPF_MAXINSNS (4096) of them. The caller owns the slice. An
// error means that there is no program for that architecture.
func ProgramFor(arch string, o Options) ([]byte, error) {
	p, ok := programs[arch]
	if !ok {
		return nil, fmt.Errorf("no system call filter for %q", arch)
	}
	list := p.readOnly
	if o.Metadata {
		list = p.metadata
	}
	b := make([]byte, 0, 8*len(list))
	for _, in := range list {
		b = binary.LittleEndian.AppendUint16(b, in.code)
		b = append(b, in.yes, in.no)
		b = binary.LittleEndian.AppendUint32(b, in.value)
	}
	return b, nil
}

// instruction is struct sock_filter of the kernel: what to do, how many instructions to skip if a comparison holds and if it does
// not, and with which value.
type instruction struct {
	code    uint16
	yes, no uint8
	value   uint32
}

// Usable reports whether the kernel takes filters that answer calls with an errno. It says nothing about this
// process, which needs no_new_privs or CAP_SYS_ADMIN to load one.
func Usable() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}
