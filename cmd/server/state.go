package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bashd/internal/config"
	"bashd/internal/output"
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
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
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
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
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
func prepareWorkspace(cfg config.Config) error {
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
