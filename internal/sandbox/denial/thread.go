package denial

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread that ends with it, so that f may change the
// thread's credentials. It is never the process's main thread: that one cannot
// end, and /proc shows its credentials as the process's.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // still locked: the thread ends here
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // another thread, as this goroutine's creator holds the main one
			f()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
}

// As runs f with the file credentials of a command: c and no capability, on a thread of its own. f must not start goroutines that
// look at files. An error means that the credentials could not be taken on, and f did not run. Only for a process that is root.
func As(c Cred, f func()) error {
	done := make(chan error, 1)
	onThread(func() {
		// Called in any case: where it is refused no command can be started as c, whether or not there are groups to lose.
		err := unix.Setgroups(numbers(c.Groups))
		if err != nil {
			err = fmt.Errorf("setting groups: %w", err)
		} else {
			err = takeOn(c)
		}
		if err == nil {
			f()
		}
		done <- err
	})
	return <-done
}

// takeOn gives the calling thread, and no other, the file credentials of a
// command: c and no capability. It fails unless the kernel confirms them.
func takeOn(c Cred) error {
	// Changed ids make the kernel set the process's dumpable flag to
	// fs.suid_dumpable, which an administrator may have set to 1.
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable == 0 {
		defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }()
	}
	if err := setGroups(c.Groups); err != nil {
		return err
	}
	if err := setFileIDs(c); err != nil {
		return err
	}
	return dropCapabilities()
}

// setGroups sets the thread's supplementary groups. x/sys, unlike package
// syscall, makes the plain system call, which affects one thread.
func setGroups(groups []uint32) error {
	want := numbers(groups)
	if same, err := hasGroups(want); err != nil || same {
		return err
	}
	if err := unix.Setgroups(want); err != nil {
		return fmt.Errorf("setting groups: %w", err)
	}
	if same, err := hasGroups(want); err != nil || !same {
		return errors.Join(errors.New("groups did not take effect"), err)
	}
	return nil
}

func numbers(groups []uint32) []int {
	list := make([]int, 0, len(groups))
	for _, g := range groups {
		list = append(list, int(g))
	}
	return list
}

func hasGroups(want []int) (bool, error) {
	have, err := unix.Getgroups()
	if err != nil {
		return false, fmt.Errorf("reading groups: %w", err)
	}
	set := func(ids []int) []int { return slices.Compact(slices.Sorted(slices.Values(ids))) }
	return slices.Equal(set(have), set(want)), nil
}

// setFileIDs sets fsgid and fsuid. These calls report no error but return the
// value before; one with an invalid id changes nothing and so reads it.
func setFileIDs(c Cred) error {
	const unchanged = -1
	if _, err := unix.SetfsgidRetGid(int(c.GID)); err != nil {
		return fmt.Errorf("setting fsgid: %w", err)
	}
	if _, err := unix.SetfsuidRetUid(int(c.UID)); err != nil {
		return fmt.Errorf("setting fsuid: %w", err)
	}
	gid, err := unix.SetfsgidRetGid(unchanged)
	if err != nil || uint32(gid) != c.GID {
		return errors.Join(errors.New("fsgid did not take effect"), err)
	}
	uid, err := unix.SetfsuidRetUid(unchanged)
	if err != nil || uint32(uid) != c.UID {
		return errors.Join(errors.New("fsuid did not take effect"), err)
	}
	return nil
}

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	if data[0].Effective != 0 || data[1].Effective != 0 {
		return errors.New("capabilities did not drop")
	}
	return nil
}
