package sandbox

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// mountWatch counts changes of the mounts that this process sees.
type mountWatch struct {
	mu    sync.Mutex
	file  *os.File // nil where there is nothing to watch
	count uint64
}

func watchMounts() *mountWatch {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return &mountWatch{}
	}
	return &mountWatch{file: f}
}

// state returns a number that grows with each change.
func (w *mountWatch) state() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return w.count
	}
	// Each poll tells of what has changed since the one before.
	p := []unix.PollFd{{Fd: int32(w.file.Fd()), Events: unix.POLLPRI}}
	if n, err := unix.Poll(p, 0); err == nil && n > 0 && p[0].Revents&unix.POLLPRI != 0 {
		w.count++
	}
	return w.count
}

func (w *mountWatch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}
