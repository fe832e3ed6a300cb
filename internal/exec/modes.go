package exec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bashd/internal/reclaim"
)

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
