package sandbox

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/prober"
)

// TestClosedBy is the table of words: each errno that the probe has met, in each tier.
func TestClosedBy(t *testing.T) {
	for _, c := range []struct {
		class   prober.Class
		did     bool
		errno   unix.Errno
		skipped string
		inA     string
		inB     string
		inC     string
	}{
		{class: prober.ClassWorks, did: true, inA: "works"},
		{class: prober.ClassWorks, errno: unix.EACCES, inA: "DOES NOT WORK (EACCES)"},
		{class: prober.ClassWorks, inA: "DOES NOT WORK"},
		{class: prober.ClassWorks, skipped: "the workspace is read-only in this mode", inA: "not tried: the workspace is read-only in this mode"},
		{class: prober.ClassWrite, did: true, inA: "HAPPENED"},
		{class: prober.ClassWrite, inA: "did not happen"},
		{class: prober.ClassSignals, skipped: "not visible", inA: "not visible here"},
		{class: prober.ClassWrite, errno: unix.EROFS, inA: "refused (EROFS: read-only mount)"},
		{class: prober.ClassWrite, errno: unix.EACCES, inA: "refused (EACCES: Landlock)"},
		{class: prober.ClassWrite, errno: unix.EXDEV, inA: "refused (EXDEV: another mount, or Landlock)", inC: "refused (EXDEV: Landlock)"},
		{class: prober.ClassHidden, errno: unix.ENOENT, inA: "refused (ENOENT: masked)", inC: "refused (ENOENT: nothing there)"},
		{class: prober.ClassHidden, errno: unix.EACCES, inA: "refused (EACCES: masked, or Landlock)", inC: "refused (EACCES: Landlock)"},
		{class: prober.ClassHidden, errno: unix.EPERM, inA: "refused (EPERM: system call filter, or permissions)"},
		{class: prober.ClassDevices, errno: unix.ENOENT, inA: "refused (ENOENT: not in its /dev)", inC: "refused (ENOENT: nothing there)"},
		{class: prober.ClassMetadata, errno: unix.EPERM, inA: "refused (EPERM: system call filter, or permissions)"},
		{class: prober.ClassMetadata, errno: unix.ENOSYS, inA: "refused (ENOSYS: system call filter, or unknown to the kernel)"},
		{class: prober.ClassSignals, errno: unix.EPERM, inA: "refused (EPERM: Landlock scope, or permissions)"},
		{class: prober.ClassSignals, errno: unix.ESRCH, inA: "refused (ESRCH: pid namespace)", inC: "refused (ESRCH: no such process for it)"},
		{class: prober.ClassSecrets, errno: unix.ENOENT, inA: "refused (ENOENT: pid namespace)", inC: "refused (ENOENT: nothing there)"},
		{
			class: prober.ClassSecrets, errno: unix.EACCES, inA: "refused (EACCES: another Landlock domain)",
			inB: "refused (EACCES: another user, or another Landlock domain)",
		},
		{class: prober.ClassSecrets, errno: unix.EPERM, inA: "refused (EPERM: another Landlock domain, or system call filter)"},
		{class: prober.ClassPrivilege, errno: unix.EPERM, inA: "refused (EPERM: system call filter, or no capability)"},
		{class: prober.ClassPrivilege, errno: unix.EACCES, inA: "refused (EACCES: permissions, or Landlock)"},
		{class: prober.ClassPrivilege, errno: unix.ENOENT, inA: "refused (ENOENT: nothing there)"},
		{class: prober.ClassScheduling, errno: unix.EPERM, inA: "refused (EPERM: system call filter, or no capability)"},
		{class: prober.ClassInherited, errno: unix.EBADF, inA: "refused (EBADF: closed before it began)"},
		{class: prober.ClassPrivilege, errno: unix.EBADF, inA: "refused (EBADF: bad file descriptor)"},
		{class: prober.ClassProcessLimit, errno: unix.EAGAIN, inA: "refused (EAGAIN: limit of its user)"},
		{class: prober.ClassTruncate, errno: unix.EINVAL, inA: "refused (EINVAL: invalid argument)"},
		{class: prober.ClassWrite, errno: 4000, inA: "refused (errno 4000: errno 4000)"},
	} {
		r := prober.Result{Effect: prober.Effect{Class: c.class}, Did: c.did, Errno: c.errno, Skipped: c.skipped}
		if c.inC == "" {
			c.inC = c.inA
		}
		if c.inB == "" {
			c.inB = c.inC
		}
		for _, in := range []struct {
			tier  string
			runAs *Credential
			want  string
		}{{TierNamespaces, nil, c.inA}, {TierUser, &Credential{UID: 1, GID: 1}, c.inB}, {TierLandlock, nil, c.inC}} {
			s := &Sandbox{tier: in.tier, cfg: Config{RunAs: in.runAs}}
			if got := s.ClosedBy(ReadOnly, r); got != in.want {
				t.Errorf("tier %s, %s, %v: %q; want %q", in.tier, c.class, c.errno, got, in.want)
			}
		}
	}
}

// TestClosedByAnotherLimit: that the limit of the user does not hold is no finding where processes are limited in another way.
func TestClosedByAnotherLimit(t *testing.T) {
	r := prober.Result{Effect: prober.Effect{Class: prober.ClassProcessLimit}, Did: true}
	inA, want := &Sandbox{tier: TierNamespaces}, "HAPPENED" // in a user namespace it has to hold
	if os.Geteuid() == 0 {
		want = "limited otherwise (pid-namespace)"
	}
	if got := inA.ClosedBy(ReadOnly, r); got != want {
		t.Errorf("%q; want %q", got, want)
	}
	if got := (&Sandbox{tier: TierLandlock}).ClosedBy(ReadOnly, r); got != "HAPPENED" {
		t.Errorf("without namespaces: %q", got)
	}
}

// TestClosedByKnowsEveryClass: an errno of permission has words of its own in every class, so that a new class is thought of.
func TestClosedByKnowsEveryClass(t *testing.T) {
	for _, e := range prober.Effects() {
		for _, errno := range []unix.Errno{unix.EACCES, unix.EPERM, unix.EROFS} {
			for _, namespaced := range []bool{false, true} {
				got := closedBy(namespaced, false, prober.Result{Effect: e, Errno: errno})
				if e.Class != prober.ClassWorks && got == "refused ("+unix.ErrnoName(errno)+": "+errno.Error()+")" {
					t.Errorf("%s: %q tells no mechanism", e.Name, got)
				}
			}
		}
	}
}
