package peer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// How often a walk to the ancestors is begun anew because a process between exited.
	maxWalks = 16
	// More generations than this are taken for an attempt to make the walk endless.
	maxGenerations = 4096
)

var (
	errUnsettled = errors.New("ancestors keep changing")
	errTooDeep   = errors.New("too many ancestors")
)

// process is an open /proc/<pid>. It stays bound to the process it was opened for: when that is gone every read
// fails, though its number may have been given to another.
type process struct {
	pid int
	dir int
}

func openProcess(pid int) (process, error) {
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return process{pid: pid, dir: dir}, err
}

// processOf returns the process that an open descriptor table, its own or a thread's, belongs to. What stands above the
// table in /proc is of the same process, whoever has the number pid by now.
func processOf(pid, table int, thread bool) (process, error) {
	above := ".."
	if thread {
		above = "../../.."
	}
	dir, err := unix.Openat(table, above, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return process{pid: pid, dir: dir}, err
}

// close drops the handle. An error could only be about a descriptor that is gone either way.
func (p process) close() { _ = unix.Close(p.dir) }

// parent returns the pid of p's parent: 0 for one outside the pid namespace, or none.
func (p process) parent() (int, error) {
	var buf [512]byte
	b, err := p.readFile("stat", buf[:])
	if err != nil {
		return 0, err
	}
	return parseParent(b)
}

// parseParent reads /proc/<pid>/stat: "pid (name) state ppid …". A name may hold anything, parentheses too.
func parseParent(stat []byte) (int, error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("malformed stat")
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 {
		return 0, errors.New("malformed stat")
	}
	ppid, err := strconv.ParseUint(string(fields[1]), 10, 31)
	return int(ppid), err
}

// readFile reads the beginning of a file of p into buf.
func (p process) readFile(name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(p.dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var n int
	err = retryInterrupted(func() (err error) {
		n, err = unix.Read(fd, buf)
		return err
	})
	return buf[:max(n, 0)], err
}

// ancestorIn returns the nearest ancestor of p for which isRoot holds, 0 if there is none. An error means that the
// answer is not known.
//
// The answer holds though processes exit meanwhile. A parent's number is believed only if the child still has that parent after
// the parent was opened; while it does, the parent lives and its number is its own. Whoever adopts an orphan
// below a subreaper is below that subreaper or is it: so each link that was true at any moment leads from inside a tree to
// the inside or to the root.
func (p process) ancestorIn(isRoot func(pid int) bool) (int, error) {
	for range maxWalks {
		root, err := p.walkUp(isRoot)
		if !errors.Is(err, errUnsettled) {
			return root, err
		}
	}
	return 0, errUnsettled
}

func (p process) walkUp(isRoot func(pid int) bool) (int, error) {
	child := p
	defer func() {
		if child != p {
			child.close()
		}
	}()
	for range maxGenerations {
		ppid, err := child.parent()
		switch {
		case err != nil && child == p:
			return 0, fmt.Errorf("process %d: %w", p.pid, err)
		case err != nil:
			return 0, errUnsettled
		case isRoot(ppid):
			return ppid, nil
		case ppid == 0:
			return 0, nil
		}
		parent, err := openProcess(ppid)
		if err != nil {
			return 0, errUnsettled
		}
		if again, err := child.parent(); err != nil || again != ppid {
			parent.close()
			return 0, errUnsettled
		}
		if child != p {
			child.close()
		}
		child = parent
	}
	return 0, errTooDeep
}

// numbers lists the entries of an open directory whose names are numbers, until visit returns false.
func numbers(dir int, visit func(n int, name string) bool) error {
	var buf [4 << 10]byte
	names := make([]string, 0, 64)
	for {
		var n int
		err := retryInterrupted(func() (err error) {
			n, err = unix.Getdents(dir, buf[:])
			return err
		})
		if err != nil || n <= 0 {
			return err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if number, err := strconv.ParseUint(name, 10, 31); err == nil && !visit(int(number), name) {
				return nil
			}
		}
	}
}

// allPids returns the processes visible in /proc, the newest first as far as numbers tell: a caller is often young.
func allPids() ([]int, error) {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var pids []int
	err = numbers(dir, func(pid int, _ string) bool {
		pids = append(pids, pid)
		return true
	})
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids, err
}
