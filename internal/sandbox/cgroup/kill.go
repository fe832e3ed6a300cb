package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// killWait bounds killing one by one. A process in an uninterruptible wait dies when it can.
const killWait = 2 * time.Second

// Kill sends SIGKILL to everything in the group and in groups below. Where the kernel does it (Linux 5.14), that is one call,
// which misses nothing that forks meanwhile; the processes may not be gone yet when it returns. Where not, processes
// are killed until there are none, for up to two seconds.
func (g *Group) Kill() error {
	err := g.dir.write("cgroup.kill", "1")
	if errors.Is(err, unix.ENOENT) {
		return g.dir.killAll(killWait)
	}
	return err
}

// killAll kills one by one. The group is frozen first, which holds for what is forked meanwhile too, so that it
// ends; frozen processes can be killed.
func (d dir) killAll(patience time.Duration) error {
	if err := ignore(d.write("cgroup.freeze", "1"), unix.ENOENT); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left, err := d.killMembers(maxDepth)
		if err != nil || left == 0 {
			return errors.Join(err, ignore(d.write("cgroup.freeze", "0"), unix.ENOENT))
		}
		if time.Now().After(deadline) {
			return &os.PathError{Op: "kill", Path: d.file.Name(), Err: os.ErrDeadlineExceeded}
		}
	}
}

// killMembers signals the processes that are in the group and below, and counts them.
func (d dir) killMembers(depth int) (count int, err error) {
	listed, err := d.members()
	if err != nil {
		return 0, err
	}
	held := hold(listed)
	defer held.release()
	// A pid that was given to a stranger since it was listed is not listed again. One that is, is the process that is held.
	again, err := d.members()
	if err != nil {
		return 0, err
	}
	for _, pid := range again {
		count++
		if pid == 0 {
			return count, fmt.Errorf("%s holds a process of another pid namespace", d.file.Name())
		}
		if err := held.kill(pid); err != nil {
			return count, err
		}
	}
	below, err := d.groups()
	if len(below) > 0 && depth == 0 {
		err = errors.Join(err, fmt.Errorf("%s: groups too deep", d.file.Name()))
	}
	if err != nil {
		return count, err
	}
	for _, name := range below {
		n, err := d.killIn(name, depth-1)
		count += n
		if err != nil {
			return count, err
		}
	}
	return count, nil
}

func (d dir) killIn(name string, depth int) (int, error) {
	sub, err := d.sub(name)
	if err != nil {
		return 0, ignore(err, unix.ENOENT)
	}
	defer sub.close()
	return sub.killMembers(depth)
}

// processes are held by descriptors, so that each stays the process that it was.
type processes map[int]int

// hold takes hold of processes, of at most 256 so as to leave descriptors for others.
func hold(list []int) processes {
	p := processes{}
	for _, pid := range slices.Compact(list) {
		if len(p) == 256 {
			break
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			p[pid] = fd
		}
	}
	return p
}

// kill kills a process that is held; others have their turn later.
func (p processes) kill(pid int) error {
	fd, ok := p[pid]
	if !ok {
		return nil
	}
	return ignore(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0), unix.ESRCH)
}

func (p processes) release() {
	for _, fd := range p {
		unix.Close(fd)
	}
}
