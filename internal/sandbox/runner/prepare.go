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
func prepareSweeper(f fds) {
	l := &child.sweeper
	l.add(StageSweeper, syscall.SYS_PRCTL, prSetNoNewPrivs, 1)
	l.add(StageSweeper, sysLandlockRestrictSelf, uintptr(f.sweeper), 0)
	l.add(StageSweeper, syscall.SYS_KILL, child.runner, 0).want = syscall.EPERM
}

// prepareCommand fills the list of the command's process. The order matters
// where it is commented.
func prepareCommand(j *Job, f fds, ordersWrite int) error {
	l := &child.command
	if ordersWrite >= 0 {
		// Else the sweeper would not see the end of its orders while a step below hangs.
		l.add(StageDescriptors, syscall.SYS_CLOSE, uintptr(ordersWrite))
	}
	l.add(StageSession, syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL))
	l.add(StageSession, syscall.SYS_SETSID)
	for target, fd := range []int{f.stdin, f.stdout, f.stderr} {
		l.add(StageStdio, syscall.SYS_DUP3, uintptr(fd), uintptr(target), 0)
	}
	l.add(StageSession, syscall.SYS_UMASK, 0o022)
	if j.Nice != 0 {
		l.add(StagePriority, syscall.SYS_SETPRIORITY, syscall.PRIO_PROCESS, 0, uintptr(j.Nice)).tolerate = true
	}
	for _, lim := range j.Limits {
		l.add(StageLimits, syscall.SYS_PRLIMIT64, 0, uintptr(lim.Resource), pin(l, &syscall.Rlimit{Cur: lim.Soft, Max: lim.Hard}), 0)
	}
	if j.DropCaps {
		prepareBounding(l)
	}
	if j.SetUser {
		prepareUser(l, j)
	}
	if j.DropCaps {
		prepareCapabilities(l)
	}
	if j.SetUser { // a change of ids has taken it back
		l.add(StageSession, syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL))
	}
	// After the capabilities: a directory that only they could enter is not for the command.
	l.add(StageWorkdir, syscall.SYS_FCHDIR, uintptr(f.workdir))
	if j.NoNewPriv {
		l.add(StageNoNewPrivs, syscall.SYS_PRCTL, prSetNoNewPrivs, 1)
	}
	for _, rs := range f.rulesets {
		l.add(StageLandlock, sysLandlockRestrictSelf, uintptr(rs), 0)
	}
	// All descriptors of the runner are CLOEXEC already; one that is not, by
	// whatever mistake, would bypass the rules above. Kernels before 5.11 lack
	// the flag; none of them can confine.
	l.add(StageDescriptors, sysCloseRange, 3, ^uintptr(0)>>32, closeRangeCloexec).tolerate = len(f.rulesets) == 0
	if j.HasScript {
		prepareScript(l, f.script)
	}
	prepareSignals(l)
	if j.Filter != "" {
		prepareFilter(l, j.Filter)
	}
	return prepareExec(l, j)
}

// prepareBounding drops the bounding set, which needs CAP_SETPCAP. Where it is lacking the set stays, and no_new_privs keeps
// it from being drawn on.
func prepareBounding(l *list) {
	for c := range uintptr(64) {
		l.add(StageCapabilities, syscall.SYS_PRCTL, prCapbsetDrop, c).tolerate = true
	}
}

// prepareUser makes the command another user, who is never root.
func prepareUser(l *list, j *Job) {
	uid, gid := uintptr(j.UID), uintptr(j.GID)
	l.add(StageUser, syscall.SYS_SETGROUPS, 0, 0)
	l.add(StageUser, syscall.SYS_SETRESGID, gid, gid, gid)
	l.add(StageUser, syscall.SYS_SETRESUID, uid, uid, uid)
}

// prepareCapabilities leaves the command none of the capabilities that are held.
func prepareCapabilities(l *list) {
	// Kernels before 4.3 have no ambient set.
	l.add(StageCapabilities, syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClear).tolerate = true
	hdr := pin(l, &capHeader{capVersion3})
	l.add(StageCapabilities, syscall.SYS_CAPSET, hdr, pin(l, &capSets{}))
}

// prepareScript leaves the script on ScriptFD across execve. It may already be
// there, where dup3 refuses; then its CLOEXEC flag goes.
func prepareScript(l *list, fd int) {
	if fd == ScriptFD {
		l.add(StageDescriptors, syscall.SYS_FCNTL, ScriptFD, syscall.F_SETFD, 0)
		return
	}
	l.add(StageDescriptors, syscall.SYS_DUP3, uintptr(fd), ScriptFD, 0)
}

// prepareSignals resets every disposition, then unblocks. In between nothing can
// run a handler of the runtime in the child. SIGKILL and SIGSTOP refuse.
func prepareSignals(l *list) {
	def := pin(l, &sigaction{})
	for s := uintptr(1); s <= 64; s++ {
		l.add(StageSignals, syscall.SYS_RT_SIGACTION, s, def, 0, 8).tolerate = true
	}
	l.add(StageSignals, syscall.SYS_RT_SIGPROCMASK, sigSetmask, pin(l, new(uint64)), 0, 8)
}

// sockFprog is the kernel's struct sock_fprog.
type sockFprog struct {
	length uint16
	filter *byte
}

// prepareFilter loads the filter last, since it also holds for the calls that follow.
func prepareFilter(l *list, filter string) {
	prog := pin(l, &sockFprog{uint16(len(filter) / 8), unsafe.StringData(filter)})
	l.add(StageFilter, sysSeccomp, seccompSetModeFilter, 0, prog)
}

func prepareExec(l *list, j *Job) error {
	path, err := syscall.BytePtrFromString(j.Shell)
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(j.Argv)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(j.Env)
	if err != nil {
		return err
	}
	l.keep = append(l.keep, path, argv, env)
	l.add(StageExec, syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	return nil
}
