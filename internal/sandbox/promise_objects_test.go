package sandbox_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// facts tells everything of the files below dir that anybody could change, by their paths: content, type, mode, owner,
// links, times, attributes and flags. The time of the last change of an inode is among them: it moves with every change,
// whatever it was.
func facts(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	must(tb, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fact, err := factOf(path)
		all[path] = fact
		return err
	}))
	return all
}

func factOf(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	content, err := contentOf(path, st.Mode)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s ino %d mode %o links %d owner %d:%d rdev %d size %d mtime %d.%09d ctime %d.%09d flags %s attributes %s",
		content, st.Ino, st.Mode, st.Nlink, st.Uid, st.Gid, st.Rdev, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec,
		flagsOf(path, st.Mode), attributesOf(path)), nil
}

// contentOf is what a command could have written: it says nothing of metadata.
func contentOf(path string, mode uint32) (string, error) {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(path)
		return fmt.Sprintf("file %q", b), err
	case unix.S_IFLNK:
		to, err := os.Readlink(path)
		return fmt.Sprintf("link %q", to), err
	}
	return fmt.Sprintf("type %o", mode&unix.S_IFMT), nil
}

// contents is facts without metadata.
func contents(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for path := range facts(tb, dir) {
		var st unix.Stat_t
		must(tb, unix.Lstat(path, &st))
		content, err := contentOf(path, st.Mode)
		must(tb, err)
		all[path] = content
	}
	return all
}

// flagsOf are the attribute flags (lsattr), where the file system has them.
func flagsOf(path string, mode uint32) string {
	if kind := mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return "-"
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", flags)
}

// attributesOf are the extended attributes, ACLs among them.
func attributesOf(path string) string {
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(path, names)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(path, name, value)
		fmt.Fprintf(&b, "%s=%x(%v) ", name, value[:max(n, 0)], err)
	}
	return b.String()
}

// unchanged checks that two states are the same, and tells every difference.
func unchanged(tb testing.TB, before, after map[string]string) {
	tb.Helper()
	for path, was := range before {
		if is, ok := after[path]; !ok {
			tb.Errorf("%s is gone", path)
		} else if is != was {
			tb.Errorf("%s was\n\t%s\nand is\n\t%s", path, was, is)
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !ok {
			tb.Errorf("%s is new: %s", path, is)
		}
	}
}

// below picks what lies in a directory.
func below(all map[string]string, dir string) map[string]string {
	some := map[string]string{}
	for path, fact := range all {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			some[path] = fact
		}
	}
	return some
}
