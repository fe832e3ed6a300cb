package sandbox

import (
	"errors"
	"fmt"
	"os"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Rights, grouped by what a mode decides about.
const (
	readRights  = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir
	fileRights  = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	writeRights = ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeChar | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock |
		ll.AccessFSMakeFifo | ll.AccessFSMakeBlock | ll.AccessFSMakeSym |
		ll.AccessFSRefer | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	// What a writable root grants: device nodes stay out, since root could make
	// the node of a disk in its workspace and write that.
	rootRights = writeRights &^ (ll.AccessFSMakeChar | ll.AccessFSMakeBlock | ll.AccessFSIoctlDev)
)

// handledBy leaves of rights what a Landlock of that ABI knows.
func handledBy(abi int, rights uint64) uint64 {
	if abi < 2 {
		rights &^= ll.AccessFSRefer
	}
	if abi < 3 {
		rights &^= ll.AccessFSTruncate
	}
	if abi < 5 {
		rights &^= ll.AccessFSIoctlDev
	}
	return rights
}

// scopesBy is what of signals and abstract sockets can be kept inside the domain.
func scopesBy(abi int) uint64 {
	if abi < 6 {
		return 0
	}
	return ll.ScopeSignal | ll.ScopeAbstractUnixSocket
}

// landlockABI asks the kernel; 0 with a reason where Landlock cannot be used.
func landlockABI() (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, errors.New("this kernel has no Landlock (landlock_create_ruleset: ENOSYS)")
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, errors.New("this kernel has Landlock, but it was not enabled at boot (landlock_create_ruleset: EOPNOTSUPP)")
	case err != nil:
		return 0, fmt.Errorf("landlock_create_ruleset: %w", err)
	}
	return abi, nil
}

// ruleset is a Landlock ruleset under construction, of which nothing is in force
// until a child enters it.
type ruleset struct {
	fd      int
	handled uint64
}

func newRuleset(fs, scoped uint64) (*ruleset, error) {
	fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: fs, Scoped: scoped}, 0)
	if err != nil {
		return nil, os.NewSyscallError("landlock_create_ruleset", err)
	}
	unix.CloseOnExec(fd)
	return &ruleset{fd, fs}, nil
}

func (r *ruleset) close() {
	if r != nil {
		unix.Close(r.fd)
	}
}

// duplicate returns a descriptor of the ruleset that outlives it, to be closed by the caller.
func (r *ruleset) duplicate() (int, error) {
	fd, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	return fd, os.NewSyscallError("fcntl", err)
}

// allow grants rights at and below the file that fd names; isDir keeps rights
// that only directories have away from other files, for which the kernel would refuse the rule.
func (r *ruleset) allow(fd int, isDir bool, rights uint64) error {
	rights &= r.handled
	if !isDir {
		rights &= fileRights
	}
	if rights == 0 {
		return nil
	}
	attr := ll.PathBeneathAttr{AllowedAccess: rights, ParentFd: fd}
	return os.NewSyscallError("landlock_add_rule", ll.LandlockAddPathBeneathRule(r.fd, &attr, 0))
}

// allowPath is allow for a path, whose last component is not followed if it is a
// symbolic link. A path that is not there, or is a link, is skipped: there is nothing
// to allow.
func (r *ruleset) allowPath(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		return r.allow(fd, true, rights)
	}
	return r.allow(fd, false, rights)
}

// openPinned opens a directory by its canonical path without following any
// link on the way: what was resolved before is what is opened, or it fails.
func openPinned(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	return fd, nil
}
