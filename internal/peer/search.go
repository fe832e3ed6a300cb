package peer

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// One search takes some milliseconds on a busy host. One that is still not done after this is being led on.
	searchLimit = time.Second
	// The part of it that goes to the commands themselves. A command's descriptors may be many.
	commandsLimit = 10 * time.Millisecond
	// How many of the processes that began last are looked at before all others, and for how long at most.
	newestLooked = 32
	newestLimit  = 5 * time.Millisecond
	// Commands with more processes than this are not skipped but looked at like any other.
	maxSkipped = 4096
)

// search looks through /proc for the process that holds one socket.
type search struct {
	checker  *Checker
	socket   socket
	link     string // how a descriptor of the socket reads in /proc/<pid>/fd
	isRoot   func(pid int) bool
	deadline time.Time
}

// searchHolder lets the peer in only if a process that is no command holds socket s.
func (c *Checker) searchHolder(s socket) Verdict {
	c.searching.Lock()
	defer c.searching.Unlock()
	trees := c.trees()
	run := search{
		checker:  c,
		socket:   s,
		link:     linkOf(s),
		isRoot:   rootsOf(c.self, trees),
		deadline: time.Now().Add(searchLimit),
	}
	if recent := int(c.recent.Load()); recent != 0 {
		if v, known := run.examine(recent, false); known {
			return v
		}
	}
	if v, known := run.newest(); known {
		return v
	}
	skip := commands(trees)
	if v, known := run.commands(skip); known {
		return v
	}
	// Threads have their process's descriptors, all but a few: those few are looked at only before a refusal.
	for _, threads := range []bool{false, true} {
		if v, known := run.outsiders(skip, threads); known {
			return v
		}
	}
	return refuse("no process outside the commands holds the socket")
}

func linkOf(s socket) string { return fmt.Sprintf("socket:[%d]", s.inode) }

// rootsOf returns what a command is below of: this process or a runner. The runners are below this process, too, but name the
// command better.
func rootsOf(self int, trees []int) func(pid int) bool {
	roots := make(map[int]bool, len(trees)+1)
	roots[self] = true
	for _, pid := range trees {
		if pid > 0 {
			roots[pid] = true
		}
	}
	return func(pid int) bool { return roots[pid] }
}

func (s *search) expired() bool { return time.Now().After(s.deadline) }

// commands looks among the commands themselves. That changes no verdict: it makes the refusal of a command that hides
// nothing cheap, and names its process.
func (s *search) commands(pids map[int]bool) (v Verdict, known bool) {
	quick := *s
	quick.deadline = time.Now().Add(commandsLimit)
	for _, pid := range slices.Backward(slices.Sorted(maps.Keys(pids))) {
		if quick.expired() {
			break
		}
		if v, known := quick.examine(pid, false); known {
			return v, true
		}
	}
	return Verdict{}, false
}

// newest looks among the processes that began last, whosever they are. A client that was started to make one call
// is one of them, and then it does not matter how many commands run: to list those takes longest.
func (s *search) newest() (v Verdict, known bool) {
	pids, err := allPids()
	if err != nil {
		return Verdict{}, false // the search proper will say so
	}
	quick := *s
	quick.deadline = time.Now().Add(newestLimit)
	for _, pid := range pids[:min(len(pids), newestLooked)] {
		if quick.expired() {
			break
		}
		if v, known := quick.examine(pid, false); known {
			return v, true
		}
	}
	return Verdict{}, false
}

// outsiders looks among all processes but those in skip. That saves time only: a command cannot make the search slow with open
// files, and one that is missing in skip is found out when it holds the socket.
func (s *search) outsiders(skip map[int]bool, threads bool) (v Verdict, known bool) {
	pids, err := allPids()
	if err != nil {
		return refuse("reading /proc: %v", err), true
	}
	for _, pid := range pids {
		if skip[pid] {
			continue
		}
		if s.expired() {
			return refuse("search for the socket's holder took too long"), true
		}
		if v, known := s.examine(pid, threads); known {
			return v, true
		}
	}
	return Verdict{}, false
}

