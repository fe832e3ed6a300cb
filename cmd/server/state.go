package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/config"
	"bashd/internal/output"
	"bashd/internal/reclaim"
	"bashd/internal/store"
)

// state is the state directory, which this process alone uses as long as it
// is open.
type state struct {
	root *os.Root
	lock *os.File
	key  []byte // seals cursors
	db   *store.DB
}

const (
	lockName    = "lock"
	keyName     = "cursor.key"
	dbName      = "bashd.db"
	scratchName = "probe"
)

// openState makes the state directory if it is missing, locks it, and reads its key.
func openState(dir string, log *slog.Logger) (*state, error) {
	reclaimed(dir, log)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("BASHD_STATE_DIR: %w", err)
	}
	if err := takeBack(dir, log); err != nil {
		return nil, fmt.Errorf("BASHD_STATE_DIR: %w", err)
	}
	if err := private(dir); err != nil {
		return nil, fmt.Errorf("BASHD_STATE_DIR: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("BASHD_STATE_DIR: %w", err)
	}
	s := &state{root: root}
	if err := s.prepare(dir); err != nil {
		s.close()
		return nil, fmt.Errorf("BASHD_STATE_DIR: %w", err)
	}
	return s, nil
}

func (s *state) prepare(dir string) (err error) {
	if s.lock, err = s.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := lock(s.lock); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s is in use by another bashd", dir)
	} else if err != nil {
		return fmt.Errorf("locking %s: %w", dir, err)
	}
	if s.key, err = output.LoadOrCreateKey(s.root, keyName); err != nil {
		return err
	}
	if s.db, err = store.Open(filepath.Join(dir, dbName)); err != nil {
		return err
	}
	if err := s.root.RemoveAll(scratchName); err != nil {
		return err
	}
	return s.root.Mkdir(scratchName, 0o700)
}

// lockPatience is how long the lock of a bashd that has been killed may stay: it takes a moment to be let go of.
const lockPatience = 2 * time.Second

func lock(f *os.File) error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

// takeBack gives a state directory of an earlier life, and the files in it, the modes back that a command of the
// same user has changed (the gap "metadata" in docs/security.md): no command may keep the service from starting.
// A directory that is not certainly ours, by its lock and its key, is left as it is, for private to refuse.
func takeBack(dir string, log *slog.Logger) error {
	for name, size := range map[string]int64{lockName: 0, keyName: output.KeyBytes} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || !st.Mode().IsRegular() || st.Size() != size || !reclaim.Owned(st) {
			return nil
		}
	}
	if err := chmod(dir, 0o700, log); err != nil {
		return err
	}
	for _, name := range []string{lockName, keyName, dbName, dbName + "-wal", dbName + "-shm"} {
		if err := chmod(filepath.Join(dir, name), 0o600, log); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// reclaimed gives this user's directories down to path back, as far as it is allowed to; what is amiss then
// is told by who uses them.
func reclaimed(path string, log *slog.Logger) {
	if mended, _ := reclaim.Way(path); len(mended) > 0 {
		log.Warn("permissions of this user's own directories had been taken and were given back; a command did that, or somebody else of this user", "directories", mended)
	}
}

// chmod gives one of our own files the mode that it is to have.
func chmod(path string, mode fs.FileMode, log *slog.Logger) error {
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Perm() == mode || !reclaim.Owned(st) || st.Mode().Type() == fs.ModeSymlink {
		return err
	}
	log.Warn("the mode of a file of the state directory had been changed and was mended; a command did that, or somebody else of this user",
		"file", path, "mode", fmt.Sprintf("%04o", st.Mode().Perm()))
	return os.Chmod(path, mode)
}

// private refuses a directory that others can enter: outputs lie in it.
func private(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case st.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others (mode %04o); mend it with: chmod 700 %s", dir, st.Mode().Perm(), dir)
	}
	return nil
}

// close closes the store before it gives the lock back.
func (s *state) close() {
	if s.db != nil {
		s.db.Close()
	}
	if s.lock != nil {
		s.lock.Close()
	}
	s.root.Close()
}

// prepareWorkspace makes the workspace if it is missing. A home directory is
// refused: it holds what must not be the commands'.
func prepareWorkspace(cfg config.Config, log *slog.Logger) error {
	reclaimed(cfg.Workspace, log)
	if err := os.MkdirAll(cfg.Workspace, 0o700); err != nil {
		return fmt.Errorf("BASHD_WORKSPACE: %w", err)
	}
	real, err := filepath.EvalSymlinks(cfg.Workspace)
	if err != nil {
		return fmt.Errorf("BASHD_WORKSPACE: %w", err)
	}
	homes := []string{os.Getenv("HOME"), "/root", "/home", "/"}
	if u, err := user.Current(); err == nil {
		homes = append(homes, u.HomeDir)
	}
	for _, home := range homes {
		if h, err := filepath.EvalSymlinks(home); home != "" && err == nil && h == real {
			return fmt.Errorf("BASHD_WORKSPACE: %s is a home or system directory; choose one of its own for commands", real)
		}
	}
	return nil
}
