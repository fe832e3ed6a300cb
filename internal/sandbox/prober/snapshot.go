package prober

import (
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of a snapshot. A scene is far within them; what a prober could make of it need not be.
const (
	maxDepth   = 6
	maxEntries = 8192
	maxContent = 64 << 10
)

// snapshot is what a tree is like: a record for each name; that of the top is empty. All of the metadata is in it, but the time of the last
// access, which reading changes, and of the top what changes with the names in it.
type snapshot map[string]string

// take looks at a tree, and follows no link.
func take(top string) (snapshot, error) {
	s := snapshot{}
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return s, s.directory(fd, "", 0)
}

// directory records an open directory, which it closes, and what is in it.
func (s snapshot) directory(fd int, name string, depth int) error {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if name == "" {
		st.Size, st.Nlink, st.Mtim, st.Ctim = 0, 0, unix.Timespec{}, unix.Timespec{}
	}
	s[name] = metadata(&st) + attributes(fd)
	if depth > maxDepth {
		return unix.ELOOP
	}
	list, err := allNames(fd)
	for _, entry := range list {
		if err == nil {
			err = s.entry(fd, entry, path.Join(name, entry), depth)
		}
	}
	return err
}

func allNames(fd int) (list []string, err error) {
	for b := make([]byte, 16<<10); ; {
		n, err := unix.ReadDirent(fd, b)
		if err != nil || n == 0 {
			return list, err
		}
		_, _, list = unix.ParseDirent(b[:n], -1, list)
		if len(list) > maxEntries {
			return nil, unix.E2BIG
		}
	}
}

func (s snapshot) entry(dir int, base, name string, depth int) error {
	if len(s) > maxEntries {
		return unix.E2BIG
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFDIR {
		s[name] = metadata(&st) + linkTarget(dir, base)
		return nil
	}
	// What cannot be opened any more has another mode, and so another record.
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		s[name] = metadata(&st)
		return nil
	}
	if err != nil {
		return err
	}
	if kind == unix.S_IFDIR {
		return s.directory(fd, name, depth+1)
	}
	defer unix.Close(fd)
	b := make([]byte, maxContent)
	n, err := unix.Read(fd, b)
	if err != nil {
		return err
	}
	s[name] = metadata(&st) + attributes(fd) + " " + strconv.Quote(string(b[:n]))
	return nil
}

func linkTarget(dir int, name string) string {
	b := make([]byte, 4096)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return ""
	}
	return " -> " + string(b[:n])
}

func metadata(st *unix.Stat_t) string {
	var b []byte
	for _, n := range []int64{
		int64(st.Mode), int64(st.Uid), int64(st.Gid), int64(st.Ino), int64(st.Nlink), int64(st.Rdev), st.Size,
		st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec,
	} {
		b = strconv.AppendInt(append(b, ' '), n, 36)
	}
	return string(b)
}

// attributes are the extended attributes, ACLs among them, and the flags, as far as the file system has them.
func attributes(fd int) string {
	var all strings.Builder
	list := make([]byte, 4096)
	n, err := unix.Flistxattr(fd, list)
	if err == nil {
		for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
			value := make([]byte, 4096)
			if n, err := unix.Fgetxattr(fd, name, value); err == nil {
				all.WriteString(" " + name + "=" + strconv.Quote(string(value[:n])))
			}
		}
	}
	var flags, version uint64
	var extended [7]uint32 // struct fsxattr: flags, extent size, number of extents, project
	for _, q := range []struct {
		request uintptr
		at      unsafe.Pointer
	}{
		{unix.FS_IOC_GETFLAGS, unsafe.Pointer(&flags)},
		{ioctlGetXFlags, unsafe.Pointer(&extended)},
		{ioctlGetVersion, unsafe.Pointer(&version)},
	} {
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), q.request, uintptr(q.at))
	}
	// The file system changes other flags, and the extents, by itself.
	for _, n := range []uint64{flags & changeableFlags, uint64(extended[0]), uint64(extended[1]), uint64(extended[3]), version} {
		all.WriteString(" " + strconv.FormatUint(n, 36))
	}
	return all.String()
}

// changeableFlags are those of FS_IOC_GETFLAGS that somebody can set: FS_FL_USER_MODIFIABLE.
const changeableFlags = 0x380ff

// changes lists the names whose records differ, without what follows the first dot: those of the probes. The empty one is the top.
func (s snapshot) changes(now snapshot) map[string]bool {
	changed := map[string]bool{}
	note := func(name string) {
		probe, _, _ := strings.Cut(name, ".")
		changed[probe] = true
	}
	for name, record := range s {
		if now[name] != record {
			note(name)
		}
	}
	for name := range now {
		if _, was := s[name]; !was {
			note(name)
		}
	}
	return changed
}
