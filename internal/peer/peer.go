// Package peer tells a caller of the API from a command that the service runs.
//
// In open mode every local process may call the API. A confined command is a local process too, and one that called
// would be free to ask for a wider mode than its own. The kernel knows who is at the other end of a connection; this
// package asks it, and answers one question for an accepted connection: may the peer be one of our commands?
//
// # What counts as a command
//
// Every process below a runner, and every process below this one: a runner is a child subreaper and so is the daemon, hence
// a process of a command, however it forks, never leaves the daemon's descendants. The daemon itself is no command.
//
// # TCP
//
// A socket is let in for evidence that it is not a command's, never for lack of evidence that it is. That makes the answer
// indifferent to processes that fork, exit and hand the socket along while they are looked at, and to a socket
// that no descriptor table shows: in flight in an SCM_RIGHTS message, in a garbage cycle of unix sockets (which outlives its
// processes until the kernel collects it, so "no command is running" proves nothing), in a ring's fixed-file table.
// The evidence, cheapest first:
//
//  1. No socket of this network namespace has the connection's addresses reversed, and the peer's address is not
//     a local one: the peer is on another machine. With a local address, the socket is gone or address
//     translation hides it: refused.
//  2. A socket without an inode has no process any more. It may be the request of a command that wrote and died: refused.
//  3. The socket's uid is one that no command runs as. A confined command cannot change uid.
//  4. The socket was made in a control group that is neither this process's nor below it (cgroup v2 only): a service or a
//     container next door.
//  5. A process that is not a command holds the socket, and lives in the control group that the socket was made in.
//
// Anything else, each error and each bound that is reached included, is refused.
//
// # Unix sockets
//
// The process that connected is the caller. It is refused when it is a command, and when it is gone, since then nobody can
// say what it was. A process in a pid namespace that this one cannot see is let in: all commands are visible.
//
// # What it does not see
//
//   - Another process that speaks for a command: a proxy on this host, one that forwards descriptors within the same control
//     group, and address translation that makes a connection of this host look like one from elsewhere.
//     Tokens are the remedy.
//   - A command that was let out of its confinement: with privileges it can change uid, control group, network namespace.
//   - Socket inode numbers have 32 bits. A command that made 2^32 sockets could own one numbered like an outsider's. Where
//     this process may duplicate the holder's descriptor (pidfd_getfd), the sockets' cookies are compared and tell them
//     apart; where it may not, the number is believed.
//   - Before Linux 6.5 (SO_PEERPIDFD) the pid of a unix peer that exited may have been given to another process.
//
// It refuses callers that a wider look could have cleared: one that connects and exits at once; one that was adopted by
// this process (daemonised in a container whose PID 1 it is); one in a pid namespace out of sight with a command's uid, where
// there is no cgroup v2 to tell it by; one that this process may not inspect, or that reaches it through address translation.
package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
)

// Verdict is the answer for one connection.
type Verdict struct {
	// Command is true unless there is evidence that the peer is no command. Such a connection must be refused.
	Command bool
	// Reason says in a few words what the answer rests on: numbers of processes and users, no names and no addresses.
	// For the debug log, not for the peer.
	Reason string
}

func refuse(format string, args ...any) Verdict {
	return Verdict{Command: true, Reason: fmt.Sprintf(format, args...)}
}

func admit(format string, args ...any) Verdict {
	return Verdict{Reason: fmt.Sprintf(format, args...)}
}

// Checker answers for connections that this process accepted. It may be used by several goroutines at once.
type Checker struct {
	trees func() []int
	uids  func(uid uint32) bool
	self  int // this process, above every command

	diag    *netlink // NETLINK_SOCK_DIAG: whose is the socket
	routes  *netlink // NETLINK_ROUTE: is the address local
	cgroups cgroups

	searching sync.Mutex   // one search of /proc at a time: a flood of connections must not take every core
	recent    atomic.Int64 // pid of the holder found last: a gateway calls again
}

