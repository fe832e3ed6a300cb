package cgroup

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile is how much of a file is read. Only lists of processes come near it: this is room for a hundred thousand.
const maxFile = 1 << 20

// dir is an open group. All files are reached through its descriptor, so that it stays the same group whatever
// is mounted or renamed on the way to it.
type dir struct{ file *os.File }

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openDir opens a group by its path, and nothing that is no group of version 2.
func openDir(path string) (dir, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, dirFlags, 0) })
	if err != nil {
		return dir{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := dir{os.NewFile(uintptr(fd), path)}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		d.close()
		return dir{}, &os.PathError{Op: "open", Path: path, Err: errors.New("not a control group of version 2")}
	}
	return d, nil
}

func (d dir) close() { d.file.Close() }

// do calls a function with the descriptor, which stays open meanwhile.
func (d dir) do(op, name string, call func(fd int) error) error {
	raw, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if raw.Control(func(fd uintptr) { result = call(int(fd)) }) != nil {
		result = os.ErrClosed // the only reason that there is
	}
	if result != nil {
		return &os.PathError{Op: op, Path: d.file.Name() + "/" + name, Err: result}
	}
	return nil
}

// sub opens a group in this one.
func (d dir) sub(name string) (dir, error) {
	fd, err := d.open(name, dirFlags)
	if err != nil {
		return dir{}, err
	}
	return dir{os.NewFile(uintptr(fd), d.file.Name()+"/"+name)}, nil
}

// open opens something in this group; the descriptor is the caller's.
func (d dir) open(name string, flags int) (fd int, err error) {
	err = d.do("open", name, func(at int) (err error) {
		fd, err = retry(func() (int, error) { return unix.Openat(at, name, flags|unix.O_CLOEXEC, 0) })
		return err
	})
	return fd, err
}

func (d dir) mkdir(name string) error {
	return d.do("mkdir", name, func(at int) error { return unix.Mkdirat(at, name, 0o700) })
}

func (d dir) rmdir(name string) error {
	return d.do("rmdir", name, func(at int) error { return unix.Unlinkat(at, name, unix.AT_REMOVEDIR) })
}

// write sets a file to a value, in one call: that is what the kernel takes as one order.
func (d dir) write(name, value string) error {
	fd, err := d.open(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := retry(func() (int, error) { return unix.Write(fd, []byte(value)) }); err != nil {
		return &os.PathError{Op: "write " + strings.TrimSpace(value) + " to", Path: d.file.Name() + "/" + name, Err: err}
	}
	return nil
}

// read returns the first maxFile bytes of a file.
func (d dir) read(name string) (string, error) {
	fd, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), d.file.Name()+"/"+name)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err
}

// has says whether a file is there.
func (d dir) has(name string) bool {
	return d.do("stat", name, func(at int) error { return unix.Faccessat(at, name, unix.F_OK, 0) }) == nil
}

// groups names the groups in this one.
func (d dir) groups() ([]string, error) {
	// A descriptor of its own, since reading moves the position of the shared one.
	fd, err := d.open(".", dirFlags)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), d.file.Name())
	defer f.Close()
	entries, err := f.ReadDir(-1)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// retry repeats a call that a signal has interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
