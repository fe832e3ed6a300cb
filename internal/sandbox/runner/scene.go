package runner

import (
	"path"
	"strconv"
	"syscall"
	"unsafe"
)

// scene is what one command adds to the world: its private files, and the places that it sees although they are hidden, or may
// write to.
type scene struct {
	mounts  []int // in the order in which they were made
	private []private
	device  uint64 // of the private files
}

// private is a directory of the command's own.
type private struct {
	path string
	dir  int
}

// enter prepares the world for a command.
func (w *world) enter(j *Job, f *fds) *StartError {
	for _, p := range w.scene.private {
		if err := allow(f.rulesets, p.dir, j.TempRights); err != nil {
			return stageError(StageLandlock, err)
		}
	}
	for _, s := range j.Shows {
		if err := w.show(s); err != nil {
			return stageError(StageRoots, err)
		}
	}
	for _, hidden := range w.hidden {
		mount, err := w.cover(hidden)
		if mount >= 0 {
			w.scene.mounts = append(w.scene.mounts, mount)
		}
		if err != nil {
			return stageError(StageMasks, err)
		}
	}
	if j.NullStdin {
		syscall.Close(f.stdin)
		// Opened anew each time: the flags and locks of an open file are everybody's who has it. And in this tree: the
		// host's device could be changed through its descriptor.
		var err error
		if f.stdin, err = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err != nil {
			return stageError(StageStdio, err)
		}
	}
	return nil
}

// makeTemp makes the private /tmp and /dev/shm of the next command, which share one size.
func (w *world) makeTemp() error {
	area, err := newMount("tmpfs", mountNoSuid|mountNoDev, option{"size", w.temp}, option{"nr_inodes", w.inodes}, option{"mode", "0755"})
	if err != nil {
		return err
	}
	w.scene.mounts = append(w.scene.mounts, area)
	if err := attach(area, w.area); err != nil {
		return err
	}
	if w.scene.device, err = device(area); err != nil {
		return err
	}
	for _, at := range []string{"/tmp", "/dev/shm"} {
		name := path.Base(at)
		if err := syscall.Mkdirat(area, name, 0o1777); err != nil {
			return err
		}
		dir, err := openPath(area, name, syscall.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		w.scene.private = append(w.scene.private, private{at, dir})
		tree, err := cloneTree(dir, "", false)
		if err != nil {
			return err
		}
		w.scene.mounts = append(w.scene.mounts, tree)
		if err := attachAt(tree, at); err != nil {
			return err
		}
	}
	return nil
}

// show mounts a place of the host's tree where it was.
func (w *world) show(s Show) error {
	_, _, covered := w.emptyAbove(s.Path)
	if !covered && !s.Writable {
		return nil // seen as it is
	}
	from, err := openPath(w.view, s.Path[1:], syscall.O_NOFOLLOW, resolveNoLinks)
	if err != nil && s.Inode == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	defer syscall.Close(from)
	var st syscall.Stat_t
	if err := syscall.Fstat(from, &st); err != nil {
		return err
	}
	if s.Inode != 0 && (s.Inode != st.Ino || s.Device != uint64(st.Dev)) {
		return syscall.ESTALE // replaced since it was looked at
	}
	tree, err := cloneTree(from, "", true)
	if err != nil {
		return err
	}
	w.scene.mounts = append(w.scene.mounts, tree)
	if !s.Writable {
		if err := setMount(tree, mountAttr{set: mountReadOnly}, true); err != nil {
			return err
		}
	}
	to, err := w.place(s.Path, st.Mode&syscall.S_IFMT == syscall.S_IFDIR)
	if err != nil {
		return err
	}
	defer syscall.Close(to)
	return attach(tree, to)
}

// place opens the path at, to mount something there, and makes it where that is in one of our own directories.
func (w *world) place(at string, isDir bool) (int, error) {
	fd, err := openPath(atFDCWD, at, syscall.O_NOFOLLOW, resolveNoLinks)
	if err != syscall.ENOENT {
		return fd, err
	}
	dir, rest, ok := w.emptyAbove(at)
	if !ok {
		return -1, syscall.ENOENT
	}
	if isDir {
		fd, err = makeDirs(dir, rest)
		if err == nil {
			syscall.Close(fd)
		}
	} else {
		var parent int
		if parent, err = makeDirs(dir, path.Dir(rest)); err == nil {
			fd, err = makeFile(parent, path.Base(rest))
			syscall.Close(parent)
			if err == nil {
				syscall.Close(fd)
			}
		}
	}
	if err != nil {
		return -1, err
	}
	return openPath(atFDCWD, at, syscall.O_NOFOLLOW, resolveNoLinks)
}

// leave takes away what enter added. After an error the world must not be used again.
func (w *world) leave() (err error) {
	for _, p := range w.scene.private {
		syscall.Close(p.dir)
	}
	for i := len(w.scene.mounts) - 1; i >= 0; i-- {
		fd := w.scene.mounts[i]
		// By its descriptor: what is at its path may be another by now.
		name := cstring("/proc/self/fd/" + strconv.Itoa(fd))
		if _, _, errno := syscall.Syscall(syscall.SYS_UMOUNT2, uintptr(unsafe.Pointer(name)), umountDetach, 0); errno != 0 && err == nil {
			err = errno
		}
		syscall.Close(fd)
	}
	for _, m := range w.masks[w.fixed:] {
		syscall.Close(m.dir)
	}
	w.masks, w.scene = w.masks[:w.fixed], scene{}
	return err
}

// allow lets the rulesets grant rights below a directory.
func allow(rulesets []int, dir int, rights uint64) error {
	// The kernel's struct landlock_path_beneath_attr is packed.
	var attr [12]byte
	*(*uint64)(unsafe.Pointer(&attr[0])) = rights
	*(*int32)(unsafe.Pointer(&attr[8])) = int32(dir)
	for _, rs := range rulesets {
		_, _, errno := syscall.Syscall6(sysLandlockAddRule, uintptr(rs), rulePathBeneath, uintptr(unsafe.Pointer(&attr[0])), 0, 0, 0)
		if errno != 0 {
			return errno
		}
	}
	return nil
}
