package prober

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls that change their caller where they succeed (unshare, setuid, a mount) are made in a child, which ends after
// the first success and is cloned anew for the rest. So a confined prober clones once for all of them.

// rawCall is one system call.
type rawCall struct {
	trap uintptr
	args [6]uintptr
}

// raw makes a rawCall for a probe.
func raw(trap uintptr, args ...uintptr) (rawCall, error) {
	c := rawCall{trap: trap}
	copy(c.args[:], args)
	return c, nil
}

// maxCalls bounds a batch.
const maxCalls = 128

// batch is what the child works on, in globals, since it must not allocate; the outcomes lie in memory that
// it shares with the prober.
var batch struct {
	calls    [maxCalls]rawCall
	n        int
	outcomes *[maxCalls]int32 // -1: not tried; 0: succeeded; else the errno
	limits   [2]unix.Rlimit
}

// runBatch makes all calls and returns the errno of each. A child that dies of a call tells ECHILD.
func runBatch(calls []rawCall) ([]syscall.Errno, error) {
	if len(calls) > maxCalls {
		return nil, syscall.E2BIG
	}
	shared, err := syscall.Mmap(-1, 0, int(unsafe.Sizeof(*batch.outcomes)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		return nil, err
	}
	defer syscall.Munmap(shared)
	batch.outcomes = (*[maxCalls]int32)(unsafe.Pointer(&shared[0]))
	batch.n = copy(batch.calls[:], calls)
	for i := range batch.outcomes {
		batch.outcomes[i] = -1
	}
	for next := 0; next < batch.n; {
		pid, errno := cloneBatch(next)
		if errno != 0 {
			return nil, errno
		}
		reap(int(pid))
		for next < batch.n && batch.outcomes[next] > 0 {
			next++
		}
		if next < batch.n && batch.outcomes[next] < 0 {
			batch.outcomes[next] = int32(syscall.ECHILD)
		}
		next++ // it succeeded, or killed the child
	}
	errnos := make([]syscall.Errno, batch.n)
	for i := range errnos {
		errnos[i] = syscall.Errno(batch.outcomes[i])
	}
	clear(batch.calls[:])
	return errnos, nil
}

func reap(pid int) (status syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != syscall.EINTR {
			return status
		}
	}
}

// withoutSignals runs f, which clones, with all signals blocked: a handler must not run in the child, whose copy of the Go
// runtime has one thread only.
func withoutSignals(f func() (uintptr, syscall.Errno)) (uintptr, syscall.Errno) {
	const setMask = 2
	all, old := ^uint64(0), uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, errno := f()
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	return pid, errno
}

func cloneBatch(from int) (uintptr, syscall.Errno) {
	return withoutSignals(func() (uintptr, syscall.Errno) { return spawnBatch(from) })
}

//go:norace
//go:nocheckptr
//go:noinline
func spawnBatch(from int) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	makeCalls(from)
	return 0, 0 // not reached
}

//go:nosplit
//go:norace
//go:nocheckptr
func makeCalls(from int) {
	for i := from; i < batch.n && i < maxCalls; i++ {
		c := &batch.calls[i]
		_, _, e := syscall.RawSyscall6(c.trap, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		batch.outcomes[i] = int32(e)
		if e == 0 {
			break
		}
	}
	leave(0)
}

//go:nosplit
//go:norace
func leave(code uintptr) {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// clone makes a child that does nothing but exit, and waits for it.
func clone(flags uintptr) error {
	pid, errno := withoutSignals(func() (uintptr, syscall.Errno) { return spawnEmpty(flags) })
	if errno != 0 {
		return errno
	}
	reap(int(pid))
	return nil
}

//go:norace
//go:noinline
func spawnEmpty(flags uintptr) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		leave(0)
	}
	return pid, errno
}

// clonePausing makes a child that waits for a signal.
func clonePausing() (int, error) {
	pid, errno := withoutSignals(spawnPausing)
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

//go:norace
//go:noinline
func spawnPausing() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		// SIGKILL gets through although every signal is blocked.
		syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	}
	for errno == 0 && pid == 0 {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	return pid, errno
}

// cloneLimited makes a child that may have one process of its user and clones another. It returns the errno of that.
func cloneLimited() error {
	batch.limits[0] = unix.Rlimit{Cur: 1, Max: ^uint64(0)}
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &batch.limits[1]); err != nil {
		return err
	}
	batch.limits[0].Max = batch.limits[1].Max
	pid, errno := withoutSignals(spawnLimited)
	if errno != 0 {
		return errno
	}
	status := reap(int(pid))
	if !status.Exited() {
		return syscall.ECHILD
	}
	if code := status.ExitStatus(); code != 0 {
		return syscall.Errno(code)
	}
	return nil
}

//go:norace
//go:nocheckptr
//go:noinline
func spawnLimited() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	limitedChild()
	return 0, 0 // not reached
}

//go:nosplit
//go:norace
//go:nocheckptr
func limitedChild() {
	_, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(&batch.limits[0])), 0, 0, 0)
	if e != 0 {
		leave(uintptr(e))
	}
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid != 0 {
		syscall.RawSyscall6(syscall.SYS_WAIT4, pid, 0, 0, 0, 0, 0)
	}
	leave(uintptr(e))
}
