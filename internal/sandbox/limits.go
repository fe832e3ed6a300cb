package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/runner"
)

// Limits bound one command. Zero means no limit of ours.
type Limits struct {
	OpenFiles   uint64 // descriptors a process
	FileBytes   uint64 // size of a file that it writes
	CPUSeconds  uint64 // processor time a process
	Processes   uint64 // and threads; see Report.Processes for how
	MemoryBytes uint64 // of all processes together; see Report.Memory
}

// reservedThreads are what commands leave of the user's processes and threads, where those are limited.
const reservedThreads = 64

// runnerThreads is how many threads a runner has at most.
const runnerThreads = 16

// maxPendingSignals bounds what a command can queue: the kernel counts them for the user, and who has the higher limit is not
// kept from his by who has used up his own.
const maxPendingSignals = 1024

// reservedFiles are the descriptors by which the daemon's limit is above a command's: the kernel counts those that are in flight
// between processes for the user, too, and the daemon sends each command some.
const reservedFiles = 1024

// capped bounds the open files of a command by those of the daemon.
func (l Limits) capped() Limits {
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &own) == nil {
		most := own.Cur - min(reservedFiles, own.Cur/2)
		if l.OpenFiles == 0 || l.OpenFiles > most {
			l.OpenFiles = most
		}
	}
	return l
}

// resolve turns the limits into what setrlimit takes, never above what the daemon itself may
// grant.
func (l Limits) resolve(processes string) []runner.Limit {
	limits := []runner.Limit{{Resource: unix.RLIMIT_CORE}}
	add := func(resource int, n uint64) {
		if n == 0 {
			return
		}
		var own unix.Rlimit
		if unix.Getrlimit(resource, &own) == nil {
			n = min(n, own.Max)
		}
		if resource == unix.RLIMIT_NPROC && own.Cur != unix.RLIM_INFINITY {
			// The kernel counts commands and the daemon together. A Go program that gets no thread when it needs one
			// ends, so what commands may have leaves some.
			n = min(n, own.Cur-min(reservedThreads, own.Cur/4))
		}
		limits = append(limits, runner.Limit{Resource: resource, Soft: n, Hard: n})
	}
	add(unix.RLIMIT_NOFILE, l.OpenFiles)
	add(unix.RLIMIT_SIGPENDING, maxPendingSignals)
	add(unix.RLIMIT_FSIZE, l.FileBytes)
	add(unix.RLIMIT_CPU, l.CPUSeconds)
	switch {
	case l.Processes == 0, processes == ProcessesCgroup:
	case processes == ProcessesUserNS:
		// The user namespace is the command's own, but for the threads of its runner.
		limits = append(limits, runner.Limit{Resource: unix.RLIMIT_NPROC, Soft: l.Processes + runnerThreads, Hard: l.Processes + runnerThreads})
	default:
		// RLIMIT_NPROC counts all that the user runs, not the command's own, so what is
		// there already comes on top. The system's total is at least that, and costs
		// one small file to learn. User 0 is never held to it.
		add(unix.RLIMIT_NPROC, l.Processes+systemThreads())
	}
	return limits
}

// processes says how the processes of confined commands are limited.
func (s *Sandbox) processes() string {
	uid := os.Geteuid()
	if s.cfg.RunAs != nil {
		uid = int(s.cfg.RunAs.UID)
	}
	switch {
	case s.groups != nil && s.groups.Pids():
		return ProcessesCgroup
	case s.tier == TierNamespaces && os.Geteuid() != 0:
		return ProcessesUserNS
	case s.tier == TierNamespaces && boundsPids():
		return ProcessesPidNS
	case uid == 0:
		return ProcessesUnlimited
	}
	return ProcessesUser
}

// boundsPids tells whether a pid namespace has a bound on its ids that is its own. Before Linux 6.14 (commit 7863dcc72d0f) there was one for
// the whole system, to be set from within every namespace: whoever tries lowers that of the host. So this is one of the few things that cannot
// be found out by trying.
var boundsPids = sync.OnceValue(func() bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && atLeast(unix.ByteSliceToString(u.Release[:]), 6, 14)
})

// atLeast compares a release of the kernel, such as 6.12.95+deb12-cloud-amd64. What it cannot read is older than anything.
func atLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// systemThreads is how many threads the kernel runs for everybody, from the
// fourth field of /proc/loadavg ("1/234").
func systemThreads() uint64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1 << 16
	}
	fields := strings.Fields(string(b))
	if len(fields) < 4 {
		return 1 << 16
	}
	_, total, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseUint(total, 10, 32)
	if err != nil {
		return 1 << 16
	}
	return n
}

// limitsOf are the limits of a command of that mode.
func (s *Sandbox) limitsOf(m Mode) []runner.Limit {
	processes := s.processes()
	if !s.namespaced(m) && processes != ProcessesCgroup {
		processes = ProcessesUser
	}
	return s.cfg.Limits.resolve(processes)
}
