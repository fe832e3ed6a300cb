package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newChecker returns a Checker for which the processes below runners are commands. With below false those below
// this process are not, so that a child of the test may play an outsider.
func newChecker(t testing.TB, below bool, runners ...int) *Checker {
	t.Helper()
	c, err := New(func() []int { return runners }, anyUID)
	if err != nil {
		t.Skipf("sock_diag is not available here: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if !below {
		c.self = -1
	}
	return c
}

func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		t.Skipf("%s is not available here: %v", network, err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func accept(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func wantCommand(t testing.TB, v Verdict, reason string) {
	t.Helper()
	if !v.Command || !strings.Contains(v.Reason, reason) {
		t.Fatalf("verdict %+v, want a command: %q", v, reason)
	}
}

func wantCaller(t testing.TB, v Verdict, reason string) {
	t.Helper()
	if v.Command || !strings.Contains(v.Reason, reason) {
		t.Fatalf("verdict %+v, want a caller: %q", v, reason)
	}
}

func TestNewNeedsBothFunctions(t *testing.T) {
	if _, err := New(nil, anyUID); err == nil {
		t.Error("no error without trees")
	}
	if _, err := New(func() []int { return nil }, nil); err == nil {
		t.Error("no error without uids")
	}
}

// families are the ways to reach a listener, by what the client's socket is and what the server sees.
var families = []struct{ name, network, listen, dial string }{
	{"IPv4", "tcp4", "127.0.0.1:0", "127.0.0.1"},
	{"IPv6", "tcp6", "[::1]:0", "::1"},
	{"IPv4 client of a dual listener", "tcp", "[::]:0", "127.0.0.1"},
	{"IPv4-mapped client of an IPv4 listener", "tcp4", "127.0.0.1:0", "::ffff:127.0.0.1"},
	{"IPv4-mapped client of a dual listener", "tcp", "[::]:0", "::ffff:127.0.0.1"},
	{"another loopback address", "tcp4", "0.0.0.0:0", "127.9.8.7"},
}

func dialAddress(l net.Listener, host string) string {
	return netip.AddrPortFrom(netip.MustParseAddr(host), addrPort(l.Addr()).Port()).String()
}

func TestOutsiderIsCallerAndCommandIsNot(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := listen(t, f.network, f.listen)
			to := dialAddress(l, f.dial)

			outsider := start(t, "hold", "tcp", to)
			outsider.expect(t, "ready")
			conn := accept(t, l)
			// A runner that the outsider is not below.
			runner := start(t, "runner", "hold", "tcp", to)
			runner.expect(t, "ready")
			c := newChecker(t, false, runner.Process.Pid)
			wantCaller(t, c.Check(conn), "socket held by pid")

			command := accept(t, l)
			wantCommand(t, c.Check(command), "below runner")
			// And as a descendant of the daemon, should its runner be gone.
			c = newChecker(t, true)
			wantCommand(t, c.Check(command), "below the daemon")
		})
	}
}

func TestOwnConnectionIsCaller(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := listen(t, f.network, f.listen)
			client, err := dialTCP(dialAddress(l, f.dial))
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(client)
			wantCaller(t, newChecker(t, true).Check(accept(t, l)), "socket held by pid")
		})
	}
}

func TestDetachedOutsiderIsCaller(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("PID 1 adopts orphans: they are below it")
	}
	l := listen(t, "tcp4", "127.0.0.1:0")
	start(t, "detach", "detach", "hold", "tcp", l.Addr().String()).expect(t, "ready")
	wantCaller(t, newChecker(t, true).Check(accept(t, l)), "socket held by pid")
}

func TestCommandThatHidesItsSocket(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		reason string
	}{
		{"connects, writes and exits", []string{"runner", "exit", "tcp"}, "orphaned socket"},
		{"double fork in a new session", []string{"runner", "detach", "detach", "hold", "tcp"}, "below runner"},
		{"only in an SCM_RIGHTS message", []string{"runner", "in-flight", "tcp"}, "no process outside"},
		{"only in the table of a thread", []string{"runner", "hold", "thread"}, "no process outside"},
		{"its own runner died", []string{"runner", "abandon", "hold", "tcp"}, "below runner"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := listen(t, "tcp4", "127.0.0.1:0")
			runner := start(t, tt.args[0], append(tt.args[1:], l.Addr().String())...)
			if tt.args[1] == "exit" {
				runner.expect(t, "reaped")
			} else {
				runner.expect(t, "ready")
			}
			wantCommand(t, newChecker(t, false, runner.Process.Pid).Check(accept(t, l)), tt.reason)
		})
	}
}

