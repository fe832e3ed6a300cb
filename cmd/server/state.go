package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/config"
	"bashd/internal/output"
	"bashd/internal/reclaim"
	"bashd/internal/sandbox"
	"bashd/internal/store"
)

// state is the state directory, which this process alone uses as long as it
// is open.
type state struct {
	mode fs.FileMode // its own, and that of its directory for the probe
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

// openState makes the state directory if it is missing, locks it, and reads its key. Commands that run as commands, nil for
// this process's user, can pass through it.
func openState(dir string, commands *sandbox.Credential, log *slog.Logger) (*state, error) {
	reclaimed(dir, log)
	s := &state{mode: closedMode}
	if commands != nil {
		s.mode = passedMode
	}
	if err := s.open(dir, commands, log); err != nil {
		s.close()
		return nil, fmt.Errorf("BASHD_STATE_DIR: %w", err)
	}
	return s, nil
}

// The modes of a state directory, without and with commands that have a user of their own.
const (
	closedMode fs.FileMode = 0o700
	passedMode fs.FileMode = 0o711
)

func (s *state) open(dir string, commands *sandbox.Credential, log *slog.Logger) error {
	if err := makeDirs(dir, commands != nil); err != nil {
		return err
	}
	if err := takeBack(dir, s.mode, log); err != nil {
		return err
	}
	if err := private(dir, s.mode); err != nil {
		return err
	}
	if commands != nil {
		if err := unshared(dir); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	s.root = root
	return s.prepare(dir)
}

// makeDirs is os.MkdirAll for this process alone. With passed others can pass the directories that it makes on the way.
func makeDirs(path string, passed bool) error {
	var missing []string
	for at := filepath.Dir(path); passed; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
	}
	err := os.MkdirAll(path, closedMode)
	for _, dir := range missing {
		if err == nil {
			err = os.Chmod(dir, passedMode)
		}
	}
	return err
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
	if err := s.root.Mkdir(scratchName, closedMode); err != nil {
		return err
	}
	// Whatever the umask: the modes of what exists already are as they should be.
	return errors.Join(s.root.Chmod(scratchName, s.mode), s.root.Chmod(".", s.mode))
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
func takeBack(dir string, mode fs.FileMode, log *slog.Logger) error {
	for name, size := range map[string]int64{lockName: 0, keyName: output.KeyBytes} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || !st.Mode().IsRegular() || st.Size() != size || !reclaim.Owned(st) {
			return nil
		}
	}
	if err := takeBackTop(dir, mode, log); err != nil {
		return err
	}
	for _, name := range []string{lockName, keyName, dbName, dbName + "-wal", dbName + "-shm"} {
		if err := chmod(filepath.Join(dir, name), 0o600, log); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// takeBackTop is for the directory itself, which an earlier life may have had open for commands of another user, or closed.
func takeBackTop(dir string, mode fs.FileMode, log *slog.Logger) error {
	if st, err := os.Stat(dir); err == nil && reclaim.Owned(st) && slices.Contains([]fs.FileMode{closedMode, passedMode}, st.Mode().Perm()) {
		return os.Chmod(dir, mode)
	}
	return chmod(dir, mode, log)
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

// private refuses a directory that others can enter, beyond what mode allows: outputs lie in it.
func private(dir string, mode fs.FileMode) error {
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case st.Mode().Perm()&0o077&^mode != 0:
		return fmt.Errorf("%s is open to others (mode %04o); mend it with: chmod %o %s", dir, st.Mode().Perm(), mode, dir)
	}
	return nil
}

// unshared refuses a state directory of which something belongs to another user, maybe the one that commands run as: they could do with it
// what they like. What is deeper is put right when it is used.
func unshared(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	paths := []string{dir}
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	for _, path := range paths {
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a file of another bashd, which holds the lock
		}
		if err != nil {
			return err
		}
		if !reclaim.Owned(st) {
			return fmt.Errorf("%s belongs to somebody else than root, as which bashd runs; mend it with: chown -R root:root %s", path, dir)
		}
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
	if s.root != nil {
		s.root.Close()
	}
}

// prepareWorkspace makes the workspace if it is missing, and lets commands that run as commands, nil for this process's user, use it
// where nobody else can. A home directory is refused: it holds what must not be the commands'.
func prepareWorkspace(cfg config.Config, commands *sandbox.Credential, log *slog.Logger) error {
	reclaimed(cfg.Workspace, log)
	if err := makeDirs(cfg.Workspace, commands != nil); err != nil {
		return fmt.Errorf("BASHD_WORKSPACE: %w", err)
	}
	real, err := filepath.EvalSymlinks(cfg.Workspace)
	if err != nil {
		return fmt.Errorf("BASHD_WORKSPACE: %w", err)
	}
	for _, home := range homes(commands) {
		if h, err := filepath.EvalSymlinks(home); home != "" && err == nil && h == real {
			return fmt.Errorf("BASHD_WORKSPACE: %s is a home or system directory; choose one of its own for commands", real)
		}
	}
	if err := shareWorkspace(real, cfg.WorkspaceLayout, commands); err != nil {
		return fmt.Errorf("BASHD_WORKSPACE: %w", err)
	}
	return nil
}

// homes lists the directories that hold what users have, and what everybody shares or a command has of its own, not what commands are for.
func homes(commands *sandbox.Credential) []string {
	all := []string{os.Getenv("HOME"), "/root", "/home", "/", "/tmp", "/var/tmp", "/dev/shm", "/run"}
	if u, err := user.Current(); err == nil {
		all = append(all, u.HomeDir)
	}
	if commands != nil {
		if u, err := user.LookupId(strconv.FormatUint(uint64(commands.UID), 10)); err == nil {
			all = append(all, u.HomeDir)
		}
	}
	return all
}

// passedWorkspace is the mode of a workspace in which the group of the commands' user passes to the owners' directories.
const passedWorkspace fs.FileMode = 0o710

// shareWorkspace lets the commands' user into a workspace that is as this service makes it, root's and closed to all others: it
// may pass to the owners' directories, or the one directory of all becomes its own. Any other is as the operator wants it.
func shareWorkspace(dir, layout string, commands *sandbox.Credential) error {
	st, err := os.Lstat(dir)
	if err != nil || commands == nil || !reclaim.Owned(st) {
		return err
	}
	closed, single := st.Mode().Perm()&0o077 == 0, layout == config.LayoutSingle
	switch {
	case closed && single:
		return os.Lchown(dir, int(commands.UID), int(commands.GID))
	case !single && (closed || st.Mode().Perm() == passedWorkspace):
		return errors.Join(os.Lchown(dir, -1, int(commands.GID)), os.Chmod(dir, passedWorkspace))
	}
	return nil
}
