package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/reclaim"
)

// files lays out what runs leave on disk:
//
//	<state>/owners/<owner>/<id>/{stdout,stderr}   output files, 0600
//	<state>/owners/<owner>/<id>/stdout.dropped    a link that leads nowhere: the file was withdrawn, or could not be made
//	<state>/owners/<owner>/tmp/<id>/              a running command's private TMPDIR
//	<state>/trash/                                what is being removed
//	<workspace>/<owner>/                          the owner's workspace
//
// <owner> is the owner key, or "shared" for nobody. All access to the state
// directory goes through an os.Root, so that no link planted in it leads out.
type files struct {
	root      *os.Root
	path      string // canonical
	base      string // canonical workspace
	oneForAll bool
	kick      func() // wakes the janitor: something is left in the trash
}

const (
	ownersDir   = "owners"
	sharedOwner = "shared"
	tempDir     = "tmp"
	dropped     = ".dropped"
)

// openFiles opens the layout.
func openFiles(state, workspace string, oneForAll bool) (*files, error) {
	path, err := filepath.EvalSymlinks(state)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	base, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f := &files{root: root, path: path, base: base, oneForAll: oneForAll}
	err = root.Mkdir(ownersDir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = nil
		if st, statErr := root.Lstat(ownersDir); statErr != nil || !st.IsDir() { // nothing is read or written through a link
			err = fmt.Errorf("%s is not a directory; move it away", filepath.Join(path, ownersDir))
		}
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return f, nil
}

func (f *files) close() { f.root.Close() }

// ownerName is the owner's name in the file system.
func ownerName(o Owner) string {
	if o == "" {
		return sharedOwner
	}
	return string(o)
}

// ownerDir is the directory of the owner's files, which the owner's commands may read.
func (f *files) ownerDir(o Owner) string { return filepath.Join(f.path, ownersDir, ownerName(o)) }

// workspace returns the owner's workspace, made on first use.
func (f *files) workspace(o Owner) (string, error) {
	if err := usable(f.base); err != nil || f.oneForAll {
		return f.base, err
	}
	dir := filepath.Join(f.base, ownerName(o))
	if err := os.Mkdir(dir, 0o700); err == nil {
		return dir, nil
	} else if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, usable(dir)
}

// usable sees that dir is a directory of ours that can be used. A command of the same user, maybe another owner's, can have
// taken its permissions, or those on the way to it.
func usable(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil || st.Mode().Perm()&0o700 != 0o700 {
		if _, err := reclaim.Way(dir); err != nil {
			return err
		}
		st, err = os.Lstat(dir)
	}
	if err == nil && !st.IsDir() {
		err = errNotDirectory
	}
	return err
}

// tempPath is the private temporary directory of the command with that id.
func (f *files) tempPath(o Owner, id string) string {
	return filepath.Join(f.ownerDir(o), tempDir, id)
}

func (f *files) makeTemp(o Owner, id string) error {
	rel := filepath.Join(ownersDir, ownerName(o), tempDir)
	if err := f.mend(rel); err != nil {
		return err
	}
	if err := f.root.MkdirAll(rel, 0o700); err != nil {
		return err
	}
	return f.root.Mkdir(filepath.Join(rel, id), 0o700)
}

// mendTop gives the state directory and what lies in it, the database for one, their modes back, and the ways to it and
// to the workspace, and tells what it had to mend. What lies deeper is behind these, and mended when it is used.
func (f *files) mendTop() (mended []string, err error) {
	for _, dir := range []string{f.path, f.base} {
		way, err := reclaim.Way(dir)
		if mended = append(mended, way...); err != nil {
			return mended, err
		}
	}
	if st, err := os.Stat(f.path); err == nil && st.Mode().Perm() != 0o700 {
		if err := os.Chmod(f.path, 0o700); err != nil {
			return mended, err
		}
		mended = append(mended, f.path)
	}
	names, err := f.entries(".")
	for _, name := range names {
		st, statErr := f.root.Lstat(name)
		if statErr != nil || !reclaim.Owned(st) {
			continue // gone again, as the files of a transaction may be; or not ours to change
		}
		want := fs.FileMode(0o600)
		switch st.Mode().Type() {
		case 0:
		case fs.ModeDir:
			want = 0o700
		default:
			continue
		}
		if st.Mode().Perm() == want {
			continue
		}
		if chmodErr := f.root.Chmod(name, want); chmodErr != nil {
			err = errors.Join(err, chmodErr)
			continue
		}
		mended = append(mended, name)
	}
	return mended, err
}

// mend gives our directories down to dir their mode back. A command of the same user can
// take it (the gap "metadata"), which must not stop its own end nor later commands.
func (f *files) mend(dir string) error {
	path := ""
	for part := range strings.SplitSeq(dir, "/") {
		path = filepath.Join(path, part)
		st, err := f.root.Lstat(path)
		if errors.Is(err, fs.ErrPermission) {
			if _, wayErr := reclaim.Way(f.path); wayErr != nil {
				return wayErr
			}
			st, err = f.root.Lstat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && st.Mode() != fs.ModeDir|0o700 {
			err = f.root.Chmod(path, 0o700)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *files) removeTemp(o Owner, id string) error {
	return f.removeTree(filepath.Join(ownersDir, ownerName(o), tempDir, id))
}

func streamPath(o Owner, id string, s StreamName) string {
	return filepath.Join(ownersDir, ownerName(o), id, string(s))
}

// createSpill creates the spill file of one stream.
func (f *files) createSpill(o Owner, id string, s StreamName) (*os.File, error) {
	rel := streamPath(o, id, s)
	if err := f.mend(filepath.Dir(rel)); err != nil {
		return nil, err
	}
	if err := f.root.MkdirAll(filepath.Dir(rel), 0o700); err != nil {
		return nil, err
	}
	// O_EXCL does not follow a link in the last component either.
	return f.root.OpenFile(rel, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// openSpill opens the file of one stream for reading. A command with full access can have put anything there, and
// one of the same user can have taken the file's mode.
func (f *files) openSpill(o Owner, id string, s StreamName) (*os.File, error) {
	rel := streamPath(o, id, s)
	if err := f.mend(filepath.Dir(rel)); err != nil {
		return nil, err
	}
	file, err := f.openRegular(rel)
	if errors.Is(err, fs.ErrPermission) && f.root.Chmod(rel, 0o600) == nil {
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
	if err := f.root.MkdirAll(filepath.Dir(rel), 0o700); err != nil {
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

// clearTemp takes away the temporary directories of commands that run no more (the janitor removes them), and the
// directories of owners of whom nothing is left. Nothing else may run meanwhile.
func (f *files) clearTemp() error {
	owners, err := f.entries(ownersDir)
	for _, o := range owners {
		dir := filepath.Join(ownersDir, o)
		if st, lookErr := f.root.Lstat(dir); err != nil || lookErr != nil || !st.IsDir() {
			continue // what a command with full access put there is not ours to look into
		}
		if err = f.mend(dir); err != nil {
			continue
		}
		if _, err = f.discard(filepath.Join(dir, tempDir)); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			err = nil
		}
		_ = f.root.Remove(dir) // refused where something is in it
	}
	return err
}

// eachRun calls visit for the directory of every command, with the time of its last change, until it returns false.
func (f *files) eachRun(visit func(o Owner, id string, modified time.Time) bool) error {
	owners, err := f.entries(ownersDir)
	if err != nil {
		return err
	}
	for _, name := range owners {
		ids, err := f.entries(filepath.Join(ownersDir, name))
		if errors.Is(err, unix.ENOTDIR) {
			continue // put there by a command with full access
		}
		if err != nil {
			return err
		}
		o := Owner(name)
		if name == sharedOwner {
			o = ""
		}
		for _, id := range ids {
			if id == tempDir {
				continue
			}
			st, err := f.root.Lstat(filepath.Join(ownersDir, name, id))
			if err == nil && !visit(o, id, st.ModTime()) {
				return nil
			}
		}
	}
	return nil
}

// entries lists the names in one of our directories.
func (f *files) entries(dir string) ([]string, error) {
	if err := f.mend(dir); err != nil {
		return nil, err
	}
	d, err := f.openDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// openDir opens a directory and nothing else: the opening of a FIFO would wait for a writer.
func (f *files) openDir(dir string) (*os.File, error) {
	return f.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
}

// removeRun removes the output files of one command.
func (f *files) removeRun(o Owner, id string) error {
	return f.removeTree(filepath.Join(ownersDir, ownerName(o), id))
}
