package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

func streamPath(o Owner, id string, s StreamName) string {
	return filepath.Join(ownersDir, ownerName(o), id, string(s))
}

// createSpill creates the spill file of one stream.
func (f *files) createSpill(o Owner, id string, s StreamName) (*os.File, error) {
	rel := streamPath(o, id, s)
	if err := f.makeDir(filepath.Dir(rel)); err != nil {
		return nil, err
	}
	// O_EXCL does not follow a link in the last component either.
	file, err := f.root.OpenFile(rel, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil || f.commands == nil {
		return file, err
	}
	if err := errors.Join(file.Chown(-1, f.modes.gid), file.Chmod(f.modes.file)); err != nil {
		return nil, errors.Join(err, file.Close(), f.root.Remove(rel))
	}
	return file, nil
}

// openSpill opens the file of one stream for reading. A command with full access can have put anything there, and
// one of the same user can have taken the file's mode.
func (f *files) openSpill(o Owner, id string, s StreamName) (*os.File, error) {
	rel := streamPath(o, id, s)
	if err := f.mend(filepath.Dir(rel)); err != nil {
		return nil, err
	}
	file, err := f.openRegular(rel)
	if errors.Is(err, fs.ErrPermission) && f.root.Chmod(rel, f.modes.file) == nil {
		file, err = f.openRegular(rel)
	}
	return file, err
}

func (f *files) openRegular(rel string) (*os.File, error) {
	entry, err := f.root.Lstat(rel)
	if err != nil {
		return nil, err
	}
	if !entry.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", rel)
	}
	// What was looked at is what is opened. O_NONBLOCK: a FIFO put there meanwhile would wait for a writer.
	file, err := f.root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err == nil && !os.SameFile(entry, st) {
		err = fmt.Errorf("%s was replaced while it was opened", rel)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (f *files) spillPath(o Owner, id string, s StreamName) string {
	return filepath.Join(f.path, streamPath(o, id, s))
}

func (f *files) removeSpill(o Owner, id string, s StreamName) error {
	return f.root.Remove(streamPath(o, id, s))
}

// noteDropped leaves a note that the file of a task's stream of that length is not complete any more, for
// the case that the server dies before the task settles. It is the target of a link, since that
// is there as a whole or not at all.
func (f *files) noteDropped(o Owner, id string, s StreamName, size int64) error {
	rel := streamPath(o, id, s)
	if err := f.makeDir(filepath.Dir(rel)); err != nil {
		return err
	}
	return f.root.Symlink(strconv.FormatInt(size, 10), rel+dropped)
}

// sizeOf tells how long the file of a lost task's stream is. Where it was dropped it is not complete, and
// the size, never 0 then, is what the stream had at least. A stream without any byte has no file.
func (f *files) sizeOf(o Owner, id string, s StreamName) (size int64, complete bool) {
	rel := streamPath(o, id, s)
	if err := f.mend(filepath.Dir(rel)); err != nil {
		return 1, false
	}
	if note, err := f.root.Readlink(rel + dropped); err == nil {
		size, _ = strconv.ParseInt(note, 10, 64)
		return max(1, size), false
	}
	st, err := f.root.Lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, true
	case err != nil || !st.Mode().IsRegular():
		return 1, false
	}
	return st.Size(), true
}