// The queue of an unreachable pair of sockets lives until the kernel collects it: whether it did, nobody may profit. Neither
// may a command whose runner is no longer listed.
func TestSocketWithoutHolderNeedsNoTreeToBeRefused(t *testing.T) {
	for _, role := range []string{"in-flight", "garbage"} {
		t.Run(role, func(t *testing.T) {
			l := listen(t, "tcp4", "127.0.0.1:0")
			start(t, role, "tcp", l.Addr().String()).expect(t, "ready")
			wantCommand(t, newChecker(t, false).Check(accept(t, l)), "")
		})
	}
}

// A runner that dies leaves its command to the daemon, where that is a subreaper.
func TestCommandOfDeadRunner(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("subreaper: %v", err)
	}
	t.Cleanup(func() {
		// After the child's own cleanup: all that is left to reap was adopted.
		for {
			if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && err != unix.EINTR {
				break
			}
		}
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	})
	l := listen(t, "tcp4", "127.0.0.1:0")
	runner := start(t, "abandon", "hold", "tcp", l.Addr().String())
	runner.expect(t, "ready")
	wantCommand(t, newChecker(t, true).Check(accept(t, l)), "below the daemon")
}

func TestForkDance(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	runner := start(t, "runner", "dance", "tcp", l.Addr().String())
	runner.expect(t, "ready")
	conn := accept(t, l)
	for name, c := range map[string]*Checker{
		"runner listed": newChecker(t, false, runner.Process.Pid),
		"not listed":    newChecker(t, true),
	} {
		for try := range 50 {
			if v := c.Check(conn); !v.Command {
				t.Fatalf("%s, try %d: %+v", name, try, v)
			}
		}
	}
}

func TestOutsiderOnThreadWithOwnTable(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	start(t, "hold", "thread", l.Addr().String()).expect(t, "ready")
	wantCaller(t, newChecker(t, false).Check(accept(t, l)), "socket held by pid")
}

func TestUIDThatNoCommandHas(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	runner := start(t, "runner", "hold", "tcp", l.Addr().String())
	runner.expect(t, "ready")
	c := newChecker(t, true, runner.Process.Pid)
	var asked []uint32
	c.uids = func(uid uint32) bool { asked = append(asked, uid); return false }
	wantCaller(t, c.Check(accept(t, l)), "socket of uid")
	if len(asked) != 1 || asked[0] != uint32(os.Getuid()) {
		t.Errorf("asked for uids %v, want this process's", asked)
	}
}

func TestHalfClosedCallerIsCaller(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	client, err := dialTCP(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	if err := unix.Shutdown(client, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	conn := accept(t, l)
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Fatal(err)
	}
	wantCaller(t, newChecker(t, true).Check(conn), "socket held by pid")
}

func TestClientBoundToLoopbackInterface(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	if err := unix.BindToDevice(client, "lo"); err != nil {
		t.Skipf("binding to lo: %v", err)
	}
	to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(addrPort(l.Addr()).Port())}
	if err := unix.Connect(client, to); err != nil {
		t.Fatal(err)
	}
	wantCaller(t, newChecker(t, true).Check(accept(t, l)), "socket held by pid")
}

func TestPeerWithoutSocket(t *testing.T) {
	c := newChecker(t, true)
	local := netip.MustParseAddrPort("192.0.2.1:8080")
	for _, peer := range []string{"127.0.0.1:9", "127.200.1.2:9", "[::1]:9", "192.0.2.1:9"} {
		wantCommand(t, c.checkUnmatched(netip.MustParseAddrPort(peer), local), "no socket for a peer on this host")
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if !ok || ip.IsLinkLocalUnicast() {
			continue
		}
		isLocal, err := isLocalAddr(c.routes, ip.Unmap())
		if err != nil || !isLocal {
			t.Errorf("own address taken for a remote one (%v)", err)
		}
	}
}

func TestRemotePeerIsCaller(t *testing.T) {
	c := newChecker(t, true)
	remote := netip.MustParseAddrPort("198.51.100.7:40000")
	if _, err := isLocalAddr(c.routes, remote.Addr()); errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		wantCommand(t, c.checkTCP(remote, netip.MustParseAddrPort("192.0.2.1:8080")), "route lookup failed")
		t.Skip("this host has no route to anywhere: nothing is remote")
	}
	wantCaller(t, c.checkTCP(remote, netip.MustParseAddrPort("192.0.2.1:8080")), "remote peer")
}

// The kernel answers a lookup that matches no connection with a listener on the address, whoever's it is.
func TestListenerOnPeerAddressIsNotThePeer(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	_, err := findTCP(newChecker(t, true).diag, addrPort(l.Addr()), netip.MustParseAddrPort("127.0.0.1:1"))
	if !errors.Is(err, errNoSocket) {
		t.Fatalf("got %v, want errNoSocket", err)
	}
}

