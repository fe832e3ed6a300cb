package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/cgroup"
	"bashd/internal/sandbox/runner"
)

// handle is a runner process, waiting or at work.
type handle struct {
	proc   *os.Process
	conn   *os.File // our end of the socketpair: jobs go out, records come in
	orders *os.File // write end of the pipe of orders
	done   chan struct{}
	jobs   uint32 // how many it was given
	served string // whom it has worked for; empty: nobody yet
	mode   Mode
	group  *cgroup.Group // of its commands; nil: none
	idle   time.Time     // since when it waits
	mounts uint64        // which state of the host's mounts it knows; see pool
}

// profile is what the commands of one mode have in common.
type profile struct {
	namespaced bool // their runners are started in mount, pid and IPC namespaces of their own
	setup      []byte
	ruleset    int                           // the sweeper's, -1: none
	mounts     uint64                        // the state of the host's mounts that it is of
	group      func() (*cgroup.Group, error) // makes a control group for the commands of one runner; nil: they have none
}

// family knows the runner processes of this daemon. Starting and listing exclude
// each other, so that a child that is not listed is certainly none of ours.
type family struct {
	profile func(Mode) profile

	mu      sync.Mutex
	members map[int]*handle
	wg      sync.WaitGroup
}

// spawn starts a runner for commands of that mode, which waits for one when spawn returns.
func (f *family) spawn(m Mode) (*handle, error) {
	p := f.profile(m)
	var group *cgroup.Group
	if p.group != nil {
		var err error
		if group, err = p.group(); err != nil {
			return nil, err
		}
	}
	h, err := f.launch(&handle{mode: m, mounts: p.mounts, group: group, done: make(chan struct{})}, p.namespaced)
	if err != nil {
		if group != nil {
			_ = group.Remove()
		}
		return nil, err
	}
	if err := h.prepare(p); err != nil {
		h.dismiss()
		return nil, err
	}
	return h, nil
}

// prepare tells a runner what all of its commands have in common. An error may be a [runner.StartError].
func (h *handle) prepare(p profile) error {
	var fds []int
	if p.ruleset >= 0 {
		fds = append(fds, p.ruleset)
	}
	if h.group != nil {
		fds = append(fds, h.group.FD())
	}
	if err := h.send(runner.MessageSetup, p.setup, fds); err != nil {
		return err
	}
	rec, err := h.receive(time.Now().Add(startTimeout))
	switch {
	case err != nil:
		return fmt.Errorf("the runner ended before it was ready: %w", err)
	case rec.Kind == runner.KindFailed:
		return &runner.StartError{Stage: runner.Stage(rec.A), Errno: syscall.Errno(rec.B)}
	case rec.Kind != runner.KindReady:
		return fmt.Errorf("the runner sent an unexpected record %q", rec.Kind)
	}
	return nil
}

// launch starts the process of h, and returns h.
func (f *family) launch(h *handle, namespaced bool) (_ *handle, err error) {
	var undo closers
	defer undo.close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := undo.add(os.NewFile(uintptr(pair[1]), "runner"))
	h.conn = ourEnd(pair[0], "runner")
	defer func() {
		if err != nil {
			h.dismiss()
		}
	}()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	read := undo.add(os.NewFile(uintptr(pipe[0]), "orders"))
	h.orders = ourEnd(pipe[1], "orders")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	undo.add(null)
	if err := f.start(h, namespaced, null, null, os.Stderr, theirs, read); err != nil {
		return nil, err
	}
	return h, nil
}

// closers closes what was only needed for a while.
type closers []*os.File

func (c *closers) add(f *os.File) *os.File {
	*c = append(*c, f)
	return f
}

func (c *closers) close() {
	for _, f := range *c {
		f.Close()
	}
}

func (f *family) start(h *handle, namespaced bool, files ...*os.File) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if namespaced && os.Geteuid() != 0 {
		// The ids of a user namespace can only be written by who may look into the process, which is still a copy of this one.
		defer dumpable()()
	}
	defer slacken()()
	// /proc/self/exe is the running binary even after a new one was put in its place.
	h.proc, err = os.StartProcess("/proc/self/exe", []string{runner.Argv0}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1", "GOGC=off", "GOTRACEBACK=none"},
		Files: files,
		Sys:   attributes(namespaced),
	})
	if err != nil {
		return err
	}
	if f.members == nil {
		f.members = map[int]*handle{}
	}
	f.members[h.proc.Pid] = h
	f.wg.Go(func() { f.await(h) })
	return nil
}

