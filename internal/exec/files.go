package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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

func (f *files) removeTemp(o Owner, id string) error {
	return f.removeTree(filepath.Join(ownersDir, ownerName(o), tempDir, id))
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
