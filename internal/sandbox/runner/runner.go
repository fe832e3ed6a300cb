package runner

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// The role is taken here and not in main, because main begins only after every
// package that the daemon needs has initialised.
func init() {
	if len(os.Args) == 1 && os.Args[0] == Argv0 {
		run()
		syscall.Exit(0) // there is nothing to flush, and os.Exit would have the race detector wait a second
	}
}

// runner is the state of the process. The main thread starts, waits and
// reaps; a second goroutine reads orders.
type runner struct {
	shell    int    // pid of bash
	sweeper  int    // pid of X, 0: none; written while nothing runs
	usage    usage  // of the present job
	world    *world // nil: this runner has no namespaces of its own
	oom      int    // descriptor of the process's OOM score, -1: none
	ownOOM   int
	sweeping atomic.Bool // SIGKILL is being sent; never taken back

	mu       sync.Mutex
	sequence uint32 // guarded by mu; of the present job
	running  bool   // guarded by mu: orders are for a command that runs
	ordered  bool   // guarded by mu: one was carried out
	toX      int    // guarded by mu; write end of X's orders, -1: none
}

// run serves one job after another, until the daemon closes the socket or a
// job leaves the process in a state that the next one should not inherit.
func run() {
	// PDEATHSIG of the command follows the thread that cloned it.
	runtime.LockOSThread()
	// Losing this would let orphans fall to the daemon instead, which kills them.
	_ = prctl(prSetChildSubreaper, 1)
	r := &runner{}
	r.oom, r.ownOOM = openOOMScore(atFDCWD, "/proc/self/oom_score_adj")
	_ = prctl(prSetDumpable, 0)
	syscall.CloseOnExec(SocketFD)
	syscall.CloseOnExec(OrdersFD)
	for again := true; again; {
		setup, job, f, ok := receive()
		switch {
		case !ok:
			return // the daemon needs no runner any more
		case setup != nil:
			again = r.setUp(setup)
		default:
			again = r.serve(job, f)
		}
		if again {
			again = r.ready()
		}
	}
}

// setUp makes the file tree of a runner in namespaces of its own.
func (r *runner) setUp(s *Setup) (again bool) {
	// A mount that something is open for writing on cannot be made read-only.
	syscall.Close(r.oom)
	w, err := makeWorld(s)
	if err != nil {
		r.send(Record{Kind: KindFailed, A: uint64(err.Stage), B: uint64(err.Errno)})
		return false
	}
	r.world = w
	_ = prctl(prSetDumpable, 1) // else the file is not its own
	r.oom, r.ownOOM = openOOMScore(w.view, "proc/self/oom_score_adj")
	_ = prctl(prSetDumpable, 0)
	return true
}

// ready takes away what a command added to the file tree, and says that another may come.
func (r *runner) ready() bool {
	if r.world != nil && r.world.leave() != nil {
		return false
	}
	r.send(Record{Kind: KindReady})
	return true
}

// serve runs one job to its end and reports whether the process can serve another.
func (r *runner) serve(job *Job, f fds) (again bool) {
	if job == nil || job.Namespaced != (r.world != nil) {
		r.send(Record{Kind: KindFailed, A: uint64(StageJob), B: uint64(syscall.EINVAL)})
		return false
	}
	r.mu.Lock()
	first := r.sequence == 0
	r.sequence, r.shell, r.sweeper, r.toX, r.usage = job.Sequence, 0, 0, -1, usage{}
	r.mu.Unlock()
	writeOOMScore(r.oom, job.OOMScore) // the command inherits it
	err := r.enter(job, &f)
	if err == nil {
		err = r.start(job, f)
	}
	writeOOMScore(r.oom, r.ownOOM)
	closeAll(f)
	if err != nil {
		r.send(Record{Kind: KindFailed, A: uint64(err.Stage), B: uint64(err.Errno)})
		r.dismissSweeper()
		return false
	}
	r.mu.Lock()
	r.running, r.ordered = true, false
	r.mu.Unlock()
	r.send(Record{Kind: KindExec})
	if first {
		go r.obey()
	}
	return r.wait()
}

func (r *runner) enter(j *Job, f *fds) *StartError {
	if r.world == nil {
		return nil
	}
	return r.world.enter(j, f)
}

func (r *runner) send(rec Record) {
	var buf [RecordSize]byte
	// A daemon that is gone is noticed by obey.
	send(SocketFD, rec.Append(buf[:0]))
}

// start clones the command and waits until it was executed or failed.
func (r *runner) start(j *Job, f fds) *StartError {
	var status, orders [2]int
	if err := syscall.Pipe2(status[:], syscall.O_CLOEXEC); err != nil {
		return &StartError{StageClone, err.(syscall.Errno)}
	}
	defer syscall.Close(status[0])
	child.reset()
	child.status, child.runner = uintptr(status[1]), uintptr(os.Getpid())
	if j.Sweeper {
		if err := syscall.Pipe2(orders[:], syscall.O_CLOEXEC); err != nil {
			syscall.Close(status[1])
			return &StartError{StageClone, err.(syscall.Errno)}
		}
		r.toX, child.orders = orders[1], uintptr(orders[0])
		prepareSweeper(f)
	}
	err := prepareCommand(j, f, r.toX)
	if err == nil {
		err = r.clone(j.Sweeper)
	}
	syscall.Close(status[1])
	if j.Sweeper {
		syscall.Close(orders[0])
	}
	if errno, ok := err.(syscall.Errno); ok {
		return &StartError{StageClone, errno}
	} else if err != nil {
		return &StartError{StageJob, syscall.EINVAL}
	}
	return r.awaitExec(status[0])
}