// attributes says how a runner is started.
func attributes(namespaced bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true} // a ^C at the daemon's terminal is not for its commands
	if !namespaced {
		return a
	}
	a.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC
	if uid := os.Geteuid(); uid != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		// Which execve would drop; the runner mounts, and its commands' bounding sets are dropped.
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	}
	return a
}

// runnerSlack is the timer slack of a runner's threads. With the kernel's 50 µs the scheduler of its Go runtime wakes ten thousand times a
// second while a command starts, takes the processor of its GOMAXPROCS from the thread that does the work at each system call, and gives
// it back by way of two more threads: a seventh of the time of a short command. A runner waits for events and seldom for time.
const runnerSlack = 5 * time.Millisecond

// slacken gives the calling thread, and by that what is started by it, the slack of a runner until the function that it returns is
// called. Commands get theirs back: see [runner.Setup].
func slacken() (restore func()) {
	runtime.LockOSThread()
	was := timerSlack()
	if was == 0 || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(runnerSlack), 0, 0, 0) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(was), 0, 0, 0)
		runtime.UnlockOSThread()
	}
}

// timerSlack is the calling thread's, in nanoseconds; 0: it cannot be told.
func timerSlack() uint64 {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || ns <= 0 {
		return 0
	}
	return uint64(ns)
}

// dumpable makes this process one that others of its user may look into, until the function that it returns is
// called.
func dumpable() (restore func()) {
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || was != 0 {
		return func() {}
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	return func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
}

// await reaps the runner. It stays a member until then, so that its pid cannot
// be taken for a stranger's.
func (f *family) await(h *handle) {
	_, _ = h.proc.Wait()
	f.mu.Lock()
	delete(f.members, h.proc.Pid)
	f.mu.Unlock()
	close(h.done)
	if h.group != nil {
		// What it cannot remove, for something in an uninterruptible wait, the tree's end or the next start does.
		_ = h.group.Remove()
	}
}

// pids lists the runners that live.
func (f *family) pids() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	pids := make([]int, 0, len(f.members))
	for pid := range f.members {
		pids = append(pids, pid)
	}
	return pids
}

// assign sends a waiting runner its job. The descriptors stay the caller's.
func (h *handle) assign(job *runner.Job, fds []int) error {
	h.jobs++
	job.Sequence = h.jobs
	return h.send(runner.MessageJob, job.Append(nil), fds)
}

// send sends a message with its content in a memfd, and descriptors beside it.
func (h *handle) send(kind byte, content []byte, fds []int) error {
	memfd, err := memfile("bashd-job", content)
	if err != nil {
		return err
	}
	defer unix.Close(memfd)
	rights := unix.UnixRights(append([]int{memfd}, fds...)...)
	raw, err := h.conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), []byte{kind}, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}

// order sends one of the runner.Order bytes for the present job. A runner that is gone
// needs none, and a pipe that is full of orders needs no more of them.
func (h *handle) order(b byte) {
	_ = h.orders.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = h.orders.Write(binary.LittleEndian.AppendUint32([]byte{b}, h.jobs))
}

// receive reads the next record; an error means that the runner is gone or wedged.
func (h *handle) receive(deadline time.Time) (runner.Record, error) {
	if err := h.conn.SetReadDeadline(deadline); err != nil {
		return runner.Record{}, err
	}
	var buf [runner.RecordSize + 1]byte
	n, err := h.conn.Read(buf[:])
	if errors.Is(err, unix.ECONNRESET) {
		// The runner exited with an order of ours unread. The kernel tells that once, and
		// ahead of the records that the runner had sent.
		n, err = h.conn.Read(buf[:])
	}
	if err != nil {
		return runner.Record{}, err
	}
	rec, ok := runner.ParseRecord(buf[:n])
	if !ok {
		return rec, errors.New("malformed record")
	}
	return rec, nil
}

// ready waits until the runner can serve another job; false: it ends instead.
func (h *handle) ready() bool {
	rec, err := h.receive(time.Now().Add(startTimeout))
	return err == nil && rec.Kind == runner.KindReady
}

// wake has a runner go on that a command with full access has stopped.
func (h *handle) wake() {
	if h.mode == FullAccess && h.proc != nil {
		_ = h.proc.Signal(syscall.SIGCONT)
	}
}

// dismiss ends the runner and what it may have started.
func (h *handle) dismiss() {
	defer h.wake()
	h.conn.Close()
	if h.orders != nil {
		h.orders.Close()
	}
}

// memfile returns an anonymous file with that content, at its start.
func memfile(name string, content []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	for off := 0; off < len(content); {
		n, err := unix.Pwrite(fd, content[off:], int64(off))
		if err != nil {
			unix.Close(fd)
			return -1, os.NewSyscallError("pwrite", err)
		}
		off += n
	}
	return fd, nil
}
