package sandbox

import (
	"sync"

	"golang.org/x/sys/unix"
)

// mountWatch counts changes of the mounts that this process sees.
type mountWatch struct {
	mu    sync.Mutex
	fd    int // -1 where there is nothing to watch
	count uint64
}

func watchMounts() *mountWatch {
	// Not by package os, whose poller would take the news before we look.
	fd, err := unix.Open("/proc/self/mounts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return &mountWatch{fd: fd}
}

// state returns a number that grows with each change.
func (w *mountWatch) state() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		w.count++ // nothing is known, so everything may have changed
		return w.count
	}
	// Each poll tells of what has changed since the one before.
	p := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLPRI}}
	if n, err := unix.Poll(p, 0); err == nil && n > 0 && p[0].Revents&unix.POLLPRI != 0 {
		w.count++
	}
	return w.count
}

func (w *mountWatch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		unix.Close(w.fd)
		w.fd = -1
	}
}
