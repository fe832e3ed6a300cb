package sandbox

import (
	"strings"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/prober"
)

// ClosedBy says in a few words what became of an effect of the probe under a mode, and what closed it: "works", "HAPPENED",
// "refused (EROFS: read-only mount)", "not visible here". The errno is the kernel's own; the mechanism is concluded from it, the
// class of the effect and the tier in use. Where two mechanisms refuse with the same errno, both are named.
func (s *Sandbox) ClosedBy(m Mode, r prober.Result) string {
	if by := s.processes(); r.Did && r.Effect.Class == prober.ClassProcessLimit && (by == ProcessesCgroup || by == ProcessesPidNS) {
		return "limited otherwise (" + by + ")" // the effect is about the limit of the user
	}
	return closedBy(s.namespaced(m), s.cfg.RunAs != nil, r)
}

// notVisible is how the prober says that there is no such process where it is.
const notVisible = "not visible"

func closedBy(namespaced, runAs bool, r prober.Result) string {
	works := r.Effect.Class == prober.ClassWorks
	switch {
	case r.Did && works:
		return "works"
	case r.Did:
		return "HAPPENED"
	case r.Skipped == notVisible:
		return "not visible here"
	case r.Skipped != "":
		return "not tried: " + r.Skipped
	case works && r.Errno == 0:
		return "DOES NOT WORK"
	case works:
		return "DOES NOT WORK (" + errnoName(r.Errno) + ")"
	case r.Errno == 0:
		return "did not happen"
	}
	why := mechanism(namespaced, runAs, r.Effect.Class, r.Errno)
	return "refused (" + errnoName(r.Errno) + ": " + why + ")"
}

// mechanism is what refuses an effect of that class with that errno.
func mechanism(namespaced, runAs bool, class prober.Class, errno unix.Errno) string {
	switch errno {
	case unix.EROFS:
		return "read-only mount"
	case unix.ENOSYS:
		return "system call filter, or unknown to the kernel"
	case unix.EXDEV:
		if namespaced {
			return "another mount, or Landlock"
		}
		return "Landlock"
	case unix.ESRCH:
		if namespaced {
			return "pid namespace"
		}
		return "no such process for it"
	case unix.ENOENT, unix.ENOTDIR, unix.ENODATA, unix.ENXIO:
		return absent(namespaced, class)
	case unix.EBADF:
		if class == prober.ClassInherited {
			return "closed before it began"
		}
	case unix.EAGAIN:
		if class == prober.ClassProcessLimit {
			return "limit of its user"
		}
	case unix.EACCES:
		return inaccessible(namespaced, runAs, class)
	case unix.EPERM:
		return notPermitted(class)
	}
	return errno.Error()
}

// absent is for what is not there.
func absent(namespaced bool, class prober.Class) string {
	if !namespaced {
		return "nothing there"
	}
	switch class {
	case prober.ClassHidden, prober.ClassHiddenNames, prober.ClassHiddenSockets,
		prober.ClassMetadata, prober.ClassTimestamps, prober.ClassTruncate, prober.ClassWrite:
		return "masked"
	case prober.ClassDevices, prober.ClassDeviceIoctl:
		return "not in its /dev"
	case prober.ClassSecrets, prober.ClassScheduling, prober.ClassSignals, prober.ClassCommandLines:
		return "pid namespace"
	}
	return "nothing there"
}

// inaccessible is for EACCES: Landlock's answer, that of file permissions, and of a mask.
func inaccessible(namespaced, runAs bool, class prober.Class) string {
	switch class {
	case prober.ClassHidden, prober.ClassHiddenNames, prober.ClassHiddenSockets:
		if namespaced {
			return "masked, or Landlock"
		}
		return "Landlock"
	case prober.ClassPrivilege, prober.ClassScheduling, prober.ClassProcessLimit:
		return "permissions, or Landlock"
	case prober.ClassSecrets, prober.ClassCommandLines:
		if runAs {
			return "another user, or another Landlock domain"
		}
		return "another Landlock domain"
	}
	return "Landlock"
}

// notPermitted is for EPERM: the answer of the filter, of Landlock's scopes, and of the kernel to whom lacks a capability.
func notPermitted(class prober.Class) string {
	switch class {
	case prober.ClassSignals, prober.ClassAbstractSockets:
		return "Landlock scope, or permissions"
	case prober.ClassSecrets:
		return "another Landlock domain, or system call filter"
	case prober.ClassWrite, prober.ClassTruncate, prober.ClassMetadata, prober.ClassTimestamps, prober.ClassHidden, prober.ClassDeviceIoctl:
		return "system call filter, or permissions"
	}
	return "system call filter, or no capability"
}

func errnoName(errno unix.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return strings.ToLower(errno.Error())
}
