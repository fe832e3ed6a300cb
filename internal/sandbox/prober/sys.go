package prober

import (
	"bytes"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open opens a file and never waits: a FIFO or a device must not hold up the probe.
func open(path string, flags int) (int, error) {
	return unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
}

// opens tries an open and nothing more.
func opens(path string, flags int) error {
	fd, err := open(path, flags)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// withFile runs f on an open file.
func withFile(path string, flags int, f func(fd int) error) error {
	fd, err := open(path, flags)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

// readSome reads the beginning of a file, at most 4096 bytes.
func readSome(path string) (b []byte, err error) {
	err = withFile(path, unix.O_RDONLY, func(fd int) error {
		b, err = readFD(fd)
		return err
	})
	return b, err
}

func readFD(fd int) ([]byte, error) {
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	return b[:max(n, 0)], err
}

func writeByte(fd int) error {
	_, err := unix.Write(fd, []byte("x"))
	return err
}

func readlink(path string) (string, error) {
	b := make([]byte, 4096)
	n, err := unix.Readlink(path, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// names lists a directory, at most its first hundred names or so.
func names(path string) (list []string, err error) {
	err = withFile(path, unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
		b := make([]byte, 8192)
		n, err := unix.ReadDirent(fd, b)
		if err != nil {
			return err
		}
		_, _, list = unix.ParseDirent(b[:n], -1, nil)
		return nil
	})
	return list, err
}

func call(trap uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// kept holds what system calls point at: as numbers, addresses would not keep it alive, nor from moving with a stack.
var kept []any

// address keeps p for good and returns its address.
func address[T any](p *T) uintptr {
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// cstring is a string for the kernel.
func cstring(s string) uintptr {
	b := append([]byte(s), 0)
	return address(&b[0])
}

// cwd is AT_FDCWD as an argument.
const cwd = ^uintptr(0) - (-unix.AT_FDCWD - 1)

// startTime is when a process started, in ticks since the boot: field 22 of its stat file. Everybody may read it.
func startTime(pid int) (string, error) {
	b, err := readSome("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The second field is the name, which can hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return "", unix.EIO
	}
	return fields[19], nil
}

// procFD is the path of an open file in /proc.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func forkExec(path string, argv ...string) (pid int, err error) {
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: []string{}, Files: []uintptr{0, 1, 2}})
}
