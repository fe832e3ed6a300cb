package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The layout of struct inet_diag_sockid, inet_diag_req_v2 and inet_diag_msg, <linux/inet_diag.h>.
const (
	diagIDBytes      = 48
	diagRequestBytes = 8 + diagIDBytes
	diagReplyBytes   = 4 + diagIDBytes + 20

	diagAttrCgroupID = 21 // INET_DIAG_CGROUP_ID
)

// States a connected peer can be in, as bits (1<<state, <net/tcp_states.h>). A lookup that matches no connection falls back to a
// listener on the address, and may hit a socket that is only connecting from there: neither is the peer.
const peerStates = 1<<1 | // ESTABLISHED
	1<<4 | 1<<5 | // FIN_WAIT1, FIN_WAIT2
	1<<8 | 1<<9 | // CLOSE_WAIT, LAST_ACK
	1<<11 // CLOSING

// loopbackIndex is the interface number of lo in every network namespace.
const loopbackIndex = 1

// errNoSocket says that no connected socket of this network namespace has the addresses asked for.
var errNoSocket = errors.New("no such socket")

// socket is what the kernel tells about one.
type socket struct {
	state  uint8
	uid    uint32
	inode  uint32 // 0: no process has it open
	cookie uint64 // unique for as long as the system runs
	cgroup uint64 // cgroup v2 id of its maker; 0: not told
}

// findTCP returns the peer's socket: the one whose own address is remote and which is connected to local.
func findTCP(n *netlink, remote, local netip.AddrPort) (socket, error) {
	index, err := zoneIndex(remote.Addr())
	if err != nil {
		return socket{}, err
	}
	s, err := lookupTCP(n, remote, local, index, peerStates)
	if errors.Is(err, errNoSocket) && index == 0 {
		// A client that bound itself to lo (SO_BINDTODEVICE) is found under that interface only.
		return lookupTCP(n, remote, local, loopbackIndex, peerStates)
	}
	return s, err
}

// zoneIndex returns the interface number of a scoped IPv6 address, 0 for others.
func zoneIndex(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	in, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("zone of the peer: %w", err)
	}
	return uint32(in.Index), nil
}

// lookupTCP asks for the socket bound to src and connected to dst (an unspecified dst: listening), in one of states.
func lookupTCP(n *netlink, src, dst netip.AddrPort, index, states uint32) (socket, error) {
	request, err := diagRequest(src, dst, index)
	if err != nil {
		return socket{}, err
	}
	var s socket
	err = n.roundTrip(unix.SOCK_DIAG_BY_FAMILY, unix.SOCK_DIAG_BY_FAMILY, request, func(body []byte) (err error) {
		s, err = parseSocket(body, request)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return socket{}, errNoSocket
	case err != nil:
		return socket{}, err
	case states&(1<<s.state) == 0 && s.inode != 0:
		return socket{}, errNoSocket
	}
	return s, nil
}

func diagRequest(src, dst netip.AddrPort, index uint32) ([]byte, error) {
	if src.Addr().Is4() != dst.Addr().Is4() {
		return nil, errors.New("addresses of different families")
	}
	family := byte(unix.AF_INET6)
	if src.Addr().Is4() {
		family = unix.AF_INET
	}
	b := make([]byte, 0, diagRequestBytes)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // states: ignored by a lookup
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	for _, a := range []netip.Addr{src.Addr(), dst.Addr()} {
		var field [16]byte
		copy(field[:], a.AsSlice())
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, index)
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)), nil // cookie: INET_DIAG_NOCOOKIE
}

// parseSocket reads the answer to request. An answer about other ports is a listener that the lookup fell back to.
func parseSocket(b, request []byte) (socket, error) {
	if len(b) < diagReplyBytes || len(request) < diagRequestBytes {
		return socket{}, errMalformed
	}
	id := b[4 : 4+diagIDBytes]
	if [4]byte(id) != [4]byte(request[8:]) {
		return socket{}, errNoSocket
	}
	rest := b[4+diagIDBytes:]
	s := socket{
		state: b[1],
		// Two 32-bit halves in the machine's order, the low one first.
		cookie: uint64(binary.NativeEndian.Uint32(id[40:])) | uint64(binary.NativeEndian.Uint32(id[44:]))<<32,
		uid:    binary.NativeEndian.Uint32(rest[12:]),
		inode:  binary.NativeEndian.Uint32(rest[16:]),
	}
	if s.state > 31 {
		return socket{}, errMalformed
	}
	wellFormed := attributes(b[diagReplyBytes:], func(kind uint16, value []byte) bool {
		if kind == diagAttrCgroupID && len(value) == 8 {
			s.cgroup = binary.NativeEndian.Uint64(value)
		}
		return true
	})
	if !wellFormed {
		return socket{}, errMalformed
	}
	return s, nil
}

// probe looks up a listening socket of this process: the kernel answers "no such socket" also where it lacks the
// whole interface, so only a hit proves that it works. The result is what the kernel tells about this process's sockets.
func probe(n *netlink) (socket, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	own, err := probeAddress(n, &lc, "tcp4", "127.0.0.1:0")
	if err == nil {
		return own, nil
	}
	own, err6 := probeAddress(n, &lc, "tcp6", "[::1]:0")
	if err6 == nil {
		return own, nil
	}
	return socket{}, errors.Join(err, err6)
}

func probeAddress(n *netlink, lc *net.ListenConfig, network, address string) (s socket, err error) {
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return socket{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	src := addrPort(l.Addr())
	dst := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if src.Addr().Is6() {
		dst = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	s, err = lookupTCP(n, src, dst, 0, 1<<unix.BPF_TCP_LISTEN)
	if err != nil {
		return socket{}, err
	}
	inode, err := socketInode(l.(*net.TCPListener))
	if err == nil && inode != uint64(s.inode) {
		err = errors.New("sock_diag and fstat disagree about a socket")
	}
	return s, err
}

func socketInode(l *net.TCPListener) (uint64, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	var statErr error
	if err := raw.Control(func(fd uintptr) { statErr = unix.Fstat(int(fd), &st) }); err != nil {
		return 0, err
	}
	return uint64(st.Ino), statErr
}
