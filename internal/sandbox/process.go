package sandbox

import (
	"os"
	"sync"
	"syscall"
	"time"

	"bashd/internal/sandbox/runner"
)

// Process is one command that runs. Its two ends are told apart: bash exited, and
// nothing of its tree is left.
type Process struct {
	Stdout *os.File // read end; the caller closes it
	Stderr *os.File // read end, nil when merged into Stdout; the caller closes it
	Stdin  *os.File // write end, nil when the command reads /dev/null; the caller closes it

	h      *handle
	give   func(*handle) // takes a runner back that waits for another job
	exited chan struct{}
	gone   chan struct{}

	mu     sync.Mutex
	over   bool // guarded by mu: h works for somebody else, or for nobody
	killed bool // guarded by mu

	// Written before exited is closed.
	status syscall.WaitStatus
	alone  bool
	before bool // no order had been carried out
	lost   bool
	// Written before gone is closed.
	survivors int
	usage     Usage
}

// Usage is what a command and everything below it used.
type Usage struct {
	User, System time.Duration
	MaxRSSBytes  int64 // the largest process
}

// Runner is the process id of the command's runner, below which everything of the command is; for logs.
func (p *Process) Runner() int { return p.h.proc.Pid }

// Exited is closed when bash has ended, or the runner is lost.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when nothing of the command's tree is left, or the runner is lost (then
// whatever was left is being killed).
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Status is how bash ended. ok is false when the runner was lost before it could
// tell. Only after Exited.
func (p *Process) Status() (ws syscall.WaitStatus, ok bool) { return p.status, !p.lost }

// Alone reports that bash left nothing behind. Only after Exited.
func (p *Process) Alone() bool { return p.alone }

// ByItself reports that bash ended before Terminate or Kill reached it, though it may have been told later
// than that. Only after Exited.
func (p *Process) ByItself() bool { return p.before }

// Survivors counts what Kill had to kill after bash had ended. Only after Gone.
func (p *Process) Survivors() int { return p.survivors }

// Usage is what the whole tree used. Only after Gone.
func (p *Process) Usage() Usage { return p.usage }

// Terminate sends SIGTERM, and SIGCONT so that stopped processes act on it, to
// everything of the tree. After Gone it does nothing.
func (p *Process) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.h.order(runner.OrderTerminate)
		p.h.wake()
	}
}

// Kill sends SIGKILL to everything of the tree until nothing is left; Gone tells. After
// Gone it does nothing.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && !p.killed {
		p.killed = true
		p.h.order(runner.OrderKill)
		p.h.wake()
		if p.h.mode == FullAccess && p.h.group != nil {
			// Faster than the runner can be who has no other means than to look for them; who has left the group is
			// his all the same.
			_ = p.h.group.Kill()
		}
	}
}

// Abandon gives up on a tree that Kill could not end in time. The runner goes on killing.
func (p *Process) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.h.dismiss()
	}
}

// watch reads the runner's records until the end of the command, and then until it can serve another.
func (p *Process) watch() {
	whole := p.follow()
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	close(p.gone)
	if whole && p.h.ready() {
		p.give(p.h)
	} else {
		p.h.dismiss()
	}
}

// follow returns whether all was told.
func (p *Process) follow() (whole bool) {
	exited := false
	defer func() {
		if !exited {
			p.lost = true
			close(p.exited)
		}
	}()
	for {
		rec, err := p.h.receive(time.Time{})
		if err != nil {
			return false
		}
		switch rec.Kind {
		case runner.KindExited:
			if !exited {
				p.status, p.alone, p.before = syscall.WaitStatus(rec.A), rec.B == 1, rec.C == 0
				exited = true
				close(p.exited)
			}
		case runner.KindGone:
			p.survivors = int(rec.A)
			p.usage = Usage{
				User: time.Duration(rec.B) * time.Microsecond, System: time.Duration(rec.C) * time.Microsecond,
				MaxRSSBytes: int64(rec.D) * 1024,
			}
			return exited
		}
	}
}