// clone runs spawn with every signal blocked on this thread.
func (r *runner) clone(sweeper bool) error {
	all, old := ^uint64(0), uint64(0)
	rtSigprocmask(&all, &old)
	pid, errno := spawn(sweeper)
	rtSigprocmask(&old, nil)
	if errno != 0 {
		return errno
	}
	if sweeper {
		r.sweeper = int(pid)
	} else {
		r.shell = int(pid)
	}
	return nil
}

func rtSigprocmask(set, old *uint64) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// awaitExec reads what the children report until the pipe ends, which is when
// execve has closed its last writer.
func (r *runner) awaitExec(status int) *StartError {
	var failed *StartError
	for {
		var rep report
		n, err := syscall.Read(status, unsafe.Slice((*byte)(unsafe.Pointer(&rep)), unsafe.Sizeof(rep)))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != int(unsafe.Sizeof(rep)) {
			break
		}
		switch rep.kind {
		case reportPid:
			r.shell = int(rep.value)
		case reportFailed:
			failed = &StartError{Stage(rep.value), syscall.Errno(rep.errno)}
		}
	}
	if failed == nil && r.shell == 0 {
		// The sweeper died without a word: nothing ran.
		failed = &StartError{StageSweeper, syscall.ECHILD}
	}
	if failed != nil && r.shell != 0 {
		reap(r.shell)
	}
	return failed
}

// reap waits for one child, whatever its exit signal.
func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, syscall.WALL, nil); err != syscall.EINTR {
			return
		}
	}
}

// usage sums up what reaped processes used, each with what it had itself waited for.
type usage struct {
	user, system, maxRSS uint64 // µs, µs, KiB
}

func (u *usage) add(ru *syscall.Rusage) {
	u.user += uint64(ru.Utime.Nano() / 1000)
	u.system += uint64(ru.Stime.Nano() / 1000)
	u.maxRSS = max(u.maxRSS, uint64(ru.Maxrss))
}

// wait reaps until nothing is left, and reports the shell's end and the tree's. It
// returns whether the process is as it was before the job.
func (r *runner) wait() (again bool) {
	survivors := uint64(0)
	exited := Record{}
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		options := 0
		if exited.Kind != 0 {
			options = syscall.WNOHANG // is anybody else left? The daemon need not ask then
		}
		pid, err := syscall.Wait4(-1, &ws, options, &ru)
		if err == syscall.EINTR {
			continue
		}
		if exited.Kind != 0 && (err != nil || pid == 0) {
			if err != nil {
				exited.B = 1
			}
			r.send(exited)
			exited.Kind = 0
		}
		if err != nil { // ECHILD
			return r.gone(survivors)
		}
		if pid == 0 {
			continue
		}
		r.usage.add(&ru)
		switch {
		case pid == r.shell:
			exited = Record{Kind: KindExited, A: uint64(ws)}
			r.mu.Lock()
			if r.ordered {
				exited.C = 1
			}
			r.mu.Unlock()
		case r.sweeping.Load() && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
			survivors++
		}
	}
}

// gone reports the end of the tree, after which no order is obeyed. A process that has
// been sweeping has changed its priority, and ends.
func (r *runner) gone(survivors uint64) (again bool) {
	r.mu.Lock()
	r.running = false
	again = !r.sweeping.Load()
	r.mu.Unlock()
	r.send(Record{Kind: KindGone, A: survivors, B: r.usage.user, C: r.usage.system, D: r.usage.maxRSS})
	r.dismissSweeper()
	return again
}

// dismissSweeper ends X, which first kills what a failed start may have left.
func (r *runner) dismissSweeper() {
	r.mu.Lock()
	if r.toX >= 0 {
		syscall.Close(r.toX)
		r.toX = -1
	}
	r.mu.Unlock()
	if r.sweeper > 0 {
		reap(r.sweeper)
	}
}

// openOOMScore opens the runner's oom_score_adj, before the process stops
// being dumpable and the file stops being its own, and reads it. The command
// inherits the score that the runner has when it clones.
func openOOMScore(dir int, path string) (fd, score int) {
	fd, err := syscall.Openat(dir, path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, 0
	}
	var buf [16]byte
	n, _ := syscall.Read(fd, buf[:])
	for n > 0 && buf[n-1] == '\n' {
		n--
	}
	score, _ = strconv.Atoi(string(buf[:max(n, 0)]))
	return fd, score
}

func writeOOMScore(fd, score int) {
	if fd >= 0 {
		_, _ = syscall.Pwrite(fd, strconv.AppendInt(nil, int64(score), 10), 0)
	}
}
