// Package reclaim gives this process's user back the permissions on its own directories that a command of the same user has
// taken: Landlock has no right for changing modes, so a confined command can do that to everything of the user
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

// whole are the permissions that the owner of a directory gets back.
const whole fs.FileMode = 0o700

// Owned reports that st is of a file of this process's user.
func Owned(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// Way gives back the directories on the way to the absolute path, and the one that is there itself, where the owner
// cannot even pass through any more. Nothing less is touched: a directory may have been made read-only by whom it
// belongs to, as /proc is. mended are those that it had to change. What does not exist is no error.
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
		changed, err := give(way[i], 0o100)
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

// Dir gives back a directory that is known to be for this service to write to. Errors are those of the file system.
func Dir(path string) error {
	if _, err := Way(path); err != nil {
		return err
	}
	_, err := give(path, whole)
	return err
}

// give gives the owner of a directory all permissions if one of those is missing.
func give(path string, needed fs.FileMode) (changed bool, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	if !st.IsDir() || st.Mode().Perm()&needed == needed || !Owned(st) {
		return false, nil // a link is as good as what it leads to
	}
	return true, os.Chmod(path, st.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)|whole)
}
