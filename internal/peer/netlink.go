package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	netlinkSockDiag = unix.NETLINK_SOCK_DIAG
	netlinkRoute    = unix.NETLINK_ROUTE

	// The kernel answers before the request's send returns, so a reply that takes this long never comes.
	netlinkTimeoutSec = 1
	// Enough for any one socket or route; a longer answer is refused as truncated.
	netlinkBufferBytes = 8 << 10
	// Answers to requests that were given up on may lie in front of the wanted one.
	netlinkMaxStale = 64
)

var (
	errClosed    = errors.New("netlink socket is closed")
	errMalformed = errors.New("malformed netlink message")
)

// netlink is one request and reply channel to the kernel.
type netlink struct {
	mu  sync.Mutex // held over a whole round trip
	fd  int        // -1 when closed
	seq uint32     // of the last request
	buf [netlinkBufferBytes]byte
}

func openNetlink(protocol int) (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: netlinkTimeoutSec}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &netlink{fd: fd}, nil
}

func (n *netlink) close() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd < 0 {
		return nil
	}
	fd := n.fd
	n.fd = -1
	return unix.Close(fd)
}

// roundTrip sends one request and hands the body of its answer, of type reply, to parse, which must not keep it. An
// error that the kernel answers with is a unix.Errno.
func (n *netlink) roundTrip(request, reply uint16, body []byte, parse func([]byte) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd < 0 {
		return errClosed
	}
	n.seq++
	msg := make([]byte, 0, unix.NLMSG_HDRLEN+len(body))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, request)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST)
	msg = binary.NativeEndian.AppendUint32(msg, n.seq)
	msg = binary.NativeEndian.AppendUint32(msg, 0)
	msg = append(msg, body...)
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := retryInterrupted(func() error { return unix.Sendto(n.fd, msg, 0, kernel) }); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	answer, err := n.receiveLocked(reply)
	if err != nil {
		return err
	}
	return parse(answer)
}

// receiveLocked returns the body of the answer to request n.seq.
func (n *netlink) receiveLocked(reply uint16) ([]byte, error) {
	for range netlinkMaxStale {
		datagram, err := n.receiveDatagramLocked()
		if err != nil {
			return nil, err
		}
		body, found, err := findReply(datagram, n.seq, reply)
		if err != nil || found {
			return body, err
		}
	}
	return nil, errors.New("no answer among stale ones")
}

func (n *netlink) receiveDatagramLocked() ([]byte, error) {
	for range netlinkMaxStale {
		var size, flags int
		var from unix.Sockaddr
		err := retryInterrupted(func() (err error) {
			size, _, flags, from, err = unix.Recvmsg(n.fd, n.buf[:], nil, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("receiving: %w", err)
		}
		// Any process may send to a netlink socket; only the kernel has port 0.
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		if flags&unix.MSG_TRUNC != 0 {
			return nil, errMalformed
		}
		return n.buf[:size], nil
	}
	return nil, errors.New("no answer among foreign messages")
}

// findReply looks in one datagram for the answer to request seq. An NLMSG_ERROR for it becomes the unix.Errno it
// carries; messages with another sequence number are skipped.
func findReply(datagram []byte, seq uint32, reply uint16) (body []byte, found bool, err error) {
	for len(datagram) > 0 {
		if len(datagram) < unix.NLMSG_HDRLEN {
			return nil, false, errMalformed
		}
		size := binary.NativeEndian.Uint32(datagram)
		if size < unix.NLMSG_HDRLEN || uint64(size) > uint64(len(datagram)) {
			return nil, false, errMalformed
		}
		kind := binary.NativeEndian.Uint16(datagram[4:])
		body := datagram[unix.NLMSG_HDRLEN:size]
		if binary.NativeEndian.Uint32(datagram[8:]) == seq {
			switch kind {
			case reply:
				return body, true, nil
			case unix.NLMSG_ERROR:
				return nil, false, kernelError(body)
			default:
				return nil, false, errMalformed
			}
		}
		datagram = datagram[min(align4(int(size)), len(datagram)):]
	}
	return nil, false, nil
}

func kernelError(body []byte) error {
	if len(body) < 4 {
		return errMalformed
	}
	code := int32(binary.NativeEndian.Uint32(body))
	// 0 would be an acknowledgement, which no request of ours asks for; errno values end at 4095.
	if code >= 0 || code < -4095 {
		return errMalformed
	}
	return unix.Errno(-code)
}

// attributes calls visit for each attribute of b until it returns false, and says whether b was well formed so far.
func attributes(b []byte, visit func(kind uint16, value []byte) bool) bool {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return false
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if !visit(kind, b[unix.SizeofRtAttr:size]) {
			return true
		}
		b = b[min(align4(size), len(b)):]
	}
	return len(b) == 0
}

func align4(n int) int { return (n + 3) &^ 3 }

func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
