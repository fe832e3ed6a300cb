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
		if f := strings.Fields(line); len(f) >= 5 {
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
// What it returns is sorted, so that a directory comes before what lies in it.
func withAliases(hidden []string, mounts []mountPoint) []string {
	all := slices.Clone(hidden)
	for _, path := range hidden {
		own, inside, ok := lookUp(mounts, path)
		if !ok {
			continue
		}
		for _, m := range mounts {
			if m.device != own.device || m == own {
				continue
			}
			switch {
			case within(inside, m.root): // the mount shows it, maybe with more
				all = append(all, filepath.Join(m.at, strings.TrimPrefix(inside, m.root)))
			case within(m.root, inside): // the mount shows a part of it
				all = append(all, m.at)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lookUp finds the mount that path lies in, and where in its file system.
func lookUp(mounts []mountPoint, path string) (found mountPoint, inside string, ok bool) {
	for _, m := range mounts {
		// A later one covers an earlier one at the same place.
		if within(path, m.at) && (!ok || len(m.at) >= len(found.at)) {
			found, ok = m, true
		}
	}
	return found, filepath.Join(found.root, strings.TrimPrefix(path, found.at)), ok
}

// look finds out what is hidden with the mounts as they are now. Without a list of mounts nothing is known of
// other places, and nothing is confined.
func (s *Sandbox) look() error {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.hidden = withAliases(s.cfg.Hidden, parseMounts(string(mountinfo)))
	s.mu.Unlock()
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
	s.use(s.tier)
	s.seen = state
	return nil
}

// hiddenNow are the paths that no command may read.
func (s *Sandbox) hiddenNow() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hidden
}
