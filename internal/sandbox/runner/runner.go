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
	sendMu   sync.Mutex // one record at a time
	shell    int
	sweeper  int // pid of X, 0: none
	orders   int // write end of X's orders, -1: none
	sweeping atomic.Bool
}

func run() {
	// PDEATHSIG of the command follows the thread that cloned it.
	runtime.LockOSThread()
	// Losing this would let orphans fall to the daemon instead, which kills them.
	_ = prctl(prSetChildSubreaper, 1)
	oom, ownOOM := openOOMScore()
	_ = prctl(prSetDumpable, 0)
	syscall.CloseOnExec(SocketFD)

	r := &runner{orders: -1}
	job, f, ok := receive()
	if !ok {
		return // the daemon needed no runner any more
	}
	if job == nil {
		r.send(Record{Kind: KindFailed, A: uint64(StageJob), B: uint64(syscall.EINVAL)})
		return
	}
	writeOOMScore(oom, job.OOMScore)
	err := r.start(job, f)
	writeOOMScore(oom, ownOOM)
	closeAll(f)
	if err != nil {
		r.send(Record{Kind: KindFailed, A: uint64(err.Stage), B: uint64(err.Errno)})
		r.dismissSweeper()
		return
	}
	r.send(Record{Kind: KindExec, A: uint64(r.shell)})
	go r.obey()
	r.wait()
	r.dismissSweeper()
}

func (r *runner) send(rec Record) {
	var buf [RecordSize]byte
	r.sendMu.Lock()
	defer r.sendMu.Unlock()
	// A daemon that is gone is noticed by obey.
	send(SocketFD, rec.Append(buf[:0]))
}

// receive waits for the Job and its descriptors. ok is false when the
// daemon closed the socket instead; job is nil when what came is no Job.
func receive() (job *Job, f fds, ok bool) {
	var buf [8]byte
	oob := make([]byte, syscall.CmsgSpace(32*4))
	var n, oobn int
	var err error
	for {
		n, oobn, _, _, err = syscall.Recvmsg(SocketFD, buf[:], oob, syscall.MSG_CMSG_CLOEXEC)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil || n == 0 {
		return nil, f, false
	}
	got, err := parseFDs(oob[:oobn])
	if err != nil || len(got) == 0 {
		return nil, f, true
	}
	job, err = readJob(got[0])
	syscall.Close(got[0])
	if err != nil {
		return nil, f, true
	}
	f, fits := assign(job, got[1:])
	if !fits {
		return nil, f, true
	}
	return job, f, true
}

func parseFDs(oob []byte) ([]int, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, errBadJob
	}
	return syscall.ParseUnixRights(&msgs[0])
}

func readJob(memfd int) (*Job, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(memfd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, st.Size)
	for done := 0; done < len(b); {
		n, err := syscall.Pread(memfd, b[done:], int64(done))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, errBadJob
		}
		done += n
	}
	return ParseJob(b)
}

// assign tells the descriptors that follow the Job apart; see [Job].
func assign(j *Job, got []int) (f fds, ok bool) {
	next := func() int {
		if len(got) == 0 {
			ok = false
			return -1
		}
		fd := got[0]
		got = got[1:]
		return fd
	}
	ok = true
	f = fds{stdin: next(), stdout: next(), stderr: next(), workdir: next(), sweeper: -1, script: -1}
	for range j.Rulesets {
		f.rulesets = append(f.rulesets, next())
	}
	if j.Sweeper {
		f.sweeper = next()
	}
	if j.HasScript {
		f.script = next()
	}
	return f, ok && len(got) == 0
}

func closeAll(f fds) {
	for _, fd := range append([]int{f.stdin, f.stdout, f.stderr, f.workdir, f.sweeper, f.script}, f.rulesets...) {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
}

// start clones the command and waits until it was executed or failed.
func (r *runner) start(j *Job, f fds) *StartError {
	var status, orders [2]int
	if err := syscall.Pipe2(status[:], syscall.O_CLOEXEC); err != nil {
		return &StartError{StageClone, err.(syscall.Errno)}
	}
	defer syscall.Close(status[0])
	child.status, child.runner = uintptr(status[1]), uintptr(os.Getpid())
	if j.Sweeper {
		if err := syscall.Pipe2(orders[:], syscall.O_CLOEXEC); err != nil {
			syscall.Close(status[1])
			return &StartError{StageClone, err.(syscall.Errno)}
		}
		r.orders, child.orders = orders[1], uintptr(orders[0])
		prepareSweeper(f)
	}
	err := prepareCommand(j, f, r.orders)
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

// wait reaps until nothing is left, and reports the shell's end and the tree's.
func (r *runner) wait() {
	survivors := uint64(0)
	exited := Record{}
	for {
		var ws syscall.WaitStatus
		options := 0
		if exited.Kind != 0 {
			options = syscall.WNOHANG // is anybody else left? The daemon need not ask then
		}
		pid, err := syscall.Wait4(-1, &ws, options, nil)
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
		switch {
		case err != nil: // ECHILD
			r.reportGone(survivors)
			return
		case pid == 0:
		case pid == r.shell:
			exited = Record{Kind: KindExited, A: uint64(ws)}
		case r.sweeping.Load() && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
			survivors++
		}
	}
}

func (r *runner) reportGone(survivors uint64) {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ru)
	µs := func(t syscall.Timeval) uint64 { return uint64(t.Nano() / 1000) }
	r.send(Record{KindGone, survivors, µs(ru.Utime), µs(ru.Stime), uint64(ru.Maxrss)})
}

// dismissSweeper ends X, which first kills what a failed start may have left.
func (r *runner) dismissSweeper() {
	if r.orders >= 0 {
		syscall.Close(r.orders)
	}
	if r.sweeper > 0 {
		reap(r.sweeper)
	}
}

// openOOMScore opens the runner's oom_score_adj, before the process stops
// being dumpable and the file stops being its own, and reads it. The command
// inherits the score that the runner has when it clones.
func openOOMScore() (fd, score int) {
	fd, err := syscall.Open("/proc/self/oom_score_adj", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
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
