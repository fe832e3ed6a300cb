package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"bashd/internal/config"
	"bashd/internal/sandbox"
)

// commandsUser finds the user that commands are to run as; nil: as this process. The error is one line that names
// BASHD_RUN_AS: this process is not root, there is no such user, or it is root under another name.
func commandsUser(u config.User) (*sandbox.Credential, error) {
	if u == "" {
		return nil, nil
	}
	if uid := os.Geteuid(); uid != 0 {
		return nil, fmt.Errorf("BASHD_RUN_AS: only root can run commands as somebody else, and bashd runs as uid %d; start it as root, or unset the variable", uid)
	}
	c, err := lookUp(string(u))
	if err != nil {
		return nil, fmt.Errorf("BASHD_RUN_AS: %w", err)
	}
	return c, nil
}

// lookUp reads a name, a uid, or uid:gid. The group of the first two is the user's primary one; that of a uid that nobody has is
// of the same number.
func lookUp(text string) (*sandbox.Credential, error) {
	uid, gid, complete := strings.Cut(text, ":")
	if !complete {
		var err error
		if uid, gid, err = identify(text); err != nil {
			return nil, err
		}
	}
	c := &sandbox.Credential{}
	for to, id := range map[*uint32]string{&c.UID: uid, &c.GID: gid} {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q has no usable id: %w", text, err)
		}
		*to = uint32(n)
	}
	switch {
	case c.UID == 0:
		return nil, fmt.Errorf("%q is root, whom commands must not run as", text)
	case c.GID == 0:
		return nil, fmt.Errorf("the group of %q is root's, which commands must not have; name another one as uid:gid", text)
	}
	return c, nil
}

// identify looks up the ids of a name or a uid.
func identify(text string) (uid, gid string, err error) {
	find, isID := user.Lookup, strings.Trim(text, "0123456789") == ""
	if isID {
		find = user.LookupId
	}
	u, err := find(text)
	if err == nil && isID && u.Uid != text { // the C library cuts off what does not fit
		err = errors.New("it is not to be found")
	}
	if err == nil {
		return u.Uid, u.Gid, nil
	}
	if _, unknown := errors.AsType[user.UnknownUserIdError](err); unknown {
		return text, text, nil
	}
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return "", "", fmt.Errorf("there is no user %q on this host; make it, or give uid:gid", text)
	}
	return "", "", fmt.Errorf("looking up %q: %w", text, err)
}

// commandUIDs says which users commands run as. It counts this process's own in, whomever they are told to run as: a command with full access
// may have found a way back.
func commandUIDs(c *sandbox.Credential) func(uid uint32) bool {
	own := uint32(os.Geteuid())
	return func(uid uint32) bool { return uid == own || c != nil && uid == c.UID }
}

// checkReach sees that the commands' user can get to what commands need, and cannot put other things in the place of what the
// daemon relies on. The error is one line that names the variable and says how to mend it.
func checkReach(cfg config.Config, c *sandbox.Credential) error {
	if c == nil {
		return nil
	}
	state, workspace := wayTo(cfg.StateDir), wayTo(cfg.Workspace)
	var tokens []string
	if cfg.TokensFile != "" {
		tokens = wayTo(cfg.TokensFile)
	}
	var bad error
	err := c.Do(func() {
		for _, check := range []struct {
			variable string
			way      []string
			look     func(path string, uid uint32) error
		}{
			{"BASHD_STATE_DIR", state, canPass},
			{"BASHD_WORKSPACE", workspace, canPass},
			{"BASHD_STATE_DIR", state, cannotReplace},
			{"BASHD_TOKENS_FILE", tokens, cannotReplace},
		} {
			for _, path := range check.way {
				if err := check.look(path, c.UID); err != nil && bad == nil {
					bad = fmt.Errorf("%s: %w", check.variable, err)
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("BASHD_RUN_AS: bashd cannot act as uid %d: %w", c.UID, err)
	}
	return bad
}

// wayTo lists what is on the way to path, from the root down, and path itself: as it is spelled, and where links lead.
func wayTo(path string) (way []string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	for _, end := range []string{real, filepath.Clean(path)} {
		for ; !slices.Contains(way, end); end = filepath.Dir(end) {
			way = append(way, end)
		}
	}
	slices.Sort(way) // a directory comes before what is in it
	return way
}

// canPass says whether the calling thread's user may pass through a directory.
func canPass(dir string, uid uint32) error {
	err := access(dir, unix.X_OK)
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("uid %d, which commands run as, cannot pass %s; mend it with: chmod o+x %s", uid, dir, dir)
	}
	if err != nil {
		return fmt.Errorf("whether uid %d can pass %s: %w", uid, dir, err)
	}
	return nil
}

// cannotReplace says whether the calling thread's user could change a file or directory, or what a directory holds.
func cannotReplace(path string, uid uint32) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil // out of reach
	case err != nil:
		return err
	case st.Mode().Type() == fs.ModeSymlink:
		return nil // is replaced by whoever may change its directory, which is looked at too
	}
	// In a sticky directory everybody can change what is his own, and nothing else.
	shared := st.IsDir() && st.Mode()&fs.ModeSticky != 0
	if st.Sys().(*syscall.Stat_t).Uid == uid || !shared && access(path, unix.W_OK) == nil {
		return fmt.Errorf("uid %d, which commands run as, can change %s; mend it with: chown root %s && chmod go-w %s", uid, path, path, path)
	}
	return nil
}

// access asks the kernel with the calling thread's file credentials.
func access(path string, mode uint32) error {
	return unix.Faccessat2(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}
