package runner

import (
	"syscall"
	"unsafe"
)

// Structures of the kernel, of which only zeros are ever given.
type (
	sigaction [4]uint64 // handler SIG_DFL, no flags, no restorer, no mask
	capSets   [6]uint32 // effective, permitted and inheritable, twice
)

// capHeader is a version and a pid, 0 for the caller.
type capHeader [2]uint32

// prepareSweeper fills the list of the sweeper: enter the domain, and see that it
// holds before anything is cloned into it.
func prepareSweeper(ruleset int) {
	l := &child.sweeper
	l.n = 0
	l.add(StageNoNewPrivs, syscall.SYS_PRCTL, prSetNoNewPrivs, 1)
	l.add(StageLandlock, sysLandlockRestrictSelf, uintptr(ruleset), 0)
	l.add(StageSweeper, syscall.SYS_KILL, child.runner, 0).want = syscall.EPERM
}

// prepareEarly fills the list of what all commands of this runner have in common, which is done before there is one. The order
// matters where it is commented.
func prepareEarly(s *Setup) {
	l := &child.early
	l.n = 0
	l.add(StageSession, syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL))
	l.add(StageSession, syscall.SYS_SETSID)
	l.add(StageSession, syscall.SYS_UMASK, 0o022)
	if s.Nice != 0 {
		l.add(StagePriority, syscall.SYS_SETPRIORITY, syscall.PRIO_PROCESS, 0, uintptr(s.Nice)).tolerate = true
	}
	if s.Slack != 0 {
		l.add(StagePriority, syscall.SYS_PRCTL, prSetTimerslack, uintptr(s.Slack)).tolerate = true
	}
	if s.DropCaps {
		prepareBounding(l)
	}
	if s.SetUser {
		prepareUser(l, s)
		// A change of ids has taken it back.
		l.add(StageSession, syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL))
	}
	if s.DropCaps {
		prepareCapabilities(l)
	}
	if s.NoNewPriv {
		l.add(StageNoNewPrivs, syscall.SYS_PRCTL, prSetNoNewPrivs, 1)
	}
	// Every disposition is reset; in between nothing can run a handler of the runtime in the child, since all signals stay
	// blocked. SIGKILL and SIGSTOP refuse.
	def := pin(&sigaction{})
	for sig := uintptr(1); sig <= 64; sig++ {
		l.add(StageSignals, syscall.SYS_RT_SIGACTION, sig, def, 0, 8).tolerate = true
	}
	// Last, since it also holds for the calls that follow.
	if s.Filter != "" {
		prog := pin(&sockFprog{uint16(len(s.Filter) / 8), unsafe.StringData(s.Filter)})
		l.add(StageFilter, sysSeccomp, seccompSetModeFilter, 0, prog)
	}
}

// prepareBounding drops the bounding set, which needs CAP_SETPCAP. Where it is lacking the set stays, and no_new_privs keeps
// it from being drawn on.
func prepareBounding(l *list) {
	for c := range uintptr(64) {
		l.add(StageCapabilities, syscall.SYS_PRCTL, prCapbsetDrop, c).tolerate = true
	}
}

// prepareUser makes the command another user, who is never root, and sees that there is no way back: there are containers that
// say yes to these calls and do nothing.
func prepareUser(l *list, s *Setup) {
	uid, gid := uintptr(s.UID), uintptr(s.GID)
	l.add(StageUser, syscall.SYS_SETGROUPS, 0, 0)
	l.add(StageUser, syscall.SYS_SETRESGID, gid, gid, gid)
	l.add(StageUser, syscall.SYS_SETRESUID, uid, uid, uid)
	l.add(StageUser, syscall.SYS_SETRESUID, 0, 0, 0).want = syscall.EPERM
	l.add(StageUser, syscall.SYS_SETRESGID, 0, 0, 0).want = syscall.EPERM
}

// prepareCapabilities leaves the command none of the capabilities that are held.
func prepareCapabilities(l *list) {
	// Kernels before 4.3 have no ambient set.
	l.add(StageCapabilities, syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClear).tolerate = true
	l.add(StageCapabilities, syscall.SYS_CAPSET, pin(&capHeader{capVersion3}), pin(&capSets{}))
}

// sockFprog is the kernel's struct sock_fprog.
type sockFprog struct {
	length uint16
	filter *byte
}

// prepareLate fills the list of what is left to do for one command, execve last, and returns the descriptors that the list
// names, in the order in which they get their numbers. The order of the calls matters where it is commented.
func prepareLate(r *region, j *Job, f fds) (send []int, err error) {
	l := r.late()
	l.n = 0
	number := func(fd int) uintptr {
		send = append(send, fd)
		return uintptr(childFirst + len(send) - 1)
	}
	for target, fd := range []int{f.stdin, f.stdout, f.stderr} {
		l.add(StageStdio, syscall.SYS_DUP3, number(fd), uintptr(target), 0)
	}
	for _, lim := range j.Limits {
		l.add(StageLimits, syscall.SYS_PRLIMIT64, 0, uintptr(lim.Resource), r.words(lim.Soft, lim.Hard), 0)
	}
	// By its path: a descriptor that another has opened would lend the command that one's permissions on the way, and would lie in that
	// one's file tree. The links of /proc lead to nothing but what this process has.
	workdir := r.str(j.Workdir)
	l.add(StageWorkdir, syscall.SYS_CHDIR, workdir)
	for _, rs := range f.rulesets {
		l.add(StageLandlock, sysLandlockRestrictSelf, number(rs), 0)
	}
	// All descriptors are CLOEXEC already; one that is not, by whatever mistake, would bypass the rules above. Kernels before
	// 5.11 lack the flag; none of them can confine.
	l.add(StageDescriptors, sysCloseRange, 3, ^uintptr(0)>>32, closeRangeCloexec).tolerate = len(f.rulesets) == 0
	if j.HasScript {
		l.add(StageDescriptors, syscall.SYS_DUP3, number(f.script), ScriptFD, 0)
	}
	l.add(StageSignals, syscall.SYS_RT_SIGPROCMASK, sigSetmask, r.words(0), 0, 8)
	path, argv, env := r.str(j.Shell), r.strs(j.Argv), r.strs(j.Env)
	if path == 0 || argv == 0 || env == 0 || workdir == 0 {
		return nil, &StartError{StageExec, syscall.E2BIG}
	}
	l.add(StageExec, syscall.SYS_EXECVE, path, argv, env)
	return send, nil
}
