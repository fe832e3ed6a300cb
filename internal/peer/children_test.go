package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childEnv makes this test binary a child process: its value is the child's role and arguments.
const childEnv = "PEER_TEST_CHILD"

// Every child ends when its standard input does, and in any case after childLimit.
const childLimit = 60 * time.Second

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		time.AfterFunc(childLimit, func() { os.Exit(3) })
		if err := runChild(strings.Fields(role)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func runChild(args []string) error {
	switch role, rest := args[0], args[1:]; role {
	case "runner":
		return childRunner(rest)
	case "detach":
		return childDetach(rest)
	case "abandon":
		return childAbandon(rest)
	case "daemon":
		return childDaemon()
	case "orphan":
		return childOrphan(rest)
	case "idle":
		return untilEOF()
	default:
		fd, err := childConnect(rest[0], rest[1])
		if err != nil {
			return err
		}
		return childHold(role, fd)
	}
}

// childHold does with a connected socket what role says.
func childHold(role string, fd int) error {
	switch role {
	case "hold":
	case "exit":
		return nil
	case "in-flight":
		return childInFlight(fd, false)
	case "garbage":
		return childInFlight(fd, true)
	case "dance":
		childDance()
	default:
		return fmt.Errorf("no role %q", role)
	}
	return untilEOF()
}

func untilEOF() error {
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// childConnect makes a connected socket. Network "thread" means tcp on a thread with a descriptor table of its own.
func childConnect(network, address string) (int, error) {
	if network == "unix" {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		return fd, unix.Connect(fd, &unix.SockaddrUnix{Name: address})
	}
	if network == "thread" {
		done := make(chan error)
		go dialOnThread(address, done)
		return -1, <-done
	}
	return dialTCP(address)
}

// dialOnThread connects on a thread that leaves the common descriptor table first, and keeps it. The main thread's table is the
// process's in /proc, so it is passed on to another goroutine there.
func dialOnThread(address string, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go dialOnThread(address, done)
		select {}
	}
	err := unix.Unshare(unix.CLONE_FILES)
	if err == nil {
		_, err = dialTCP(address)
	}
	done <- err
	select {}
}

func dialTCP(address string) (int, error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return 0, err
	}
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: ap.Addr().As16(), Port: int(ap.Port())})
	if ap.Addr().Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: ap.Addr().As4(), Port: int(ap.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, to); err != nil {
		return 0, err
	}
	_, err = unix.Write(fd, []byte("x"))
	return fd, err
}

// childInFlight leaves the socket in the queue of a socketpair, and the pair, if unreachable, nowhere but in itself.
func childInFlight(fd int, unreachable bool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	rights := []int{fd}
	if unreachable {
		rights = append(rights, pair[0], pair[1])
	}
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(rights...), nil, 0); err != nil {
		return err
	}
	for _, held := range rights {
		if err := unix.Close(held); err != nil {
			return err
		}
	}
	return untilEOF()
}

// childDance hands the socket from parent to child, each parent exiting at once, until standard input ends. After
// the first clone there is no Go runtime any more, only this loop.
//
//go:norace
//go:nosplit
func childDance() {
	runtime.LockOSThread()
	line := [...]byte{'r', 'e', 'a', 'd', 'y', '\n'}
	rawWrite(&line)
	for {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if pid != 0 || errno != 0 || stdinEnded() {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}

// childRunner is a subreaper with one child, of the role that args say.
func childRunner(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := spawn(args); err != nil {
		return err
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && err != unix.EINTR {
			fmt.Println("reaped")
			return nil
		}
	}
}

// childDetach starts a child in a session of its own and exits.
func childDetach(args []string) error {
	if _, err := unix.Setsid(); err != nil {
		return err
	}
	return spawnOrphan(args)
}

// childAbandon is a runner that dies before its command.
func childAbandon(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return spawnOrphan(args)
}

// childOrphan begins its role when its parent, the first argument, is gone.
func childOrphan(args []string) error {
	for strconv.Itoa(os.Getppid()) == args[0] {
		time.Sleep(time.Millisecond)
	}
	return runChild(args[1:])
}

func spawnOrphan(args []string) error {
	return spawn(append([]string{"orphan", strconv.Itoa(os.Getpid())}, args...))
}

// spawn starts this binary in a role; the standard streams are shared. Nobody waits for it here.
func spawn(args []string) error {
	p, err := os.StartProcess("/proc/self/exe", os.Args[:1], &os.ProcAttr{
		Env:   childEnviron(args),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	return p.Release()
}

// childEnviron is a child's whole environment. The race detector would make each process sleep a second before it exits.
func childEnviron(role []string) []string {
	return []string{childEnv + "=" + strings.Join(role, " "), "GORACE=atexit_sleep_ms=0"}
}

// childDaemon accepts a connection for each line of input and prints what a Checker says to it. The first line that it prints
// is its address.
func childDaemon() error {
	c, err := New(func() []int { return nil }, anyUID)
	if err != nil {
		return err
	}
	defer c.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println(l.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		v := c.Check(conn)
		fmt.Println(v.Command, v.Reason)
		conn.Close()
	}
	return nil
}

// child is a running child process.
type child struct {
	*exec.Cmd
	lines    *bufio.Scanner
	lifeline io.WriteCloser // its standard input
}

func start(t testing.TB, role string, args ...string) *child {
	return startIn(t, -1, role, args...)
}

// startIn starts a child in the control group open as cgroupFD, -1 for this process's. It and what it started end with the test.
func startIn(t testing.TB, cgroupFD int, role string, args ...string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), childLimit)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = childEnviron(append([]string{role}, args...))
	cmd.Stderr = os.Stderr
	if cgroupFD >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: cgroupFD}
	}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lifeline.Close()
		// Ends when the last process that shares the pipe does.
		io.Copy(io.Discard, stdout)
		cmd.Wait()
		cancel()
	})
	return &child{Cmd: cmd, lines: bufio.NewScanner(stdout), lifeline: lifeline}
}

// line returns the child's next line.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("child ended: %v", c.lines.Err())
	}
	if strings.HasPrefix(c.lines.Text(), "error:") {
		t.Fatal(c.lines.Text())
	}
	return c.lines.Text()
}

func (c *child) expect(t testing.TB, want string) {
	t.Helper()
	if got := c.line(t); got != want {
		t.Fatalf("child says %q, want %q", got, want)
	}
}

func anyUID(uint32) bool { return true }