// examine decides by one process. A process that does not hold the socket, or about which something stays
// unknown, decides nothing.
func (s *search) examine(pid int, threads bool) (v Verdict, known bool) {
	table, fd, found := s.holds(pid, threads)
	if !found {
		return Verdict{}, false
	}
	defer unix.Close(table)
	p, err := processOf(pid, table, threads)
	if err != nil {
		return Verdict{}, false
	}
	defer p.close()
	if pid != s.checker.self {
		root, err := p.ancestorIn(s.isRoot)
		switch {
		case err != nil:
			return Verdict{}, false
		case root == s.checker.self:
			return refuse("socket held by pid %d below the daemon", pid), true
		case root != 0:
			return refuse("socket held by pid %d below runner %d", pid, root), true
		case s.isRoot(pid):
			return refuse("socket held by runner %d", pid), true
		}
	}
	if !s.checker.cgroups.holds(p) || !threads && s.isOther(pid, fd) {
		return Verdict{}, false
	}
	s.checker.recent.Store(int64(pid))
	return admit("socket held by pid %d", pid), true
}

// holds looks for the socket in the descriptor table of process pid, or else in those of its other threads: a thread that was
// made without CLONE_FILES, or left the common table, has one of its own. It returns the open directory and the descriptor's number.
func (s *search) holds(pid int, threads bool) (table, fd int, found bool) {
	proc := "/proc/" + strconv.Itoa(pid)
	if !threads {
		return s.holdsIn(proc + "/fd")
	}
	tasks, err := unix.Open(proc+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	defer unix.Close(tasks)
	// The links of a task directory are two and one a thread.
	if st := (unix.Stat_t{}); unix.Fstat(tasks, &st) == nil && st.Nlink == 3 {
		return 0, 0, false
	}
	_ = numbers(tasks, func(tid int, name string) bool {
		if tid != pid && !shareTable(pid, tid) {
			table, fd, found = s.holdsIn(proc + "/task/" + name + "/fd")
		}
		return !found && !s.expired()
	})
	return table, fd, found
}

func (s *search) holdsIn(path string) (table, fd int, found bool) {
	table, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	var all []int
	// A table that ends with an error is no evidence for what was not read of it.
	_ = numbers(table, func(number int, _ string) bool {
		all = append(all, number)
		return len(all)%1024 != 0 || !s.expired()
	})
	// A new connection tends to have the highest number, and to read a link is what takes time.
	var buf [32]byte
	for _, number := range slices.Backward(all) {
		n, err := unix.Readlinkat(table, strconv.Itoa(number), buf[:])
		if err == nil && string(buf[:n]) == s.link {
			fd, found = number, true
		}
		if found || s.expired() {
			break
		}
	}
	if !found {
		unix.Close(table)
	}
	return table, fd, found
}

// shareTable says whether two threads are known to have one descriptor table, so that it need not be read again.
func shareTable(pid, tid int) bool {
	const kcmpFiles = 2 // KCMP_FILES, <linux/kcmp.h>
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), kcmpFiles, 0, 0, 0)
	return errno == 0 && order == 0
}

// isOther says whether descriptor fd of process pid is known to be another socket than the one looked for, one with
// the same inode number. False where this process may not find out.
func (s *search) isOther(pid, fd int) bool {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	dup, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dup)
	protocol, err := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol == unix.IPPROTO_MPTCP {
		// The kernel shows the inode of a multipath socket for its flows, but their own cookies.
		return err != nil
	}
	cookie, err := unix.GetsockoptUint64(dup, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err != nil || cookie != s.socket.cookie
}

// commands returns the processes at and below the roots, as far as /proc lists children.
func commands(roots []int) map[int]bool {
	if len(roots) == 0 {
		return nil
	}
	seen := make(map[int]bool, 2*len(roots))
	for queue := roots; len(queue) > 0 && len(seen) < maxSkipped; {
		pid := queue[0]
		queue = queue[1:]
		if pid <= 0 || seen[pid] {
			continue
		}
		seen[pid] = true
		queue = append(queue[:len(queue):len(queue)], childrenOf(pid)...)
	}
	return seen
}

// childrenOf returns the children of all threads of a process; none where the kernel does not list them.
func childrenOf(pid int) []int {
	p, err := openProcess(pid)
	if err != nil {
		return nil
	}
	defer p.close()
	tasks, err := unix.Openat(p.dir, "task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(tasks)
	var children []int
	_ = numbers(tasks, func(_ int, name string) bool {
		children = append(children, readChildren(tasks, name+"/children")...)
		return len(children) < maxSkipped
	})
	return children
}

func readChildren(dir int, name string) []int {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	list, err := io.ReadAll(file)
	if err != nil {
		return nil
	}
	var children []int
	for field := range strings.FieldsSeq(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil {
			children = append(children, pid)
		}
	}
	return children
}
