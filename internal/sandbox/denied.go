package sandbox

import (
	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/denial"
)

// Denied tells whether a command's failure was the sandbox refusing a file
// operation; see package denial for what that rests on. stderr is the collected tail.
func (s *Sandbox) Denied(p Policy, workdir string, exitCode int, signaled bool, stderr []byte) (denial.Denial, bool) {
	if !p.mode.Confined() {
		return denial.Denial{}, false
	}
	errnos := []unix.Errno{unix.EACCES, unix.EPERM}
	if s.namespaced(p.mode) {
		errnos = append(errnos, unix.EROFS)
	}
	return denial.Classify(denial.Evidence{
		ExitCode: exitCode, Signaled: signaled, Stderr: stderr, Workdir: workdir,
		Errnos: errnos, Forbidden: p.Forbids, Cred: s.credentials(),
	})
}

// credentials are those that the kernel checks a command's file accesses against.
func (s *Sandbox) credentials() denial.Cred {
	if c := s.cfg.RunAs; c != nil {
		return denial.Cred{UID: c.UID, GID: c.GID}
	}
	groups, _ := unix.Getgroups()
	gids := make([]uint32, len(groups))
	for i, g := range groups {
		gids[i] = uint32(g)
	}
	return denial.Cred{UID: uint32(unix.Geteuid()), GID: uint32(unix.Getegid()), Groups: gids}
}
