package sandbox

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/runner"
)

// Limits bound one command. Zero means no limit of ours.
type Limits struct {
	OpenFiles  uint64 // descriptors a process
	FileBytes  uint64 // size of a file that it writes
	CPUSeconds uint64 // processor time a process
	Processes  uint64 // see resolve: approximate
}

// reservedThreads are what commands leave of the user's processes and threads, where those are limited.
const reservedThreads = 64

// resolve turns the limits into what setrlimit takes, never above what the daemon itself may
// grant.
func (l Limits) resolve() []runner.Limit {
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
	add(unix.RLIMIT_FSIZE, l.FileBytes)
	add(unix.RLIMIT_CPU, l.CPUSeconds)
	if l.Processes > 0 {
		// RLIMIT_NPROC counts all that the user runs, not the command's own, so what is
		// there already comes on top. The system's total is at least that, and costs
		// one small file to learn. User 0 is never held to it.
		add(unix.RLIMIT_NPROC, l.Processes+systemThreads())
	}
	return limits
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
