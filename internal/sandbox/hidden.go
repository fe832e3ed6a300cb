package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPoint is one line of a mountinfo.
type mountPoint struct {
	device string // major:minor
	root   string // what of the file system is shown
	at     string // where
}

// parseMounts reads a mountinfo: "id parent major:minor root mountpoint options…", with blanks in names as octal escapes.
func parseMounts(mountinfo string) (list []mountPoint) {
	for line := range strings.Lines(mountinfo) {
		// The kernel escapes the blank, and no other white space.
		if f := strings.Split(line, " "); len(f) >= 5 {
			list = append(list, mountPoint{f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return list
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// withAliases adds to hidden paths the other places where mounts show the same files: a volume that is mounted twice, a bind mount.
// What is mounted below a hidden path, and what another mount covers at it, is hidden elsewhere, too. What it returns is sorted, so that a
// directory comes before what lies in it.
func withAliases(hidden []string, mounts []mountPoint) []string {
	paths := slices.Clone(hidden)
	for _, m := range mounts {
		if slices.ContainsFunc(hidden, func(h string) bool { return within(m.at, h) }) {
			paths = append(paths, m.at)
		}
	}
	all := slices.Clone(hidden)
	for _, path := range paths {
		for _, own := range mounts {
			if within(path, own.at) {
				all = append(all, aliases(own, filepath.Join(own.root, strings.TrimPrefix(path, own.at)), mounts)...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// aliases lists where other mounts show what is at a place inside of the file system of a mount.
func aliases(own mountPoint, inside string, mounts []mountPoint) (list []string) {
	for _, m := range mounts {
		switch {
		case m.device != own.device || m == own:
		case within(inside, m.root): // the mount shows it, maybe with more
			list = append(list, filepath.Join(m.at, strings.TrimPrefix(inside, m.root)))
		case within(m.root, inside): // the mount shows a part of it
			list = append(list, m.at)
		}
	}
	return list
}

// look finds out what is hidden with the mounts as they are now. Without a list of mounts nothing is known of
// other places, and nothing is confined.
func (s *Sandbox) look() error {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	hidden := withAliases(s.cfg.Hidden, parseMounts(string(mountinfo)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = hidden
	return nil
}

// refresh looks again when mounts have changed, and sees that what is to be hidden still lies where it did: a path that leads
// through a symbolic link would have something else hidden than what it leads to.
func (s *Sandbox) refresh() error {
	if err := s.followMounts(); err != nil {
		return err
	}
	for _, path := range s.cfg.Hidden {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if errors.Is(err, unix.ELOOP) {
			return fmt.Errorf("the hidden path %s has come to lead through a symbolic link", path)
		}
		if err != nil {
			continue // not there, or not to be seen by this process either
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return fmt.Errorf("the hidden path %s has become a symbolic link", path)
		}
	}
	return nil
}

func (s *Sandbox) followMounts() error {
	s.looking.Lock()
	defer s.looking.Unlock()
	state := s.pool.mounts.state()
	if state == s.seen {
		return nil
	}
	if err := s.look(); err != nil {
		return err
	}
	s.seen = state
	s.describe()
	return nil
}

// hiddenNow are the paths that no command may read.
func (s *Sandbox) hiddenNow() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hidden
}
