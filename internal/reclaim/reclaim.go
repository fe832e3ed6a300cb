// Package reclaim gives this process's user back the permissions on its own files that a command of the same user has
// taken: Landlock has no right for changing modes, so a confined command can do that to every file of the user
// (the gap "metadata" in docs/security.md), and without mending could keep the service from working and from starting.
//
// It only ever adds permissions of the owner, and only on what belongs to this process's effective user. It takes
// none away from anybody, changes no owner, follows no link, and touches nothing of root's unless it is root.
package reclaim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The permissions of an owner on a directory that is used and on a file that is.
const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// Owned reports that st is of a file of this process's user.
func Owned(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// Way gives back the directories on the way to the absolute path, and what is there itself: a directory or a
// regular file. mended are those that it had to change. What does not exist is no error.
func Way(path string) (mended []string, err error) {
	var way []string
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		way = append(way, at)
		if at == filepath.Dir(at) {
			break
		}
	}
	// From the top: what is below cannot be looked at before.
	for i := len(way) - 1; i >= 0; i-- {
		changed, err := one(way[i])
		if changed {
			mended = append(mended, way[i])
		}
		if errors.Is(err, fs.ErrNotExist) {
			return mended, nil
		}
		if err != nil {
			return mended, err
		}
	}
	return mended, nil
}

// one is Way for one file alone.
func one(path string) (changed bool, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	want := dirMode
	switch st.Mode().Type() {
	case fs.ModeDir:
	case 0:
		want = fileMode
	default:
		return false, nil // a link is as good as what it leads to
	}
	if st.Mode().Perm()&want == want || !Owned(st) {
		return false, nil
	}
	return true, os.Chmod(path, st.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)|want)
}
