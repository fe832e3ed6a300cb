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

// maxCalls bounds a list: 64 signals, 64 capabilities, a dozen of the rest; or 64 limits and two dozen.
const maxCalls = 192

// list is a list of system calls. It is a fixed array, since a child cannot allocate.
type list struct {
	n     int
	calls [maxCalls]call
}

func (l *list) add(stage Stage, trap uintptr, args ...uintptr) *call {
	c := &l.calls[l.n] // a list too long would be a mistake of ours, and a panic here
	*c = call{trap: trap, stage: stage}
	copy(c.a[:], args)
	l.n++
	return c
}

// report is what a child tells over its status pipe: its pid, that it has begun with what is left to do, or a failed
// step. End of file after it has begun, without a failed step, means that execve happened.
type report struct {
	kind  uint32
	value uint32
	errno uint32
}

const (
	reportPid    = 1
	reportFailed = 2
	reportBegun  = 3
)

// Descriptors of the process that waits to become a command, above the three that every program has.
const (
	childSocket = 3 // what is left to do comes by it
	childStatus = 4 // the write end of the pipe of reports
	childFirst  = 5 // the first that comes with what is left to do
)

// maxChildFDs bounds the descriptors that a command's process is sent.
const maxChildFDs = 24

// child holds all that the code after clone touches. It lies in a global, so that no pointer into it can move.
var child childState

type childState struct {
	sweeper list // what the sweeper does before it clones the command
	early   list // what the command's process does before it waits
	late    *list
	status  uintptr // write end of the pipe of reports
	socket  uintptr
	orders  uintptr   // the sweeper's read end of the pipe that the runner commands it by
	runner  uintptr   // the runner's pid
	group   cloneArgs // cgroup 0: the command is started in none
	rep     report
	order   byte
	keep    []any // what the early lists point at

	msg     syscall.Msghdr
	iov     syscall.Iovec
	control [16 + 4*maxChildFDs]byte
}

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTid, parentTid, exitSignal, stack, stackSize, tls, setTid, setTidSize, cgroup uint64
}

const (
	sysClone3       = 435
	cloneIntoCgroup = 0x200000000
)

// cloneCommand clones the process that will become the command, into its control group if it has one.
//
//go:nosplit
//go:norace
//go:nocheckptr
func cloneCommand(flags uintptr) (pid uintptr, errno syscall.Errno) {
	if child.group.cgroup == 0 {
		pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, flags, 0, 0, 0, 0, 0)
		return pid, errno
	}
	child.group.flags = cloneIntoCgroup | uint64(flags&^0xff)
	child.group.exitSignal = uint64(flags & 0xff)
	pid, _, errno = syscall.RawSyscall(sysClone3, uintptr(unsafe.Pointer(&child.group)), unsafe.Sizeof(child.group), 0)
	return pid, errno
}

// pin keeps p alive for as long as the early lists and returns its address.
func pin[T any](p *T) uintptr {
	child.keep = append(child.keep, p)
	return uintptr(unsafe.Pointer(p))
}

// spawn clones the process that will become the command, below a
// sweeper if so asked. It returns the pid of what it cloned itself. The caller's
// thread is locked, and blocks all signals: a handler must not run in a
// child, whose copy of the Go runtime has one thread only.
//
//go:norace
//go:nocheckptr
//go:noinline
func spawn(sweeper bool) (pid uintptr, errno syscall.Errno) {
	if sweeper {
		// Exit signal 0: wait4(-1) does not see it.
		pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	} else {
		pid, errno = cloneCommand(uintptr(syscall.SIGCHLD))
	}
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	if sweeper {
		becomeSweeper()
	}
	keepOnly()
	carryOut(&child.early)
	await()
	carryOut(child.late)
	return 0, 0 // not reached: the last call is execve, and a failed one exits
}

// keepOnly leaves the process the descriptors that it needs. Above all not the write end of a sweeper's orders, nor the runner's socket, whose ends are
// how the runner's and the daemon's death are seen.
//
//go:nosplit
//go:norace
//go:nocheckptr
func keepOnly() {
	_, _, e := syscall.RawSyscall(syscall.SYS_DUP3, child.socket, childSocket, syscall.O_CLOEXEC)
	if e == 0 {
		_, _, e = syscall.RawSyscall(syscall.SYS_DUP3, child.status, childStatus, syscall.O_CLOEXEC)
	}
	if e != 0 {
		fail(StageDescriptors, e)
	}
	child.status = childStatus
	closeFrom(childFirst)
}

// maxRunnerFDs is more descriptors than a runner ever has.
const maxRunnerFDs = 1024

// closeFrom closes all descriptors from first on.
//
//go:nosplit
//go:norace
//go:nocheckptr
func closeFrom(first uintptr) {
	if _, _, e := syscall.RawSyscall(sysCloseRange, first, ^uintptr(0)>>32, 0); e == 0 {
		return
	}
	for fd := first; fd < maxRunnerFDs; fd++ { // a kernel before 5.9, or a filter that does not know the call
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	}
}

// await waits for the word to go on, which comes with the descriptors that the rest of the list names. The end of the
// socket is the runner's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func await() {
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_RECVMSG, childSocket, uintptr(unsafe.Pointer(&child.msg)), syscall.MSG_CMSG_CLOEXEC)
		switch {
		case e == syscall.EINTR:
		case e != 0:
			fail(StageDescriptors, e)
		case n == 0:
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		case child.msg.Flags&syscall.MSG_CTRUNC != 0 || *(*int32)(unsafe.Pointer(&child.control[16])) != childFirst:
			fail(StageDescriptors, syscall.EMFILE)
		default:
			// Else one that was killed while it waited could not be told from one that was executed.
			child.rep = report{kind: reportBegun}
			syscall.RawSyscall(syscall.SYS_WRITE, child.status, uintptr(unsafe.Pointer(&child.rep)), unsafe.Sizeof(child.rep))
			return
		}
	}
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
	pid, e := cloneCommand(syscall.CLONE_PARENT)
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
	closeFrom(1)
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
