package httpapi

import (
	"context"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchClient returns a context that ends when the client goes away or closes
// its sending side, and what stops the watch; both must happen before the
// handler returns.
//
// net/http ends the request's context by itself, at once, but with HTTP/1 only
// while no byte follows the body: it reads one to learn of the end, and once it
// got one (a pipelined request, a stray newline) it looks no further. So the
// socket is asked besides, every clientPollEvery: it knows of the other side's
// end however much is unread. HTTP/2 needs none of this; its connection is
// always read.
func (s *Server) watchClient(r *http.Request) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	socket := rawSocket(r)
	if socket == nil {
		return ctx, cancel
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(s.clientPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if peerClosed(socket) {
					cancel()
				}
			}
		}
	})
	return ctx, func() { cancel(); wg.Wait() }
}

// rawSocket is the socket of an HTTP/1 request, nil where there is none to ask.
func rawSocket(r *http.Request) syscall.RawConn {
	c := connOf(r)
	if c == nil || r.ProtoMajor != 1 {
		return nil
	}
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// peerClosed reports that the other side will send no more. A socket that
// cannot be asked was closed by us.
func peerClosed(socket syscall.RawConn) bool {
	var closed bool
	err := socket.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		closed = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return closed || err != nil
}
