package sandbox

import (
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/runner"
)

// reaper makes the daemon the last resort of its commands' processes: what
// falls to it, because a runner was killed from outside, it kills and reaps. It must only
// run in a process whose every child is a runner.
type reaper struct {
	family *family
	log    *slog.Logger
	stop   chan struct{}
	done   chan struct{}
}

// reapInterval is how often the reaper looks. That a runner is lost is rare, and
// for confined commands the sweeper has killed everything long before; the look costs
// one small file a thread of the daemon.
const reapInterval = 250 * time.Millisecond

func newReaper(f *family, log *slog.Logger) (*reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	r := &reaper{f, log, make(chan struct{}), make(chan struct{})}
	go r.run()
	return r, nil
}

func (r *reaper) run() {
	defer close(r.done)
	tick := time.NewTicker(reapInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
			r.collect()
		}
	}
}

// collect kills and reaps the children that are no runners. Their descendants
// fall to the daemon in turn.
func (r *reaper) collect() {
	r.family.mu.Lock()
	defer r.family.mu.Unlock()
	for _, pid := range runner.Children(os.Getpid()) {
		if _, ours := r.family.members[pid]; ours {
			continue
		}
		// Our own child, not yet reaped: the pid cannot have passed to anybody else.
		_ = unix.Kill(pid, unix.SIGKILL)
		if got, _ := unix.Wait4(pid, nil, unix.WALL|unix.WNOHANG, nil); got == pid {
			r.log.Warn("reaped a process that a lost runner left", "pid", pid)
		}
	}
}

func (r *reaper) close() {
	close(r.stop)
	<-r.done
	r.collect()
}
