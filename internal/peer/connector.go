package peer

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	noPidfd = -1 // the kernel (before Linux 6.5) has none to give
	gone    = -2 // the kernel has none for a process that it has let go of
)

// connector is the process that connected a unix socket, as the kernel recorded it then.
type connector struct {
	pid   int
	uid   uint32
	pidfd int
}

func (c *Checker) checkUnix(conn *net.UnixConn) Verdict {
	peer, err := connectorOf(conn)
	if err != nil {
		return refuse("peer credentials: %v", err)
	}
	if peer.pidfd >= 0 {
		defer unix.Close(peer.pidfd)
	}
	switch {
	case !c.uids(peer.uid):
		return admit("peer of uid %d", peer.uid)
	case peer.pidfd == gone:
		return refuse("peer process is gone")
	}
	return c.checkConnector(peer)
}

func (c *Checker) checkConnector(peer connector) Verdict {
	pid, err := peer.currentPid()
	switch {
	case err != nil:
		return refuse("peer process: %v", err)
	case pid < 0 || pid == 0 && peer.pidfd == noPidfd:
		return refuse("peer process is gone")
	case pid == 0:
		return admit("peer of a pid namespace out of sight")
	case pid == c.self:
		return admit("peer is this process")
	}
	p, err := openProcess(pid)
	if err != nil {
		return refuse("peer process is gone")
	}
	defer p.close()
	// Still the peer's number, so the directory opened meanwhile is the peer's.
	if again, err := peer.currentPid(); err != nil || again != pid {
		return refuse("peer process is gone")
	}
	isRoot := rootsOf(c.self, c.trees())
	root, err := p.ancestorIn(isRoot)
	switch {
	case err != nil:
		return refuse("peer's ancestors: %v", err)
	case root == c.self:
		return refuse("peer is pid %d below the daemon", pid)
	case root != 0:
		return refuse("peer is pid %d below runner %d", pid, root)
	case isRoot(pid):
		return refuse("peer is runner %d", pid)
	}
	return admit("peer is pid %d", pid)
}

// connectorOf returns who connected. The caller closes its pidfd.
func connectorOf(conn *net.UnixConn) (connector, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return connector{}, err
	}
	var peer connector
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); sockErr != nil {
			return
		}
		peer.pid, peer.uid = int(cred.Pid), cred.Uid
		peer.pidfd, sockErr = peerPidfd(int(fd))
	})
	return peer, errors.Join(err, sockErr)
}

func peerPidfd(socket int) (int, error) {
	pidfd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		return pidfd, nil
	case errors.Is(err, unix.ENOPROTOOPT):
		return noPidfd, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		return gone, nil
	}
	return gone, err
}

// currentPid returns the number of the process, negative if it is gone, 0 if it is in a pid namespace out of sight.
func (p connector) currentPid() (int, error) {
	if p.pidfd == noPidfd {
		return p.pid, nil
	}
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(p.pidfd))
	if err != nil {
		return 0, err
	}
	return parsePidfdInfo(string(info))
}

// parsePidfdInfo reads the line "Pid:" of a pidfd's fdinfo.
func parsePidfdInfo(info string) (int, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("fdinfo without a pid")
}
