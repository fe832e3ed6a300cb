package peer

import (
	"errors"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A subtree with more groups than this is not searched: it then tells nothing.
const maxCgroups = 4096

// cgroups knows the control groups (v2) that a command can be in: the one that this process was started in and those below.
// The zero value knows none, and so never serves as evidence.
type cgroups struct {
	id   uint64 // of the group in which, or below which, all commands are
	path string // as /proc/<pid>/cgroup shows it
	dir  string // where it is mounted
	self string // the path of this process's group: the same, or the leaf
}

// leaf is the group into which the daemon moves, or is put, to make groups for commands beside it (package cgroup of the sandbox).
const leaf = "bashd-server"

// ownCgroups finds this process's group, whose id the kernel told for a socket made here. Without a mounted v2
// hierarchy it returns the zero value.
func ownCgroups(id uint64) cgroups {
	// A 32-bit inode number is not the whole id.
	if id == 0 || bits.UintSize < 64 {
		return cgroups{}
	}
	path, err := cgroupPath(os.ReadFile("/proc/self/cgroup"))
	if err != nil {
		return cgroups{}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups{}
	}
	for _, dir := range cgroupDirs(string(mounts), path) {
		if inode, err := inodeOf(dir); err != nil || inode != id {
			continue
		}
		if filepath.Base(path) != leaf {
			return cgroups{id: id, path: path, dir: dir, self: path}
		}
		above, err := inodeOf(filepath.Dir(dir))
		if err != nil {
			return cgroups{}
		}
		return cgroups{id: above, path: filepath.Dir(path), dir: filepath.Dir(dir), self: path}
	}
	return cgroups{}
}

// mayBeOurs says whether a socket made in group id may have been made by a command.
func (c cgroups) mayBeOurs(id uint64) bool {
	if c.dir == "" || id == 0 || id == c.id {
		return true
	}
	// Were this process moved, commands could be here or there.
	if path, err := cgroupPath(os.ReadFile("/proc/self/cgroup")); err != nil || path != c.self {
		return true
	}
	if below, err := c.contains(id); err != nil || below {
		return true
	}
	// A group that was removed is seen no more but lives on with its sockets. In this order: one removed before the look
	// above is counted here.
	dying, err := dyingDescendants(filepath.Join(c.dir, "cgroup.stat"))
	return err != nil || dying > 0
}

// contains looks for group id below this process's.
func (c cgroups) contains(id uint64) (bool, error) {
	seen := 0
	err := filepath.WalkDir(c.dir, func(path string, entry fs.DirEntry, err error) error {
		// A group removed while it is looked at counts as dying from then on.
		if errors.Is(err, fs.ErrNotExist) && path != c.dir {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		if seen++; seen > maxCgroups {
			return errors.New("too many control groups")
		}
		inode, err := inodeOf(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && inode == id:
			return errFound
		}
		return err
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

var errFound = errors.New("found")

// holds says whether a process is in one of these groups; true where there are none to tell by.
func (c cgroups) holds(p process) bool {
	if c.dir == "" {
		return true
	}
	var buf [16 << 10]byte
	path, err := cgroupPath(p.readFile("cgroup", buf[:]))
	if err != nil {
		return false
	}
	// A group outside this process's cgroup namespace is shown as /../name.
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(c.path, "/"))
	return ok && (below == "" || below[0] == '/') && !strings.HasPrefix(below, "/..")
}

// cgroupPath returns the v2 group of the contents of a /proc/<pid>/cgroup.
func cgroupPath(contents []byte, err error) (string, error) {
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(contents)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("no cgroup v2")
}

// cgroupDirs returns where the group path may be mounted, by the lines of a mountinfo:
// "id parent major:minor root mountpoint options [tags…] - type source options".
func cgroupDirs(mountinfo, path string) []string {
	var dirs []string
	for line := range strings.Lines(mountinfo) {
		mount, kind, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		if below, ok := strings.CutPrefix(path, strings.TrimSuffix(fields[3], "/")); ok {
			dirs = append(dirs, filepath.Join(fields[4], below))
		}
	}
	return dirs
}

func inodeOf(path string) (uint64, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("no inode")
	}
	return uint64(st.Ino), nil
}

// dyingDescendants reads nr_dying_descendants of a cgroup.stat.
func dyingDescendants(file string) (int, error) {
	contents, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(contents)) {
		if value, ok := strings.CutPrefix(line, "nr_dying_descendants "); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("no count of dying groups")
}
