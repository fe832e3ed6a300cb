package runner

import (
	"path"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// world is the file tree of a runner with namespaces of its own: the host's, to read only, with hidden paths covered and
// the places that a command needs for itself replaced. What one command adds is taken away after it (scene.go).
//
// It is made with the mount calls of Linux 5.12. Copies are only ever made of mounts that are attached in this namespace, as
// kernels before 6.15 demand.
type world struct {
	view    int    // the host's tree as it was, writable where it was. Covered, so that no path leads to it
	area    int    // an empty directory beside view, for a command's private files
	nothing int    // a file beside view that cannot be opened, to cover others with
	covers  uint64 // the device of nothing
	hidden  []string
	masks   []mask // those of the world before those of the present command
	fixed   int    // how many of them stay
	temp    string // size of the private files, in bytes
	inodes  string // and how many there may be: each takes memory that the size does not count
	scene   scene  // of the present command
}

// mask is a hidden directory: an empty one, in which places can be made for what is to be seen all the same.
type mask struct {
	path   string
	dir    int // writable, unattached
	device uint64
}

// Bounds of the number of a command's private files.
const (
	bytesPerInode = 4096
	minInodes     = 1024
)

// makeWorld makes the tree. What fails is told with its stage.
func makeWorld(s *World) (*world, *StartError) {
	w := &world{temp: strconv.FormatUint(s.TempBytes, 10), inodes: strconv.FormatUint(max(s.TempBytes/bytesPerInode, minInodes), 10), hidden: append([]string{"/run"}, s.Hidden...)}
	syscall.Umask(0) // a command gets its own
	for _, step := range []struct {
		stage Stage
		do    func(*World) error
	}{
		{StageMounts, w.takeView},
		{StageDevices, w.makeDevices},
		{StageMasks, w.coverHidden},
		{StageProc, w.makeProc},
	} {
		if err := step.do(s); err != nil {
			return nil, stageError(step.stage, err)
		}
	}
	w.fixed = len(w.masks)
	return w, nil
}

func stageError(stage Stage, err error) *StartError {
	errno, ok := err.(syscall.Errno)
	if !ok {
		errno = syscall.EINVAL
	}
	return &StartError{stage, errno}
}

// takeView makes the tree read-only and keeps a copy from before, which is attached below /dev, where the next step
// covers it.
func (w *world) takeView(*World) error {
	root, err := openPath(atFDCWD, "/", syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(root)
	const private = 1 << 18 // MS_PRIVATE: nothing that is mounted here or there is seen on the other side
	if err := setMount(root, mountAttr{propagation: private}, true); err != nil {
		return err
	}
	if w.view, err = cloneTree(root, "", true); err != nil {
		return err
	}
	if err := setMount(root, mountAttr{set: mountReadOnly}, true); err != nil {
		return err
	}
	holder, err := newMount("tmpfs", mountNoSuid|mountNoDev|mountNoExec, option{"size", "64k"}, option{"mode", "0700"})
	if err != nil {
		return err
	}
	if err := attachAt(holder, "/dev"); err != nil {
		return err
	}
	place, err := makeDir(holder, "view")
	if err != nil {
		return err
	}
	if err := attach(w.view, place); err != nil {
		return err
	}
	if w.area, err = makeDir(holder, "area"); err != nil {
		return err
	}
	if w.nothing, err = makeFile(holder, "nothing"); err != nil {
		return err
	}
	w.covers, err = device(w.nothing)
	return err
}

// makeDevices replaces /dev by what a command may have of it.
func (w *world) makeDevices(*World) error {
	dev, err := newMount("tmpfs", mountNoSuid|mountNoExec, option{"size", "64k"}, option{"mode", "0755"})
	if err != nil {
		return err
	}
	defer syscall.Close(dev)
	top, err := openPath(atFDCWD, "/dev", syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(top)
	if err := attach(dev, top); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := w.bindDevice(dev, name); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := symlinkAt(target, dev, name); err != nil {
			return err
		}
	}
	if _, err := makeDir(dev, "shm"); err != nil {
		return err
	}
	return setMount(dev, mountAttr{set: mountReadOnly}, false)
}

// bindDevice shows one device of the host in dev. One that is not there is not missed; its node read-only, so that its
// mode and times cannot be changed, which does not keep the device from being written.
func (w *world) bindDevice(dev int, name string) error {
	node, err := cloneTree(w.view, "dev/"+name, false)
	if err == syscall.ENOENT && name != "null" {
		return nil
	}
	if err != nil {
		return err
	}
	defer syscall.Close(node)
	if err := setMount(node, mountAttr{set: mountReadOnly}, false); err != nil {
		return err
	}
	place, err := makeFile(dev, name)
	if err != nil {
		return err
	}
	defer syscall.Close(place)
	return attach(node, place)
}

// coverHidden covers the hidden paths, and /run but for the links that are kept of it.
func (w *world) coverHidden(s *World) error {
	for _, path := range w.hidden {
		if _, err := w.cover(path); err != nil {
			return err
		}
	}
	for _, l := range s.Links {
		if err := w.link(l); err != nil {
			return err
		}
	}
	return nil
}

// cover hides what is at that path and returns the new mount, -1 where there is none to make: what lies in a hidden directory is hidden, and what
// is not there cannot be. A path that has come to lead through a link is an error: something else would have to be hidden. It is called again for each command, since what was covered may have been replaced, and the cover gone with it.
func (w *world) cover(hidden string) (int, error) {
	place, err := openPath(atFDCWD, hidden, syscall.O_NOFOLLOW, resolveNoLinks)
	if err == syscall.ENOENT || err == syscall.ENOTDIR || err == syscall.EACCES {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	defer syscall.Close(place)
	var st syscall.Stat_t
	if err := syscall.Fstat(place, &st); err != nil {
		return -1, err
	}
	switch {
	case hidden == "/dev" || w.covered(uint64(st.Dev)):
		return -1, nil
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return w.coverDir(hidden, place)
	}
	file, err := cloneTree(w.nothing, "", false)
	if err != nil {
		return -1, err
	}
	if err := setMount(file, mountAttr{set: mountReadOnly}, false); err != nil {
		return file, err
	}
	return file, attach(file, place)
}

// covered reports that the device is one of ours: of the masks, of the file that covers files, of the command's private files.
func (w *world) covered(device uint64) bool {
	if device == w.scene.device && device != 0 {
		return true
	}
	for _, m := range w.masks {
		if m.device == device {
			return true
		}
	}
	return device == w.covers
}

func (w *world) coverDir(at string, place int) (int, error) {
	empty, err := newMount("tmpfs", mountNoSuid|mountNoDev|mountNoExec, option{"size", "64k"}, option{"mode", "0755"})
	if err != nil {
		return -1, err
	}
	if err := attach(empty, place); err != nil {
		return empty, err
	}
	m := mask{path: at}
	if m.dir, err = cloneTree(empty, "", false); err != nil {
		return empty, err
	}
	if m.device, err = device(empty); err != nil {
		return empty, err
	}
	w.masks = append(w.masks, m)
	return empty, setMount(empty, mountAttr{set: mountReadOnly}, false)
}

// link makes a symbolic link in a mask.
func (w *world) link(l Link) error {
	dir, rest, ok := w.emptyAbove(l.Path)
	if !ok {
		return nil
	}
	parent, err := makeDirs(dir, path.Dir(rest))
	if err != nil {
		return err
	}
	defer syscall.Close(parent)
	return symlinkAt(l.Target, parent, path.Base(rest))
}

// emptyAbove returns the deepest of our own directories that at lies in, and the way from there.
func (w *world) emptyAbove(at string) (dir int, rest string, ok bool) {
	top := ""
	consider := func(p string, fd int) {
		if within(at, p) && len(p) >= len(top) {
			top, dir, ok = p, fd, true
		}
	}
	for _, m := range w.masks {
		consider(m.path, m.dir)
	}
	// Whatever was below them is covered by them.
	for _, p := range w.scene.private {
		if within(at, p.path) {
			top, dir, ok = p.path, p.dir, true
		}
	}
	return dir, strings.TrimPrefix(strings.TrimPrefix(at, top), "/"), ok
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// makeProc replaces /proc by that of the new pid namespace.
func (w *world) makeProc(s *World) error {
	proc, err := newMount("proc", mountNoSuid|mountNoDev|mountNoExec)
	if err != nil {
		return err
	}
	defer syscall.Close(proc)
	if s.MaxPid > 0 {
		if err := writeFileAt(proc, "sys/kernel/pid_max", strconv.Itoa(s.MaxPid)); err != nil {
			return err
		}
	}
	if err := setMount(proc, mountAttr{set: mountReadOnly}, false); err != nil {
		return err
	}
	return attachAt(proc, "/proc")
}

func attachAt(mount int, path string) error {
	place, err := openPath(atFDCWD, path, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, resolveNoLinks)
	if err != nil {
		return err
	}
	defer syscall.Close(place)
	return attach(mount, place)
}

// makeDir makes a directory, or takes the one that is there, and opens it.
func makeDir(dir int, name string) (int, error) {
	if err := syscall.Mkdirat(dir, name, 0o755); err != nil && err != syscall.EEXIST {
		return -1, err
	}
	return openPath(dir, name, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, resolveNoLinks)
}

// makeDirs is makeDir for every part of a way.
func makeDirs(dir int, way string) (int, error) {
	fd, err := openPath(dir, ".", syscall.O_DIRECTORY, 0)
	for part := range strings.SplitSeq(way, "/") {
		if err != nil || part == "" || part == "." {
			continue
		}
		next, nextErr := makeDir(fd, part)
		syscall.Close(fd)
		fd, err = next, nextErr
	}
	return fd, err
}

// makeFile makes an empty file that nobody may open, or takes the one that is there, and opens it as a place.
func makeFile(dir int, name string) (int, error) {
	fd, err := syscall.Openat(dir, name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err == nil {
		syscall.Close(fd)
	} else if err != syscall.EEXIST {
		return -1, err
	}
	return openPath(dir, name, syscall.O_NOFOLLOW, resolveNoLinks)
}

func device(fd int) (uint64, error) {
	var st syscall.Stat_t
	err := syscall.Fstat(fd, &st)
	return uint64(st.Dev), err
}

func symlinkAt(target string, dir int, name string) error {
	_, _, errno := syscall.Syscall(syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(cstring(target))), uintptr(dir), uintptr(unsafe.Pointer(cstring(name))))
	return errOr(errno)
}

func writeFileAt(dir int, path, content string) error {
	fd, err := syscall.Openat(dir, path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.Write(fd, []byte(content))
	return err
}
