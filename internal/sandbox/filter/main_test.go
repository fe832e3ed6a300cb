package filter_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/filter"
)

// The test binary is the child too: with roleEnv set it takes the filter that filterEnv names, and does what the role says.
const (
	roleEnv   = "TEST_FILTER_ROLE"
	filterEnv = "TEST_FILTER"

	roleExec  = "exec"  // becomes the program in its arguments
	roleCalls = "calls" // makes calls and prints what became of each
)

// The filters of a child.
const (
	without  = "none"
	metadata = "metadata"
	readOnly = "read-only"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := child(role, os.Getenv(filterEnv)); err != nil {
		fmt.Fprintln(os.Stderr, "the child:", err)
		os.Exit(99)
	}
	os.Exit(0)
}

func child(role, which string) error {
	runtime.LockOSThread()
	os.Unsetenv(roleEnv)
	os.Unsetenv(filterEnv)
	args := os.Args[1:]
	var program string
	var err error
	if role == roleExec {
		if program, err = exec.LookPath(args[0]); err != nil {
			return err
		}
	}
	if which != without {
		prog, err := filter.Program(filter.Options{Metadata: which == metadata})
		if err != nil {
			return err
		}
		if err := install(prog); err != nil {
			return err
		}
	}
	if role == roleExec {
		return syscall.Exec(program, args, os.Environ())
	}
	return makeCalls()
}

// install confines the calling thread.
func install(prog []byte) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(prog)))}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// command is a child in a directory of its own.
func command(t *testing.T, dir, role, which string, args ...string) *exec.Cmd {
	t.Helper()
	if !filter.Usable() {
		t.Skip("the kernel takes no filters")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), roleEnv+"="+role, filterEnv+"="+which, "TMPDIR="+dir, "HOME="+dir)
	return c
}

// output runs a child and returns what it printed, and how it ended.
func output(t *testing.T, c *exec.Cmd) (out string, err error) {
	t.Helper()
	b, err := c.CombinedOutput()
	if strings.Contains(string(b), "the child: ") {
		t.Fatalf("%s", b)
	}
	return string(b), err
}
