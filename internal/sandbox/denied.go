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
	var hidden func(string) bool
	if s.namespaced(p.mode) {
		errnos, hidden = append(errnos, unix.EROFS), p.covers
	}
	return denial.Classify(denial.Evidence{
		ExitCode: exitCode, Signaled: signaled, Stderr: stderr, Workdir: workdir,
		Errnos: errnos, Forbidden: p.Forbids, Hidden: hidden, Cred: s.credentials(),
	})
}

// AsCommand runs f with the permissions on files that a command of that mode has, its sandbox apart: what a caller is told of
// a file must not depend on this process being root. An error means that f did not run.
func (s *Sandbox) AsCommand(m Mode, f func()) error {
	if unix.Geteuid() != 0 || s.cfg.RunAs == nil && !m.Confined() {
		f()
		return nil
	}
	return denial.As(s.credentials(), f)
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
