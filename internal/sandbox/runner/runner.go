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
	setup   *Setup
	ruleset int     // the sweeper's, -1: none
	group   int     // control group of the commands, -1: none
	world   *world  // nil: this runner has no namespaces of its own
	region  *region // shared with the process that waits
	oom     int     // descriptor of the process's OOM score, -1: none
	ownOOM  int
	settled bool // it has given back the memory that its start took

	shell    int         // pid of bash, or of what waits to become it
	sweeper  int         // pid of X, 0: none; written while nothing runs
	status   int         // read end of what they report
	gate     int         // socket of what waits, -1: nothing waits
	usage    usage       // of the present job
	sweeping atomic.Bool // SIGKILL is being sent; never taken back

	mu       sync.Mutex
	sequence uint32 // guarded by mu; of the present job
	running  bool   // guarded by mu: orders are for a command that runs
	ordered  bool   // guarded by mu: one was carried out
	toX      int    // guarded by mu; write end of X's orders, -1: none
}

// run takes a Setup and then serves one job after another, until the daemon closes the socket or a
// job leaves the process in a state that the next one should not inherit.
func run() {
	// PDEATHSIG of the command follows the thread that cloned it.
	runtime.LockOSThread()
	// Losing this would let orphans fall to the daemon instead, which kills them.
	_ = prctl(prSetChildSubreaper, 1)
	r := &runner{toX: -1, gate: -1, status: -1, ruleset: -1, group: -1}
	r.oom, r.ownOOM = openOOMScore(atFDCWD, "/proc/self/oom_score_adj")
	_ = prctl(prSetDumpable, 0)
	syscall.CloseOnExec(SocketFD)
	syscall.CloseOnExec(OrdersFD)
	m, ok := receive()
	if !ok {
		return
	}
	if err := r.setUp(m); err != nil {
		r.fail(err)
		return
	}
	go r.obey()
	reserveThreads()
	for again := true; again; {
		if err := r.prepare(); err != nil {
			r.fail(err)
			break
		}
		r.send(Record{Kind: KindReady})
		r.settle()
		m, ok := receive()
		again = ok && r.serve(m.job, m.fds) && r.tidy()
	}
	r.dismiss()
}

// spareThreads are those that the end of a command can need at once.
const spareThreads = 4

// reserveThreads has the runtime start threads ahead, which it keeps. A command can use up the ids of its pid namespace, or what its
// user may run: then there would be none to be had for killing it, and a Go program that gets no thread when it needs one aborts.
func reserveThreads() {
	var there, done sync.WaitGroup
	hold := make(chan struct{})
	there.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			there.Done()
			<-hold
		})
	}
	there.Wait()
	close(hold)
	done.Wait()
}

// setUp prepares for what all jobs have in common.
func (r *runner) setUp(m message) (failed *StartError) {
	if m.setup == nil {
		return &StartError{StageJob, syscall.EINVAL}
	}
	r.setup, r.ruleset, r.group = m.setup, m.sweeper, m.group
	var err error
	if r.region, err = newRegion(); err != nil {
		return stageError(StageClone, err)
	}
	if r.setup.World == nil {
		return nil
	}
	// A mount that something is open for writing on cannot be made read-only.
	syscall.Close(r.oom)
	if r.world, failed = makeWorld(r.setup.World); failed != nil {
		return failed
	}
	_ = prctl(prSetDumpable, 1) // else the file is not its own
	r.oom, r.ownOOM = openOOMScore(r.world.view, "proc/self/oom_score_adj")
	_ = prctl(prSetDumpable, 0)
	return nil
}

// serve runs one job to its end and reports whether the process can serve another.
func (r *runner) serve(job *Job, f fds) (again bool) {
	if job == nil {
		r.fail(&StartError{StageJob, syscall.EINVAL})
		return false
	}
	r.mu.Lock()
	r.sequence, r.usage = job.Sequence, usage{}
	r.mu.Unlock()
	err := r.enter(job, &f)
	if err == nil {
		err = r.start(job, f)
	}
	closeAll(f)
	if err != nil {
		r.fail(err)
		return false
	}
	r.mu.Lock()
	r.running, r.ordered = true, false
	r.mu.Unlock()
	r.send(Record{Kind: KindExec})
	r.region.clear()
	return r.wait()
}

func (r *runner) enter(j *Job, f *fds) *StartError {
	if r.world == nil {
		return nil
	}
	return r.world.enter(j, f)
}

// tidy takes away what a command added to the namespaces.
func (r *runner) tidy() bool {
	if r.world == nil {
		return true
	}
	// Queues, semaphores and shared memory go with their namespace. It is the calling thread's, which clones the next command.
	_, _, errno := syscall.RawSyscall(syscall.SYS_UNSHARE, syscall.CLONE_NEWIPC, 0, 0)
	return errno == 0 && r.world.leave() == nil
}

func (r *runner) fail(err *StartError) {
	r.send(Record{Kind: KindFailed, A: uint64(err.Stage), B: uint64(err.Errno)})
}

func (r *runner) send(rec Record) {
	var buf [RecordSize]byte
	// A daemon that is gone is noticed by obey.
	send(SocketFD, rec.Append(buf[:0]))
}

// prepare does what can be done for the next command while nobody waits for it.
func (r *runner) prepare() *StartError {
	if r.world != nil {
		if err := r.world.makeTemp(); err != nil {
			return stageError(StageTemp, err)
		}
	}
	return r.prefork()
}

