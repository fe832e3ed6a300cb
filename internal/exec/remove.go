package exec

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// trashDir, in the state directory, is where trees wait to be removed.
	trashDir = "trash"
	// removePatience is how long the end of a command waits for what it left to be removed. The janitor does the rest.
	removePatience = 2 * time.Second
	// janitorPatience is how long the janitor removes at a stretch.
	janitorPatience = 500 * time.Millisecond
	// moveBatch bounds how many directories are moved out of one before they are removed in turn.
	moveBatch = 1000
)

// removeTree removes rel and all below it, or at least takes it away: what is not removed within removePatience is
// in the trash then.
//
// How deep and how wide a tree is, the command decides that made it. So a level costs neither a descriptor nor a stack frame, as
// it does with os.RemoveAll: a directory that is not empty is moved up into the trash, and has its turn there.
func (f *files) removeTree(rel string) error {
	if err := f.mend(filepath.Dir(rel)); err != nil {
		return err
	}
	st, err := f.root.Lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.IsDir():
		return f.root.Remove(rel)
	}
	name, err := f.discard(rel)
	if err != nil {
		return err
	}
	return f.removeTrash(time.Now().Add(removePatience), name)
}

// makeTrash sees that there is a trash, and that it is a directory and no link: what that leads to would be emptied.
func (f *files) makeTrash() error {
	err := f.root.Mkdir(trashDir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := f.root.Lstat(trashDir)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s in the state directory is not a directory", trashDir)
	}
	return err
}

// discard moves a directory into the trash.
func (f *files) discard(rel string) (name string, err error) {
	if err := f.makeTrash(); err != nil {
		return "", err
	}
	// A command may have taken its mode, without which it cannot be moved.
	if err := f.root.Chmod(rel, 0o700); err != nil {
		return "", err
	}
	name = rand.Text()
	return name, f.root.Rename(rel, filepath.Join(trashDir, name))
}

// emptyTrash removes what is in the trash, as far as it gets in janitorPatience: whoever left much there must not keep the
// janitor from the rest of its round. It is woken again for what is left.
func (f *files) emptyTrash() error {
	if err := f.makeTrash(); err != nil {
		return err
	}
	names, err := f.entries(trashDir)
	until := time.Now().Add(janitorPatience)
	for _, name := range names {
		// One that resists keeps nobody from the others.
		err = errors.Join(err, f.removeTrash(until, name))
		if time.Now().After(until) {
			f.kick() // for those that had no turn
			break
		}
	}
	return err
}

// removeTrash removes directories in the trash, as far as it gets until then.
func (f *files) removeTrash(until time.Time, names ...string) error {
	trash, err := f.openDir(trashDir)
	if err != nil {
		return err
	}
	defer trash.Close()
	for len(names) > 0 {
		if time.Now().After(until) {
			f.kick()
			return nil
		}
		name := names[len(names)-1]
		moved, err := f.emptyOne(trash, name, until)
		if err != nil {
			return err
		}
		if names = append(names, moved...); len(moved) > 0 || time.Now().After(until) {
			continue // and then name again
		}
		if err := f.root.Remove(filepath.Join(trashDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		names = names[:len(names)-1]
	}
	return nil
}

// emptyOne removes what is in one directory of the trash, as far as it gets until then. Directories that are not empty
// themselves it moves beside that, moveBatch at most.
func (f *files) emptyOne(trash *os.File, name string, until time.Time) (moved []string, err error) {
	path := filepath.Join(trashDir, name)
	st, err := f.root.Lstat(path)
	var dir *os.File
	if err == nil && !st.IsDir() {
		return nil, nil // to be removed as it is
	}
	if err == nil {
		err = f.root.Chmod(path, 0o700)
	}
	if err == nil {
		dir, err = f.openDir(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // somebody else is at it
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for len(moved) < moveBatch && time.Now().Before(until) {
		entries, err := dir.Readdirnames(moveBatch)
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // somebody else has removed it
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
		for _, entry := range entries {
			fresh, err := removeOrMove(int(dir.Fd()), entry, int(trash.Fd()))
			if err != nil {
				return moved, err
			}
			if fresh != "" {
				moved = append(moved, fresh)
			}
		}
		// Removing what was read may make the rest be skipped, so it is read from the start.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// removeOrMove removes one entry of a directory, or moves it to another under the name that it returns.
func removeOrMove(dir int, entry string, to int) (fresh string, err error) {
	err = unix.Unlinkat(dir, entry, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(dir, entry, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return "", nil
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return "", &fs.PathError{Op: "remove", Path: entry, Err: err}
	}
	err = chmodDir(dir, entry, own)
	if err == nil {
		fresh = rand.Text()
		err = unix.Renameat(dir, entry, to, fresh)
	}
	if errors.Is(err, unix.ENOENT) {
		return "", nil // somebody else was faster
	}
	if err != nil {
		return "", &fs.PathError{Op: "move", Path: entry, Err: err}
	}
	return fresh, nil
}

// chmodDir gives the directory of that name in an open one its mode. It follows no link: a command that is still at work in
// there can put one in the place of the directory, and this process may be allowed to do what the command is not.
func chmodDir(in int, name string, mode fs.FileMode) error {
	fd, err := unix.Openat(in, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), uint32(mode.Perm()))
}
