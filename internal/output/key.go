package output

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// LoadOrCreateKey returns the KeyBytes long key in the file name under root, and
// makes the file, 0600, if it is not there. Processes that do so at once all get the
// same key, and a crash leaves either no key or a whole one.
//
// A file that is a symbolic link or not a regular file, that group or others may
// access, or that has another length is refused and left alone: a key that somebody else
// may know protects nothing. It must stay on this side: never log or send it.
func LoadOrCreateKey(root *os.Root, name string) ([]byte, error) {
	key, err := loadKey(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createKey(root, name); err == nil || errors.Is(err, fs.ErrExist) {
			key, err = loadKey(root, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cursor key %s: %w", name, err)
	}
	return key, nil
}

// loadKey reads an existing key. What is checked is what is read: the entry is
// looked at before the opening, and must be the very file that was opened.
func loadKey(root *os.Root, name string) ([]byte, error) {
	entry, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !entry.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	// O_NONBLOCK: a FIFO put there meanwhile must not hang the start.
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !os.SameFile(entry, info):
		return nil, errors.New("replaced while it was opened")
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("accessible to group or others (mode %04o, want 0600)", info.Mode().Perm())
	case info.Size() != KeyBytes:
		return nil, fmt.Errorf("%d bytes long, want %d", info.Size(), KeyBytes)
	}
	key := make([]byte, KeyBytes)
	if _, err := io.ReadFull(f, key); err != nil {
		return nil, err
	}
	return key, nil
}

// createKey makes a new key under a temporary name and links it to name, which
// unlike a rename never replaces a key that another process has just made: that is
// fs.ErrExist.
func createKey(root *os.Root, name string) error {
	temp := name + "." + rand.Text() + ".tmp"
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer root.Remove(temp)
	key := make([]byte, KeyBytes)
	rand.Read(key) // never fails
	_, err = f.Write(key)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := root.Link(temp, name); err != nil {
		return err
	}
	return syncDir(root, path.Dir(name))
}

// syncDir makes a new entry outlast a loss of power.
func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
