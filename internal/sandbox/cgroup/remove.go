package cgroup

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	removeWait = time.Second
	maxDepth   = 64 // of groups that commands have made in their own; deeper ones are left, and told
)

// waitEmpty waits until no process runs in the group or below; after that time it gives up with os.ErrDeadlineExceeded.
func (d dir) waitEmpty(patience time.Duration) error {
	fd, err := d.open("cgroup.events", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(patience); ; {
		var buf [4096]byte
		n, err := retry(func() (int, error) { return unix.Pread(fd, buf[:], 0) })
		if err != nil {
			return &os.PathError{Op: "read", Path: d.file.Name() + "/cgroup.events", Err: err}
		}
		populated, err := value(string(buf[:n]), "populated")
		if err != nil || populated == 0 {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return &os.PathError{Op: "remove", Path: d.file.Name(), Err: os.ErrDeadlineExceeded}
		}
		// Changes since the last read wake. Not longer than a moment: it costs nothing to look again.
		timeout := int(min(left, 100*time.Millisecond)/time.Millisecond) + 1
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, timeout); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}

// clear removes the groups in this one, down to a depth. It goes on after an error, and returns all.
func (d dir) clear(depth int) error {
	names, err := d.groups()
	for _, name := range names {
		err = errors.Join(err, d.remove(name, depth))
	}
	return err
}

func (d dir) remove(name string, depth int) error {
	// Most have nothing in them.
	err := d.rmdir(name)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if depth == 0 {
		return err
	}
	sub, subErr := d.sub(name)
	if subErr != nil {
		return ignore(subErr, unix.ENOENT)
	}
	defer sub.close()
	if cleared := sub.clear(depth - 1); cleared != nil {
		return cleared
	}
	return ignore(d.rmdir(name), unix.ENOENT)
}
