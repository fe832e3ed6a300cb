package runner

import (
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// obey carries out the daemon's orders. End of file means that the daemon is gone:
// then everything is killed, and the process ends when nothing is left, or when it hangs in the start of a command.
func (r *runner) obey() {
	var order [OrderSize]byte
	for {
		n, err := syscall.Read(OrdersFD, order[:])
		if err == syscall.EINTR {
			continue
		}
		// The pipe takes and gives an order as a whole, since it is short.
		if err != nil || n != OrderSize {
			time.AfterFunc(orphanPatience, r.leaveIdle)
			r.forRunning(func() { r.sweeping.Store(true) })
			r.killAll()
		}
		r.mu.Lock()
		sequence := r.sequence
		r.mu.Unlock()
		if binary.LittleEndian.Uint32(order[1:]) != sequence {
			continue
		}
		switch order[0] {
		case OrderTerminate:
			// Stopped processes act on SIGTERM only when they continue.
			r.forRunning(func() { r.signalAll(syscall.SIGTERM, syscall.SIGCONT) })
		case OrderKill:
			if r.forRunning(func() { r.sweeping.Store(true) }) {
				go r.killAll() // and go on listening: the daemon may vanish meanwhile
			}
		}
	}
}

// orphanPatience is how long a runner may take to notice by itself that its daemon is gone, when no command runs.
const orphanPatience = 500 * time.Millisecond

// leaveIdle ends the process unless a command runs. Who waits to become one sees that.
func (r *runner) leaveIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		syscall.Exit(0)
	}
	time.AfterFunc(orphanPatience, r.leaveIdle)
}

// forRunning does something about the command, if one still runs.
func (r *runner) forRunning(do func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		// One that is on its way out takes no signal any more: its end is its own.
		r.ordered = r.ordered || !exiting(r.shell)
		do()
	}
	return r.running
}

// killAll kills until the process ends with the last of the tree. There is
// no bound here: a process in an uninterruptible wait dies when it can, and until
// then somebody has to be there to reap it.
func (r *runner) killAll() {
	hasten()
	for {
		pause := true // one order to X reaches everything; the next is for a sweeper that was lost, or for a job that is just starting
		r.forRunning(func() {
			r.signalAll(syscall.SIGKILL)
			pause = r.sweeper > 0 || r.world != nil
		})
		if pause {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// hasten gives killing and reaping what they need to be faster than a tree that
// forks as fast as it is killed: a processor each, and precedence, which only root can have.
func hasten() {
	runtime.LockOSThread()
	runtime.GOMAXPROCS(2)
	for _, tid := range []int{0, os.Getpid()} { // this thread, and the main one, which reaps
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -20)
	}
}

// signalAll sends signals, one after the other, to everything below the runner.
func (r *runner) signalAll(sigs ...syscall.Signal) {
	rest := sigs
	for len(rest) > 0 && r.signalAtOnce(rest[0]) {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return
	}
	if rest[0] == syscall.SIGKILL {
		// Sent again and again: what counts is to be fast.
		walk(os.Getpid(), func(p Proc) { signalIfChildOf(p.Pid, p.Parent, syscall.SIGKILL) })
		return
	}
	// Sent once: everybody is listed first, and once for all of them, since a parent that acts on a signal at once takes its children from
	// where they would be looked for.
	list := Descendants(os.Getpid())
	for _, sig := range rest {
		for _, p := range list {
			signalIfChildOf(p.Pid, p.Parent, sig)
		}
	}
}

// signalAtOnce sends a signal to the whole tree with one call, where there is one that does; false: there is none.
func (r *runner) signalAtOnce(sig syscall.Signal) bool {
	if r.world != nil {
		// This is process 1 of a pid namespace: all others in it are the command's.
		_ = syscall.Kill(-1, sig)
		return true
	}
	if r.toX < 0 {
		return false
	}
	_, err := syscall.Write(r.toX, []byte{byte(sig)})
	return err == nil // else the sweeper is gone: only an out-of-memory kill does that
}

// signalIfChildOf signals pid only if it still is a child of parent: a pid may be
// reaped and given to a stranger between the look and the signal. The
// pidfd fixes who is meant before the look.
func signalIfChildOf(pid, parent int, sig syscall.Signal) {
	fd, err := pidfdOpen(pid)
	if err == syscall.ENOSYS {
		_ = syscall.Kill(pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	now, ok := parentOf(pid)
	if ok && (now == parent || now == os.Getpid()) {
		pidfdSendSignal(fd, sig)
	}
}

// Proc is one process of a tree.
type Proc struct {
	Pid, Parent int
}

// Descendants lists the processes below root, root excluded, parents
// before children. It is a look at something that moves: a process that forks
// and exits meanwhile may be missed.
func Descendants(root int) []Proc {
	var all []Proc
	walk(root, func(p Proc) { all = append(all, p) })
	return all
}

// walk visits the processes below root, parents before children, each as soon as it is seen.
func walk(root int, visit func(Proc)) {
	children := Children
	if !childrenListed() {
		children = everybodysChildren()
	}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children(queue[0]) {
			visit(Proc{c, queue[0]})
			queue = append(queue, c)
		}
	}
}

// childrenListed reports that the kernel was built with CONFIG_PROC_CHILDREN.
func childrenListed() bool {
	var st syscall.Stat_t
	return syscall.Stat("/proc/thread-self/children", &st) == nil
}

// Children reads the children of every thread of pid.
func Children(pid int) (children []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, t := range tasks {
		b, err := os.ReadFile(dir + t.Name() + "/children")
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			if c, err := strconv.Atoi(f); err == nil {
				children = append(children, c)
			}
		}
	}
	return children
}

// everybodysChildren answers like Children where that has nothing to read, from
// everybody's parent.
func everybodysChildren() func(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if parent, ok := parentOf(pid); ok {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	return func(pid int) []int { return children[pid] }
}

// parentOf reads the parent of pid from /proc/pid/stat, whose second field is a name in
// parentheses that may itself hold spaces and parentheses.
func parentOf(pid int) (int, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := statFields(b)
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// statFields are the fields of a stat file behind the name, the state being the first.
func statFields(stat []byte) []string {
	s := string(stat)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// exiting reports that a process has begun to end (PF_EXITING of linux/sched.h), or has ended.
func exiting(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := statFields(b)
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err == nil && flags&0x4 != 0
}