// New returns a Checker.
//
// trees returns the pids of the live runners; uids tells whether a command may run as uid. Both are called by every Check,
// from any goroutine, and must be cheap. Commands must stay in the control group that this process is in when
// New is called, or below it; where that is a leaf named bashd-server, in the group above, or below that. A daemon that
// moves itself does so before.
//
// An error means that this kernel does not tell who owns a TCP socket (no sock_diag): callers on TCP cannot be told from
// commands then. New looks up a socket of its own to find out.
func New(trees func() []int, uids func(uid uint32) bool) (*Checker, error) {
	if trees == nil || uids == nil {
		return nil, errors.New("peer: trees and uids are required")
	}
	c := &Checker{trees: trees, uids: uids, self: os.Getpid()}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("peer: %w", err), c.Close())
	}
	return c, nil
}

func (c *Checker) open() error {
	var err error
	if c.diag, err = openNetlink(netlinkSockDiag); err != nil {
		return fmt.Errorf("opening sock_diag: %w", err)
	}
	if c.routes, err = openNetlink(netlinkRoute); err != nil {
		return fmt.Errorf("opening rtnetlink: %w", err)
	}
	own, err := probe(c.diag)
	if err != nil {
		return fmt.Errorf("looking up an own socket: %w", err)
	}
	c.cgroups = ownCgroups(own.cgroup)
	return nil
}

// Close releases the kernel interfaces. A Check after it refuses every TCP peer of this host.
func (c *Checker) Close() error {
	return errors.Join(c.diag.close(), c.routes.close())
}

// Check says whether the peer of conn may be a command. conn is a *net.TCPConn or *net.UnixConn that this process accepted and has
// not closed; any other is refused. It blocks on the kernel only. Where the socket itself is evidence enough that
// takes some ten microseconds. Else /proc is searched, for one connection at a time: a fraction of a millisecond for a caller
// that called before and for a command in plain sight, one or two for a caller that has just started, some fifty microseconds for
// each process of the host at worst, twice and more before a refusal, cut off at a second. So call it on the connection's
// goroutine, not in the accept loop, and before the first request is read.
func (c *Checker) Check(conn net.Conn) Verdict {
	switch conn := conn.(type) {
	case *net.TCPConn:
		remote, local := addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr())
		if !remote.IsValid() || !local.IsValid() {
			return refuse("connection without addresses")
		}
		return c.checkTCP(remote, local)
	case *net.UnixConn:
		return c.checkUnix(conn)
	default:
		return refuse("connection of type %T", conn)
	}
}

func (c *Checker) checkTCP(remote, local netip.AddrPort) Verdict {
	s, err := findTCP(c.diag, remote, local)
	if errors.Is(err, errNoSocket) {
		return c.checkUnmatched(remote, local)
	}
	switch {
	case err != nil:
		return refuse("socket lookup failed: %v", err)
	case s.inode == 0:
		return refuse("orphaned socket")
	case !c.uids(s.uid):
		return admit("socket of uid %d", s.uid)
	case !c.cgroups.mayBeOurs(s.cgroup):
		return admit("socket of another control group")
	}
	return c.searchHolder(s)
}

// checkUnmatched decides about a peer without a socket in this network namespace: another machine's, or one of this
// host's that is gone.
func (c *Checker) checkUnmatched(remote, local netip.AddrPort) Verdict {
	if remote.Addr().IsLoopback() || remote.Addr() == local.Addr() {
		return refuse("no socket for a peer on this host")
	}
	isLocal, err := isLocalAddr(c.routes, remote.Addr())
	switch {
	case err != nil:
		return refuse("route lookup failed: %v", err)
	case isLocal:
		return refuse("no socket for a peer on this host")
	}
	return admit("remote peer")
}

// addrPort returns the zero AddrPort for anything but a TCP address; IPv4 in IPv6 becomes IPv4, under which the
// kernel files such sockets.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp == nil {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
