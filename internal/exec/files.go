package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// files lays out what runs leave on disk:
//
//	<state>/owners/<owner>/<id>/{stdout,stderr}   output files
//	<state>/owners/<owner>/<id>/stdout.dropped    a link that leads nowhere: the file was withdrawn, or could not be made
//	<state>/owners/<owner>/tmp/<id>/              a running command's private TMPDIR, its user's
//	<state>/probe/                                where the sandbox tries out what it can do
//	<state>/trash/                                what is being removed
//	<workspace>/<owner>/                          the owner's workspace, the commands' user's
//
// <owner> is the owner key, or "shared" for nobody. All access to the state
// directory goes through an os.Root, so that no link planted in it leads out. Who may do what there, [modes] says.
type files struct {
	root      *os.Root
	path      string // canonical
	base      string // canonical workspace
	oneForAll bool
	commands  *sandbox.Credential // whom commands run as; nil: as this process
	modes     modes
	kick      func() // wakes the janitor: something is left in the trash
}

const (
	ownersDir   = "owners"
	probeDir    = "probe"
	sharedOwner = "shared"
	tempDir     = "tmp"
	dropped     = ".dropped"
)

// openFiles opens the layout for the commands of s, and sees to the modes of what an earlier life left. Errors are those of the
// file system.
func openFiles(s Settings) (*files, error) {
	path, err := filepath.EvalSymlinks(s.StateDir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	base, err := filepath.EvalSymlinks(s.Workspace)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f := &files{root: root, path: path, base: base, oneForAll: s.WorkspaceShared, commands: s.RunAs, modes: modesFor(s.RunAs)}
	if err = f.makeOwners(); err == nil {
		err = f.arrange()
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return f, nil
}

// makeOwners sees that there is a directory of the owners.
func (f *files) makeOwners() error {
	err := f.root.Mkdir(ownersDir, own)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if st, err := f.root.Lstat(ownersDir); err != nil || !st.IsDir() { // nothing is read or written through a link
		return fmt.Errorf("%s is not a directory; move it away", filepath.Join(f.path, ownersDir))
	}
	return nil
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
	if err := usable(f.base); err != nil {
		return f.base, err
	}
	if f.oneForAll {
		return f.base, f.handOver(f.base)
	}
	dir := filepath.Join(f.base, ownerName(o))
	if err := os.Mkdir(dir, own); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := usable(dir); err != nil {
			return dir, err
		}
	}
	return dir, f.handOver(dir)
}

// tempPath is the private temporary directory of the command with that id.
func (f *files) tempPath(o Owner, id string) string {
	return filepath.Join(f.ownerDir(o), tempDir, id)
}

// makeTemp makes it, for the commands' user alone.
func (f *files) makeTemp(o Owner, id string) error {
	rel := filepath.Join(ownersDir, ownerName(o), tempDir)
	if err := f.makeDir(rel); err != nil {
		return err
	}
	rel = filepath.Join(rel, id)
	if err := f.root.Mkdir(rel, own); err != nil || f.commands == nil {
		return err
	}
	return f.root.Lchown(rel, int(f.commands.UID), int(f.commands.GID))
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
	return f.list(dir)
}

// list is entries of a directory that is in order.
func (f *files) list(dir string) ([]string, error) {
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