// settle uses the time when no job comes: it rehearses one, and, once, gives back memory.
func (r *runner) settle() {
	if !idle(rehearseAfter) {
		return
	}
	r.rehearse()
	if r.settled || !idle(settleAfter) {
		return
	}
	r.settled = true
	forgetProgram()
	r.rehearse()
}

// rehearse does what the next job will have done, as far as it leaves nothing behind. After a clone the first write to each page copies
// it, and that is better done while nobody waits.
func (r *runner) rehearse() {
	j := &Job{Shell: "/bin/bash", Argv: []string{"bash", "-c", "--", "true"}, Workdir: "/"}
	for range 32 {
		j.Env = append(j.Env, "NAME=a value of some length, as there are many")
	}
	j, err := ParseJob(j.Append(nil))
	if err != nil {
		return
	}
	f := fds{stdin: -1, stdout: -1, stderr: -1, rulesets: []int{-1, -1}, script: -1}
	send, _ := prepareLate(r.region, j, f)
	_ = syscall.UnixRights(send...)
	r.region.clear()
	if fd, err := openPath(atFDCWD, "/", syscall.O_DIRECTORY, resolveNoMagic); err == nil {
		syscall.Close(fd)
	}
}

// prefork clones the process that will become the next command, as far as it does not matter which, while nobody waits for it.
func (r *runner) prefork() *StartError {
	var status, orders, gate [2]int
	if err := syscall.Pipe2(status[:], syscall.O_CLOEXEC); err != nil {
		return stageError(StageClone, err)
	}
	r.status = status[0]
	defer syscall.Close(status[1])
	gate, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return stageError(StageClone, err)
	}
	r.gate = gate[0]
	defer syscall.Close(gate[1])
	child.status, child.socket, child.runner, child.keep = uintptr(status[1]), uintptr(gate[1]), uintptr(os.Getpid()), nil
	if r.setup.Sweeper {
		if err := syscall.Pipe2(orders[:], syscall.O_CLOEXEC); err != nil {
			return stageError(StageClone, err)
		}
		defer syscall.Close(orders[0])
		r.mu.Lock()
		r.toX = orders[1]
		r.mu.Unlock()
		child.orders = uintptr(orders[0])
		prepareSweeper(r.ruleset)
	}
	prepareEarly(r.setup)
	child.late = r.region.late()
	child.group = cloneArgs{}
	if r.group >= 0 {
		child.group = cloneArgs{cgroup: uint64(r.group)}
	}
	child.iov = syscall.Iovec{Base: &child.order, Len: 1}
	child.msg = syscall.Msghdr{Iov: &child.iov, Iovlen: 1, Control: &child.control[0], Controllen: uint64(len(child.control))}
	writeOOMScore(r.oom, r.setup.OOMScore) // the command inherits it
	err = r.clone(r.setup.Sweeper)
	writeOOMScore(r.oom, r.ownOOM)
	if err != nil {
		return stageError(StageClone, err)
	}
	return nil
}

// start sends what waits on its way and waits until the command was executed or failed.
func (r *runner) start(j *Job, f fds) *StartError {
	send, err := prepareLate(r.region, j, f)
	if err != nil {
		return err.(*StartError)
	}
	// Where it is gone, killed for want of memory for one, that it has not begun tells.
	_ = syscall.Sendmsg(r.gate, []byte{1}, syscall.UnixRights(send...), nil, syscall.MSG_NOSIGNAL)
	syscall.Close(r.gate)
	r.gate = -1
	return r.awaitExec()
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
		r.sweeper, r.shell = int(pid), 0 // which X reports
	} else {
		r.sweeper, r.shell = 0, int(pid)
	}
	return nil
}

func rtSigprocmask(set, old *uint64) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// awaitExec reads what the children report until the pipe ends, which is when
// execve has closed its last writer.
func (r *runner) awaitExec() *StartError {
	defer func() {
		syscall.Close(r.status)
		r.status = -1
	}()
	var failed *StartError
	begun := false
	for {
		var rep report
		n, err := syscall.Read(r.status, unsafe.Slice((*byte)(unsafe.Pointer(&rep)), unsafe.Sizeof(rep)))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != int(unsafe.Sizeof(rep)) {
			break
		}
		switch rep.kind {
		case reportPid:
			r.shell = int(rep.value)
		case reportBegun:
			begun = true
		case reportFailed:
			failed = &StartError{Stage(rep.value), syscall.Errno(rep.errno)}
		}
	}
	if failed == nil && r.shell == 0 {
		// The sweeper died without a word: nothing ran.
		failed = &StartError{StageSweeper, syscall.ECHILD}
	}
	if failed == nil && !begun {
		failed = &StartError{StageClone, syscall.ECHILD}
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
		if !ws.Exited() && !ws.Signaled() {
			letGo(pid, ws)
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

// letGo ends the tracing of a process that has asked its parent to trace it (PTRACE_TRACEME): a stop is no end. It goes on with the
// signal that it was about to get.
func letGo(pid int, ws syscall.WaitStatus) {
	const detach = 17 // PTRACE_DETACH
	sig := uintptr(0)
	if ws.Stopped() && ws.StopSignal() != syscall.SIGTRAP {
		sig = uintptr(ws.StopSignal())
	}
	_, _, _ = syscall.Syscall6(syscall.SYS_PTRACE, detach, uintptr(pid), 0, sig, 0, 0)
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

// dismiss ends what waits, and X, so that nothing is left when this process ends.
func (r *runner) dismiss() {
	if r.gate >= 0 {
		syscall.Close(r.gate)
		_ = r.awaitExec() // which reaps what has not begun
	}
	r.dismissSweeper()
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
