package runner

import (
	"syscall"
	"unsafe"
)

// call is one system call of the child's list.
type call struct {
	trap     uintptr
	a        [5]uintptr
	stage    Stage
	tolerate bool          // go on whatever it returns
	want     syscall.Errno // go on only on this error; 0: on success
}

// maxCalls bounds the list: 65 signals, 64 capabilities, a few dozen of the rest.
const maxCalls = 256

// list is the child's list of system calls, complete before the clone. It is
// a fixed array, since the child cannot allocate, and lies in a global, so
// that no pointer in it can move.
type list struct {
	calls [maxCalls]call
	n     int
	keep  []any // what the calls point at
}

func (l *list) add(stage Stage, trap uintptr, args ...uintptr) *call {
	c := &l.calls[l.n]
	*c = call{trap: trap, stage: stage}
	copy(c.a[:], args)
	l.n++
	return c
}

func (l *list) reset() {
	clear(l.keep)
	l.n, l.keep = 0, l.keep[:0]
}

// pin keeps p alive for as long as the list and returns its address.
func pin[T any](l *list, p *T) uintptr {
	l.keep = append(l.keep, p)
	return uintptr(unsafe.Pointer(p))
}

// report is what a child tells over its status pipe: its pid, or a failed
// step. End of file without a failed step means that execve happened.
type report struct {
	kind  uint32
	value uint32
	errno uint32
}

const (
	reportPid    = 1
	reportFailed = 2
)

// child holds all that the code after clone touches.
var child childState

type childState struct {
	sweeper list // what the sweeper does before it clones the command
	command list // what the command's process does, execve last
	status  uintptr
	orders  uintptr // the sweeper's read end of the pipe that the runner commands it by
	runner  uintptr // the runner's pid
	rep     report
	order   byte
}

func (c *childState) reset() {
	c.sweeper.reset()
	c.command.reset()
}

// spawn clones the process that carries out child.command, below a
// sweeper if so asked. It returns the pid of what it cloned itself. The caller's
// thread is locked, and blocks all signals: a handler must not run in a
// child, whose copy of the Go runtime has one thread only.
//
//go:norace
//go:nocheckptr
//go:noinline
func spawn(sweeper bool) (pid uintptr, errno syscall.Errno) {
	var flags uintptr = uintptr(syscall.SIGCHLD)
	if sweeper {
		flags = 0 // exit signal 0: wait4(-1) does not see it
	}
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	if sweeper {
		becomeSweeper()
	}
	carryOut(&child.command)
	return 0, 0 // not reached: the last call is execve, and a failed one exits
}

// carryOut does the calls of a list; the first that fails is reported and
// ends the process.
//
//go:nosplit
//go:norace
//go:nocheckptr
func carryOut(l *list) {
	for i := 0; i < l.n && i < maxCalls; i++ {
		c := &l.calls[i]
		_, _, e := syscall.RawSyscall6(c.trap, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], 0)
		if e != c.want && !c.tolerate {
			fail(c.stage, e)
		}
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func fail(stage Stage, e syscall.Errno) {
	child.rep = report{reportFailed, uint32(stage), uint32(e)}
	syscall.RawSyscall(syscall.SYS_WRITE, child.status, uintptr(unsafe.Pointer(&child.rep)), unsafe.Sizeof(child.rep))
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

// becomeSweeper enters the domain, clones the command into it and then serves orders
// until their pipe ends. It returns in the command's process only.
//
//go:nosplit
//go:norace
//go:nocheckptr
func becomeSweeper() {
	carryOut(&child.sweeper)
	// CLONE_PARENT makes the command the runner's child; execve gives it SIGCHLD
	// as its exit signal, so that from then on wait4(-1) sees it.
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_PARENT, 0, 0, 0, 0, 0)
	if e != 0 {
		fail(StageClone, e)
	}
	if pid == 0 {
		return
	}
	child.rep = report{kind: reportPid, value: uint32(pid)}
	syscall.RawSyscall(syscall.SYS_WRITE, child.status, uintptr(unsafe.Pointer(&child.rep)), unsafe.Sizeof(child.rep))
	// Nothing else may stay open here: not the command's pipes, whose end the
	// daemon waits for, and not the runner's socket, whose end is the lifeline.
	syscall.RawSyscall(syscall.SYS_DUP3, child.orders, 0, 0)
	syscall.RawSyscall(sysCloseRange, 1, ^uintptr(0)>>32, 0)
	serveOrders()
}

// serveOrders sends each signal that is ordered to every process of the
// domain, and SIGKILL when the orders end.
//
//go:nosplit
//go:norace
//go:nocheckptr
func serveOrders() {
	const all = ^uintptr(0) // kill(-1)
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READ, 0, uintptr(unsafe.Pointer(&child.order)), 1)
		if e == syscall.EINTR {
			continue
		}
		// The domain never changes, and that it holds was seen before the command was
		// cloned; look again all the same, since kill(-1) outside a domain would reach the
		// whole system. ESRCH: the runner is gone.
		_, _, e = syscall.RawSyscall(syscall.SYS_KILL, child.runner, 0, 0)
		scoped := e == syscall.EPERM || e == syscall.ESRCH
		if n != 1 {
			if scoped {
				syscall.RawSyscall(syscall.SYS_KILL, all, uintptr(syscall.SIGKILL), 0)
			}
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
		if scoped {
			syscall.RawSyscall(syscall.SYS_KILL, all, uintptr(child.order), 0)
		}
	}
}
