package exec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"bashd/internal/reclaim"
	"bashd/internal/sandbox"
)

// modes are those of what the daemon and the commands share in the state directory. Where commands run as the
// daemon's own user, nobody else may do anything. Where they have a user of their own, that user's group may read what its
// owners may, and nobody but the daemon may write; the fence between owners is then the sandbox's alone.
type modes struct {
	pass fs.FileMode // of directories that commands pass on their way, and cannot list
	dir  fs.FileMode // of an owner's directories
	file fs.FileMode // of output files
	gid  int         // the group of the owners' directories and files; -1: whichever, as it may do nothing
}

// own is the mode of directories that are nobody's but the daemon's.
const own fs.FileMode = 0o700

func modesFor(commands *sandbox.Credential) modes {
	if commands == nil {
		return modes{pass: own, dir: own, file: 0o600, gid: -1}
	}
	return modes{pass: 0o711, dir: 0o750, file: 0o640, gid: int(commands.GID)}
}

// of is what one of our directories is to have. What is not named here is the daemon's alone.
func (m modes) of(dir string) (mode fs.FileMode, gid int) {
	switch {
	case dir == ".", dir == probeDir:
		return m.pass, -1
	case dir == ownersDir:
		return m.pass, m.gid
	case strings.HasPrefix(dir, ownersDir+"/"):
		return m.dir, m.gid
	}
	return own, -1
}

// set gives rel the mode and, unless gid is -1, the daemon's user and that group. st is what rel was found to be, and no link.
func (f *files) set(rel string, st fs.FileInfo, mode fs.FileMode, gid int) error {
	if gid >= 0 && !belongs(st, gid) {
		if err := f.root.Lchown(rel, os.Geteuid(), gid); err != nil {
			return err
		}
	}
	if st.Mode()&^fs.ModeType == mode {
		return nil
	}
	return f.root.Chmod(rel, mode)
}

// belongs reports that st is of a file of this process's user and that group.
func belongs(st fs.FileInfo, gid int) bool {
	return reclaim.Owned(st) && int(st.Sys().(*syscall.Stat_t).Gid) == gid
}

// usable sees that dir is a directory of ours that can be used. A command of the same user, maybe another owner's, can have
// taken its permissions, or those on the way to it.
func usable(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil || st.Mode().Perm()&0o700 != 0o700 {
		if err := reclaim.Dir(dir); err != nil {
			return err
		}
		st, err = os.Lstat(dir)
	}
	if err == nil && !st.IsDir() {
		err = errNotDirectory
	}
	return err
}

// handOver sees that a workspace belongs to whom commands run as, and that its owner has all permissions on it, which a
// command may have taken. What is in it stays as it is. Only root can do that. It leaves alone what is not for it to give: the
// one workspace of all, which the operator chose, and a directory that somebody else opened to others.
func (f *files) handOver(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	// Commands may be at work in there, so what was looked at is what is changed.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	to := sandbox.Credential{}
	if f.commands != nil {
		to = *f.commands
	}
	if st.Uid != to.UID {
		if f.oneForAll || st.Uid != 0 && st.Mode&0o077 != 0 {
			return nil
		}
		if err := unix.Fchownat(fd, "", int(to.UID), int(to.GID), unix.AT_EMPTY_PATH); err != nil {
			return &fs.PathError{Op: "chown", Path: dir, Err: err}
		}
	}
	if whole := uint32(own); st.Mode&whole != whole {
		return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), st.Mode&0o7777|whole)
	}
	return nil
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
	if st, err := os.Stat(f.path); err == nil && st.Mode().Perm() != f.modes.pass {
		if err := os.Chmod(f.path, f.modes.pass); err != nil {
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
			want, _ = f.modes.of(name)
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

// mend gives our directories down to dir their mode back, as far as they exist. A command of the same user can
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
		if err == nil {
			mode, gid := f.modes.of(path)
			err = f.set(path, st, mode, gid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes the directory rel and those on the way to it, each with the mode that it is to have.
func (f *files) makeDir(rel string) error {
	if err := f.mend(rel); err != nil {
		return err
	}
	if err := f.root.MkdirAll(rel, own); err != nil || f.commands == nil {
		return err
	}
	return f.mend(rel) // what was just made is the daemon's alone so far
}

// arrange gives the owners' directories and output files the modes that they are to have, where an earlier life had commands run
// as another user: commands read these files by themselves. The directory of all comes last, so that its mode and group
// say that the rest is done.
func (f *files) arrange() error {
	st, err := f.root.Lstat(ownersDir)
	if err != nil {
		return err
	}
	mode, gid := f.modes.of(ownersDir)
	if st.Mode() == fs.ModeDir|mode && (gid < 0 || belongs(st, gid)) {
		return nil
	}
	if err := f.root.Chmod(ownersDir, own); err != nil {
		return err
	}
	err = f.eachEntry(ownersDir, func(owner string) error {
		return f.eachEntry(owner, func(run string) error {
			if filepath.Base(run) == tempDir {
				return nil // its content is on its way out
			}
			return f.eachEntry(run, func(string) error { return nil })
		})
	})
	if err != nil {
		return err
	}
	return f.mend(ownersDir)
}

// eachEntry sets the modes of what is in dir, and visits the directories among it.
func (f *files) eachEntry(dir string, visit func(rel string) error) error {
	names, err := f.list(dir)
	for _, name := range names {
		rel := filepath.Join(dir, name)
		st, err := f.root.Lstat(rel)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case st.Mode().IsRegular():
			err = f.set(rel, st, f.modes.file, f.modes.gid)
		case st.IsDir():
			mode, gid := f.modes.of(rel)
			if err = f.set(rel, st, mode, gid); err == nil {
				err = visit(rel)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}
