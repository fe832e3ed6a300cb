package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// files lays out what runs leave on disk:
//
//	<state>/owners/<owner>/<id>/{stdout,stderr}   spill files, 0600
//	<state>/owners/<owner>/tmp/<id>/              a running command's private TMPDIR
//	<workspace>/<owner>/                          the owner's workspace
//
// <owner> is the owner key, or "shared" for nobody. All access to the state
// directory goes through an os.Root, so that no link planted in it leads out.
type files struct {
	root      *os.Root
	path      string // canonical
	base      string // canonical workspace
	oneForAll bool
}

const (
	ownersDir   = "owners"
	sharedOwner = "shared"
	tempDir     = "tmp"
)

// openFiles opens the layout and removes what an earlier life left of it: its
// runs are not remembered.
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
	if err := f.removeTree(ownersDir); err != nil {
		root.Close()
		return nil, fmt.Errorf("removing old output: %w", err)
	}
	if err := root.Mkdir(ownersDir, 0o700); err != nil {
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
	if f.oneForAll {
		return f.base, isDir(f.base)
	}
	dir := filepath.Join(f.base, ownerName(o))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
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

// mend gives our directories down to dir their mode back. A command of the same user can
// take it (the gap "metadata"), which must not stop its own end nor later commands.
func (f *files) mend(dir string) error {
	path := ""
	for part := range strings.SplitSeq(dir, "/") {
		path = filepath.Join(path, part)
		st, err := f.root.Lstat(path)
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

func (f *files) openSpill(o Owner, id string, s StreamName) (*os.File, error) {
	return f.root.Open(streamPath(o, id, s))
}

func (f *files) spillPath(o Owner, id string, s StreamName) string {
	return filepath.Join(f.path, streamPath(o, id, s))
}

func (f *files) removeSpill(o Owner, id string, s StreamName) error {
	return f.root.Remove(streamPath(o, id, s))
}

// removeRun removes the spill files of one run.
func (f *files) removeRun(o Owner, id string) error {
	return f.removeTree(filepath.Join(ownersDir, ownerName(o), id))
}

// removeTree removes rel and all below it. A command may have left directories
// that their owner cannot search; where the daemon is not root, those are opened up first.
func (f *files) removeTree(rel string) error {
	if err := f.mend(filepath.Dir(rel)); err != nil {
		return err
	}
	err := f.root.RemoveAll(rel)
	if errors.Is(err, fs.ErrPermission) {
		f.openUp(rel)
		err = f.root.RemoveAll(rel)
	}
	return err
}

func (f *files) openUp(dir string) {
	if f.root.Chmod(dir, 0o700) != nil {
		return
	}
	d, err := f.root.Open(dir)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	d.Close()
	for _, e := range entries {
		if e.IsDir() {
			f.openUp(filepath.Join(dir, e.Name()))
		}
	}
}
