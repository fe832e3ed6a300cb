package denial

import (
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxPathLen = unix.PathMax
	maxSteps   = 256 // components looked up for one path, those of links included
	maxLinks   = 40  // the kernel's own limit
)

var (
	errUnresolvable = errors.New("path cannot be judged")
	errHidden       = errors.New("path leads to what is hidden")
)

// LeadsTo reports that the way of an absolute path, its symbolic links followed, comes to a place for which hidden is true. What is there is not
// looked at. It is to be called with the permissions of who would go that way.
func LeadsTo(path string, hidden func(string) bool) bool {
	_, err := resolve(path, true, hidden, time.Now().Add(maxTime))
	return errors.Is(err, errHidden)
}

// location is where a path leads.
type location struct {
	path   string // absolute, without symbolic links as far as it exists
	exists bool
	dir    string // the nearest existing directory: its parent if that exists
	inDir  bool   // dir is its parent
	stat   unix.Statx_t
}

// resolver looks paths up as the thread's credentials allow.
type resolver struct {
	hidden   func(path string) bool // what is not looked at; nil: nothing
	deadline time.Time
	todo     []string // components still to walk, the next one last
	steps    int
	links    int
}

// resolve follows the symbolic links of name, an absolute path; that of its
// last component only if followLast is set. Unlike filepath.EvalSymlinks it
// accepts a missing end, treats ".." behind a link as the kernel does, and
// refuses to look into a process's directory under /proc, where the caller
// would see itself instead of the command, and at what is hidden.
func resolve(name string, followLast bool, hidden func(string) bool, deadline time.Time) (location, error) {
	r := resolver{hidden: hidden, deadline: deadline}
	r.push(name)
	loc := location{path: "/", dir: "/", exists: true, inDir: true}
	if err := lstat("/", &loc.stat); err != nil {
		return location{}, err
	}
	for len(r.todo) > 0 {
		if r.steps++; r.steps > maxSteps || time.Now().After(r.deadline) {
			return location{}, errUnresolvable
		}
		component := r.pop()
		if component == ".." {
			loc.path = path.Dir(loc.path)
			if err := lstat(loc.path, &loc.stat); err != nil {
				return location{}, err
			}
			continue
		}
		next := path.Join(loc.path, component)
		if isProcess(next) {
			return location{}, errUnresolvable
		}
		if r.hidden != nil && r.hidden(next) {
			return location{}, errHidden
		}
		var st unix.Statx_t
		switch err := lstat(next, &st); {
		case errors.Is(err, unix.ENOENT):
			return r.missing(loc.path, next)
		case err != nil:
			return location{}, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK && (followLast || len(r.todo) > 0) {
			target, err := r.follow(next)
			if err != nil {
				return location{}, err
			}
			if path.IsAbs(target) {
				loc.path = "/"
			}
			r.push(target)
			continue
		}
		loc.path, loc.stat = next, st
	}
	loc.dir = path.Dir(loc.path)
	return loc, nil
}

// push adds the components of p before those that are still to walk.
func (r *resolver) push(p string) {
	parts := strings.Split(p, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i] != "" && parts[i] != "." {
			r.todo = append(r.todo, parts[i])
		}
	}
}

func (r *resolver) pop() string {
	last := len(r.todo) - 1
	component := r.todo[last]
	r.todo = r.todo[:last]
	return component
}

// follow reads a symbolic link.
func (r *resolver) follow(link string) (string, error) {
	if r.links++; r.links > maxLinks {
		return "", unix.ELOOP
	}
	buf := make([]byte, maxPathLen)
	n, err := unix.Readlink(link, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// missing describes a path of which first, below dir, does not exist.
func (r *resolver) missing(dir, first string) (location, error) {
	loc := location{path: first, dir: dir, inDir: len(r.todo) == 0}
	for len(r.todo) > 0 {
		component := r.pop()
		if component == ".." { // leads nowhere for the kernel
			return location{}, unix.ENOENT
		}
		loc.path += "/" + component
	}
	return loc, nil
}

// isProcess reports whether p, which has no symbolic link in it but perhaps at
// its end, is the directory of a process.
func isProcess(p string) bool {
	rest, ok := strings.CutPrefix(p, "/proc/")
	if !ok {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	return first == "self" || first == "thread-self" || isNumber(first)
}

// lstat reads metadata without following a link, mounting anything, or asking
// a network file system for fresh values.
func lstat(p string, st *unix.Statx_t) error {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	for {
		err := unix.Statx(unix.AT_FDCWD, p, flags, unix.STATX_BASIC_STATS, st)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
