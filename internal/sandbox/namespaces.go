package sandbox

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/runner"
)

// Bounds of the size of a command's private /tmp and /dev/shm, which are memory.
const (
	minTemp = 64 << 20
	maxTemp = 1 << 30
)

// defaultTemp is an eighth of the machine's memory, within the bounds.
func defaultTemp() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return minTemp
	}
	return min(max(uint64(info.Totalram)*uint64(info.Unit)/8, minTemp), maxTemp)
}

// keptLinks are symbolic links below /run, which is hidden, without which a system has no programs.
var keptLinks = []string{"/run/current-system"}

// world describes the file tree of namespaced runners.
func (s *Sandbox) world() *runner.World {
	w := &runner.World{Hidden: s.hiddenNow(), TempBytes: s.cfg.TempBytes}
	for _, path := range keptLinks {
		if target, err := os.Readlink(path); err == nil {
			w.Links = append(w.Links, runner.Link{Path: path, Target: target})
		}
	}
	if n := s.cfg.Limits.Processes; n > 0 && s.processes() == ProcessesPidNS {
		w.MaxPid = int(min(n, 1<<22-reservedPids)) + reservedPids
	}
	return w
}

// reservedPids are those that the kernel gives out only once in a namespace (RESERVED_PIDS of its pid.c).
const reservedPids = 300

// shows lists what a namespaced command sees although it is hidden or may write to.
func shows(p Policy) ([]runner.Show, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p.root, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: p.root, Err: err}
	}
	list := []runner.Show{{Path: p.root, Writable: p.mode == WorkspaceWrite, Device: st.Dev, Inode: st.Ino}}
	for _, dir := range p.readable {
		list = append(list, runner.Show{Path: dir})
	}
	// Names are resolved through a file that often lies below /run, which is hidden.
	const resolver = "/etc/resolv.conf"
	if _, err := os.Readlink(resolver); err == nil {
		if target, err := filepath.EvalSymlinks(resolver); err == nil && strings.HasPrefix(target, "/run/") {
			list = append(list, runner.Show{Path: target})
		}
	}
	return list, nil
}