// Another socket that has the peer's inode number, which a command could bring about, clears nobody.
func TestEqualInodeIsNotTheSameSocket(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	client, err := dialTCP(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	conn := accept(t, l)
	c := newChecker(t, true)
	s, err := findTCP(c.diag, addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr()))
	if err != nil {
		t.Fatal(err)
	}
	wantCaller(t, c.searchHolder(s), "socket held by pid")
	if !canDuplicateOwn(client) {
		t.Skip("pidfd_getfd is not permitted here")
	}
	s.cookie++
	c.recent.Store(0)
	if v, known := (&search{checker: c, socket: s, link: linkOf(s), isRoot: rootsOf(c.self, nil), deadline: time.Now().Add(searchLimit)}).
		examine(c.self, false); known {
		t.Fatalf("verdict %+v by a socket with another cookie", v)
	}
}

func canDuplicateOwn(fd int) bool {
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	dup, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return false
	}
	return unix.Close(dup) == nil
}

func TestUnixPeers(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		command bool
		reason  string
	}{
		{"command", []string{"runner", "hold", "unix"}, true, "below runner"},
		{"double fork in a new session", []string{"runner", "detach", "detach", "hold", "unix"}, true, "below runner"},
		{"command that exited", []string{"runner", "exit", "unix"}, true, "gone"},
		{"outsider", []string{"hold", "unix"}, false, "peer is pid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l := listen(t, "unix", path)
			child := start(t, tt.args[0], append(tt.args[1:], path)...)
			if tt.args[1] == "exit" {
				child.expect(t, "reaped")
			} else {
				child.expect(t, "ready")
			}
			conn := accept(t, l)
			runner := -1
			if tt.args[0] == "runner" {
				runner = child.Process.Pid
			}
			v := newChecker(t, false, runner).Check(conn)
			if v.Command != tt.command || !strings.Contains(v.Reason, tt.reason) {
				t.Errorf("verdict %+v, want command %v: %q", v, tt.command, tt.reason)
			}
			if v := newChecker(t, true).Check(conn); !v.Command {
				t.Errorf("below the daemon: verdict %+v, want a command", v)
			}
			c := newChecker(t, true)
			c.uids = func(uint32) bool { return false }
			wantCaller(t, c.Check(conn), "peer of uid")
		})
	}
}

func TestOwnUnixConnectionIsCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, "unix", path)
	client, err := childConnect("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	wantCaller(t, newChecker(t, true).Check(accept(t, l)), "this process")
}

func TestOtherConnectionsAreRefused(t *testing.T) {
	c := newChecker(t, true)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	wantCommand(t, c.Check(a), "connection of type")
	wantCommand(t, c.Check(nil), "connection of type")
}

func TestClosedCheckerRefuses(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	client, err := dialTCP(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	conn := accept(t, l)
	c := newChecker(t, true)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wantCommand(t, c.Check(conn), "closed")
}

func BenchmarkCheck(b *testing.B) {
	l := listen(b, "tcp4", "127.0.0.1:0")
	client, err := dialTCP(l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(client)
	conn := accept(b, l)
	runner := start(b, "runner", "detach", "detach", "hold", "tcp", l.Addr().String())
	runner.expect(b, "ready")
	command := accept(b, l)
	hider := start(b, "runner", "in-flight", "tcp", l.Addr().String())
	hider.expect(b, "ready")
	hidden := accept(b, l)
	for range max(0, 200-countProcesses(b)) {
		start(b, "detach", "idle")
	}
	bench := func(name string, c *Checker, conn net.Conn, fresh bool, command bool) {
		b.Run(name, func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				if fresh {
					c.recent.Store(0)
				}
				if v := c.Check(conn); v.Command != command {
					b.Fatalf("%+v", v)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e3, "cpu-µs/op")
		})
	}
	foreign := newChecker(b, true)
	foreign.uids = func(uint32) bool { return false }
	bench("by uid", foreign, conn, true, false)
	bench("caller found again", newChecker(b, true), conn, false, false)
	bench("new caller, no command", newChecker(b, true), conn, true, false)
	bench("new caller, one command", newChecker(b, true, runner.Process.Pid), conn, true, false)
	young := start(b, "hold", "tcp", l.Addr().String())
	young.expect(b, "ready")
	bench("new caller, the youngest process", newChecker(b, false), accept(b, l), true, false)
	bench("command", newChecker(b, true, runner.Process.Pid), command, true, true)
	bench("command that hides its socket", newChecker(b, true, hider.Process.Pid), hidden, true, true)
}

// cpuTime tells the cost apart from the wait for a busy machine.
func cpuTime(b *testing.B) int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func countProcesses(b *testing.B) int {
	pids, err := allPids()
	if err != nil {
		b.Fatal(err)
	}
	return len(pids)
}
