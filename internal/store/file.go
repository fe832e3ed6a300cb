package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sidecars are what SQLite appends to the name of a database for the files beside it.
var sidecars = []string{"-wal", "-shm", "-journal"}

// prepareFile makes the database file if it is missing and refuses one that is not private.
// SQLite gives the files beside it the same mode, whatever the umask is.
//
// The file is closed again before SQLite opens it: closing a descriptor of a file drops every
// lock that the process has on it, SQLite's too. Nothing here may open it later.
func prepareFile(path string) (os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	switch {
	case err == nil:
		err = errors.Join(f.Chmod(0o600), f.Sync(), f.Close(), syncDir(filepath.Dir(path)))
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	for _, suffix := range sidecars {
		if _, err := private(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	st, err := private(path)
	if err == nil && st.Size() > 0 && st.Size() < leastSize {
		// SQLite would take it for an empty database and write over it.
		err = errors.New("it is not a SQLite database")
	}
	return st, err
}

// leastSize is that of the smallest page that SQLite knows, and so of a database.
const leastSize = 512

// private returns what is at path if that is a regular file for its owner alone.
func private(path string) (os.FileInfo, error) {
	st, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case st.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s is accessible to group or others (mode %04o); mend it with: chmod 600 %[1]s", path, st.Mode().Perm())
	}
	return st, nil
}

// syncDir makes a new entry outlast a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// present tells whether the path still leads to the file that was opened. SQLite would go on
// writing to a removed file, and what it then promises nobody could ever read.
func (db *DB) present() error {
	st, err := os.Lstat(db.path)
	if err != nil {
		return fmt.Errorf("the database is gone: %w", err)
	}
	if !os.SameFile(st, db.file) {
		return errors.New("the database file was replaced by another")
	}
	if st.Size() < leastSize {
		return errors.New("the database file was cut")
	}
	if db.log == nil { // still opening
		return nil
	}
	if st, err = os.Lstat(db.path + "-wal"); err != nil || !os.SameFile(st, db.log) {
		return errors.New("the -wal file of the database was removed or replaced")
	}
	return nil
}
