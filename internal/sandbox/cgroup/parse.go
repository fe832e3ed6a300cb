package cgroup

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
)

// ownPath returns the group of version 2 of the contents of a /proc/<pid>/cgroup, as seen from this process's cgroup namespace.
func ownPath(contents string) (string, error) {
	for line := range strings.Lines(contents) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		switch {
		case !ok:
		case !strings.HasPrefix(path, "/") || path == "/.." || strings.HasPrefix(path, "/../"):
			return "", errors.New("this process's control group is outside its cgroup namespace")
		case strings.HasSuffix(path, " (deleted)"):
			return "", errors.New("this process's control group was removed")
		default:
			return path, nil
		}
	}
	return "", errors.New("no control groups of version 2")
}

// mountedAt returns the paths at which a group may be found, by a mountinfo:
// "id parent major:minor root mountpoint options [tags…] - type source options".
func mountedAt(mountinfo, group string) []string {
	var paths []string
	for line := range strings.Lines(mountinfo) {
		mount, kind, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 6 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		root, point := unescape(fields[3]), unescape(fields[4])
		below, ok := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
		if ok && filepath.IsAbs(point) && (below == "" || below[0] == '/') {
			paths = append(paths, filepath.Join(point, below))
		}
	}
	return paths
}

// unescape undoes the octal escapes (\040 for a space) of a mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, `\`)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if n, err := strconv.ParseUint(after[:min(3, len(after))], 8, 8); err == nil && len(after) >= 3 {
			b.WriteByte(byte(n))
			s = after[3:]
		} else {
			b.WriteByte('\\')
			s = after
		}
	}
}

// value returns the number behind a key of a flat file ("populated 1").
func value(contents, key string) (uint64, error) {
	for line := range strings.Lines(contents) {
		if rest, ok := strings.CutPrefix(line, key+" "); ok {
			return strconv.ParseUint(strings.TrimSuffix(rest, "\n"), 10, 64)
		}
	}
	return 0, errors.New("no value for " + key)
}

// pids reads a cgroup.procs. A process that this one cannot see is there as 0. A last line that was cut off
// is not read: it would name somebody else.
func pids(contents string) ([]int, error) {
	var list []int
	for line := range strings.Lines(contents) {
		number, complete := strings.CutSuffix(line, "\n")
		if !complete {
			break
		}
		pid, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return nil, err
		}
		list = append(list, int(pid))
	}
	return list, nil
}

// isOurs says whether a group has a name that [Open] gives: bashd-<pid>-<eight hexadecimal digits>.
func isOurs(name string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	pid, random, dash := strings.Cut(rest, "-")
	return ok && dash && pid != "" && strings.Trim(pid, "0123456789") == "" &&
		len(random) == 8 && strings.Trim(random, "0123456789abcdef") == ""
}
