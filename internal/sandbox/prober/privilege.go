package prober

import (
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errNotVisible is for calls about a process that the prober cannot name; no call of the prober's returns it.
const errNotVisible = unix.ENOTNAM

// inheritedProbes come first: what the prober opens itself is its own.
func inheritedProbes() []probe {
	return []probe{
		{Effect: Effect{"inherited-write", ClassInherited, "writing through an inherited descriptor"}, needs: needFile, try: func(p *prober, at place) outcome {
			err := error(unix.EBADF)
			for _, fd := range p.inherited {
				flags, e := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
				var file, mine unix.Stat_t
				if e != nil || flags&unix.O_ACCMODE == unix.O_RDONLY || unix.Fstat(fd, &file) != nil || unix.Stat(at.file, &mine) != nil {
					continue
				}
				if file.Dev == mine.Dev && file.Ino == mine.Ino {
					err = writeByte(fd)
				}
			}
			return result(err)
		}},
		{Effect: Effect{"inherited-any", ClassInherited, "an inherited descriptor above 2"}, try: func(p *prober, _ place) outcome {
			if len(p.inherited) == 0 {
				return result(unix.EBADF)
			}
			return outcome{state: did}
		}},
	}
}

// heldProbes look at what the command holds without asking for it.
func heldProbes() []probe {
	held := func(name, text string, holds func() (bool, error)) probe {
		return probe{Effect: Effect{name, ClassPrivilege, text}, try: func(*prober, place) outcome {
			yes, err := holds()
			if err == nil && !yes {
				err = unix.EPERM
			}
			return result(err)
		}}
	}
	return []probe{
		held("capabilities-effective", "capabilities in effect", func() (bool, error) {
			effective, _, _, err := capabilities()
			return effective != 0, err
		}),
		held("capabilities-permitted", "capabilities to take up", func() (bool, error) {
			_, permitted, _, err := capabilities()
			return permitted != 0, err
		}),
		held("capabilities-inheritable", "capabilities to hand on", func() (bool, error) {
			_, _, inheritable, err := capabilities()
			return inheritable != 0, err
		}),
		held("capabilities-ambient", "ambient capabilities", func() (bool, error) {
			for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
				r, err := call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c)
				if err == nil && r == 1 {
					return true, nil
				}
			}
			return false, nil
		}),
		held("new-privileges", "privileges by executing a program (no_new_privs is not set)", func() (bool, error) {
			r, err := call(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS)
			return r != 1, err
		}),
	}
}

func capabilities() (effective, permitted, inheritable uint64, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err = unix.Capget(&header, &data[0])
	join := func(low, high uint32) uint64 { return uint64(low) | uint64(high)<<32 }
	effective = join(data[0].Effective, data[1].Effective)
	permitted = join(data[0].Permitted, data[1].Permitted)
	return effective, permitted, join(data[0].Inheritable, data[1].Inheritable), err
}

// systemProbes open for writing what steers the host. Nothing is written.
func systemProbes() (list []probe) {
	for _, f := range []struct{ name, path string }{
		{"core-pattern", "/proc/sys/kernel/core_pattern"},
		{"sysrq", "/proc/sysrq-trigger"},
		{"drop-caches", "/proc/sys/vm/drop_caches"},
		{"hostname-file", "/proc/sys/kernel/hostname"},
		{"overcommit", "/proc/sys/vm/overcommit_memory"},
		{"modprobe-path", "/proc/sys/kernel/modprobe"},
		{"binfmt", "/proc/sys/fs/binfmt_misc/register"},
		{"power-state", "/sys/power/state"},
		{"uevent-helper", "/sys/kernel/uevent_helper"},
		{"cpu-uevent", "/sys/devices/system/cpu/uevent"},
		{"cgroup-procs", "/sys/fs/cgroup/cgroup.procs"},
		{"cgroup-procs-hybrid", "/sys/fs/cgroup/unified/cgroup.procs"},
		{"cgroup-control", "/sys/fs/cgroup/cgroup.subtree_control"},
		{"loginuid", "/proc/self/loginuid"},
		{"shadow", "/etc/shadow"},
		{"kcore-write", "/proc/kcore"},
	} {
		effect := Effect{"system-" + f.name, ClassPrivilege, "opening " + f.path + " for writing"}
		list = append(list, probe{Effect: effect, try: func(*prober, place) outcome { return result(opens(f.path, unix.O_WRONLY)) }})
	}
	return append(
		list,
		probe{Effect: Effect{"system-kcore", ClassPrivilege, "opening /proc/kcore"}, try: func(*prober, place) outcome {
			return result(opens("/proc/kcore", unix.O_RDONLY))
		}},
		probe{Effect: Effect{"cgroup-mkdir", ClassPrivilege, "making a control group beside its own"}, try: makeCgroup},
	)
}

// makeCgroup tries in each hierarchy where the prober is.
func makeCgroup(p *prober, _ place) outcome {
	b, err := readSome("/proc/self/cgroup")
	if err != nil {
		return result(err)
	}
	err = unix.ENOENT
	for line := range strings.Lines(string(b)) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			path := mount + own + "/bashd-prober-" + p.nonce
			if err = unix.Mkdir(path, 0o700); err == nil {
				_ = unix.Rmdir(path)
				return outcome{state: did}
			}
		}
	}
	return result(err)
}

// onCall makes a probe of one system call, which is made in a child. allowed are the errors that come after the permission.
func onCall(name, text string, allowed []unix.Errno, make func(p *prober, at place) (rawCall, error)) probe {
	return probe{Effect: Effect{name, ClassPrivilege, text}, call: make, allowed: allowed}
}

// plain is for calls without a place.
func plain(name, text string, allowed []unix.Errno, trap uintptr, args func() []uintptr) probe {
	return onCall(name, text, allowed, func(*prober, place) (rawCall, error) { return raw(trap, args()...) })
}

func inClass(class Class, p probe) probe {
	p.Class = class
	return p
}

func numbers(args ...uintptr) func() []uintptr { return func() []uintptr { return args } }

// namespaceProbes leave the namespaces that the command is in.
func namespaceProbes() (list []probe) {
	for _, n := range []struct {
		name string
		flag uintptr
	}{
		{"mount", unix.CLONE_NEWNS},
		{"uts", unix.CLONE_NEWUTS},
		{"ipc", unix.CLONE_NEWIPC},
		{"net", unix.CLONE_NEWNET},
		{"pid", unix.CLONE_NEWPID},
		{"cgroup", unix.CLONE_NEWCGROUP},
		{"time", unix.CLONE_NEWTIME},
		{"user", unix.CLONE_NEWUSER},
	} {
		list = append(list, plain("unshare-"+n.name, "a new "+n.name+" namespace", nil, unix.SYS_UNSHARE, numbers(n.flag)))
	}
	list = append(
		list,
		plain("unshare-user-all", "a new user namespace and what it allows", nil, unix.SYS_UNSHARE, numbers(unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWPID)),
		probe{Effect: Effect{"clone-user", ClassPrivilege, "a process in a new user namespace"}, try: func(*prober, place) outcome {
			return result(clone(unix.CLONE_NEWUSER))
		}},
		probe{Effect: Effect{"clone-mount", ClassPrivilege, "a process in a new mount namespace"}, try: func(*prober, place) outcome {
			return result(clone(unix.CLONE_NEWNS))
		}},
		probe{Effect: Effect{"clone3-user", ClassPrivilege, "a process in a new user namespace by clone3"}, call: func(*prober, place) (rawCall, error) {
			// A child that exits at once, since there is nothing for it to do: both return here, and both leave.
			args := [8]uint64{unix.CLONE_NEWUSER, 0, 0, 0, uint64(unix.SIGCHLD)}
			return raw(unix.SYS_CLONE3, address(&args), unsafe.Sizeof(args))
		}},
	)
	for _, ns := range []string{"mnt", "uts", "net", "ipc"} {
		list = append(list, onCall("setns-"+ns, "entering its own "+ns+" namespace anew", nil, func(*prober, place) (rawCall, error) {
			fd, err := open("/proc/self/ns/"+ns, unix.O_RDONLY)
			if err != nil {
				return rawCall{}, err
			}
			return raw(unix.SYS_SETNS, uintptr(fd), 0) // the descriptor is the child's, too
		}))
	}
	return list
}

// mountProbes change the file tree. An error that comes after the permission counts as well.
func mountProbes() []probe {
	wsDir := func(at place) uintptr { return cstring(at.ws + ".dir") }
	mount := onCall("mount", "mounting a file system", nil, func(_ *prober, at place) (rawCall, error) {
		return raw(unix.SYS_MOUNT, cstring("none"), wsDir(at), cstring("tmpfs"), unix.MS_NOSUID|unix.MS_NODEV, cstring("size=4k"))
	})
	mount.needs, mount.after = needWsDir, func(_ *prober, at place) { _ = unix.Unmount(at.ws+".dir", unix.MNT_DETACH) }
	bind := onCall("mount-bind", "mounting a place of the tree on another", nil, func(_ *prober, at place) (rawCall, error) {
		return raw(unix.SYS_MOUNT, wsDir(at), wsDir(at), 0, unix.MS_BIND)
	})
	bind.needs, bind.after = mount.needs, mount.after
	unmount := onCall("umount", "unmounting", []unix.Errno{unix.EINVAL}, func(_ *prober, at place) (rawCall, error) { // it is no mount
		return raw(unix.SYS_UMOUNT2, wsDir(at), 0)
	})
	unmount.needs = needWsDir
	pivot := onCall("pivot-root", "another root by pivot_root", []unix.Errno{unix.EINVAL, unix.EBUSY}, func(_ *prober, at place) (rawCall, error) {
		return raw(unix.SYS_PIVOT_ROOT, wsDir(at), wsDir(at))
	})
	pivot.needs = needWsDir
	return []probe{
		mount, bind, unmount, pivot,
		onCall("chroot", "another root by chroot", nil, func(p *prober, _ place) (rawCall, error) {
			return raw(unix.SYS_CHROOT, cstring(p.dir+"/ws"))
		}),
		plain("mount-setattr", "changing the attributes of mounts", nil, unix.SYS_MOUNT_SETATTR, func() []uintptr {
			return []uintptr{cwd, cstring("/"), 0, address(&[4]uint64{}), 32} // of which none is to be changed
		}),
		plain("open-tree", "copying the tree of mounts", nil, unix.SYS_OPEN_TREE, func() []uintptr {
			return []uintptr{cwd, cstring("/"), unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC}
		}),
		plain("move-mount", "moving a mount", []unix.Errno{unix.EBADF, unix.EINVAL}, unix.SYS_MOVE_MOUNT, func() []uintptr {
			none := ^uintptr(0)
			return []uintptr{none, cstring(""), none, cstring(""), unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH}
		}),
		plain("fsopen", "making a file system", nil, unix.SYS_FSOPEN, func() []uintptr {
			return []uintptr{cstring("tmpfs"), unix.FSOPEN_CLOEXEC}
		}),
		plain("fspick", "configuring a file system", nil, unix.SYS_FSPICK, func() []uintptr {
			return []uintptr{cwd, cstring("/"), unix.FSPICK_CLOEXEC}
		}),
	}
}

// kernelProbes reach parts of the kernel that a command has no business with. Their arguments are such that nothing
// comes of it, but for descriptors, which the child's end closes.
func kernelProbes() []probe {
	inval := []unix.Errno{unix.EINVAL}
	return append(
		[]probe{
			plain("bpf-map", "bpf", nil, unix.SYS_BPF, func() []uintptr {
				const mapCreate, array = 0, 2
				return []uintptr{mapCreate, address(&[32]uint32{array, 4, 4, 1}), 72}
			}),
			plain("perf-event", "perf_event_open", nil, unix.SYS_PERF_EVENT_OPEN, func() []uintptr {
				attr := unix.PerfEventAttr{
					Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER1, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
					Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
				}
				return []uintptr{address(&attr), 0, ^uintptr(0), ^uintptr(0), unix.PERF_FLAG_FD_CLOEXEC}
			}),
			plain("io-uring", "io_uring_setup", nil, unix.SYS_IO_URING_SETUP, func() []uintptr {
				return []uintptr{1, address(&[30]uint32{})}
			}),
			plain("userfaultfd", "userfaultfd", nil, unix.SYS_USERFAULTFD, numbers(unix.O_CLOEXEC|1)), // UFFD_USER_MODE_ONLY
			plain("keyctl", "keyctl", nil, unix.SYS_KEYCTL, func() []uintptr {
				const getKeyringID, threadKeyring = 0, ^uintptr(0)
				return []uintptr{getKeyringID, threadKeyring, 1}
			}),
			plain("add-key", "add_key", nil, unix.SYS_ADD_KEY, func() []uintptr {
				return []uintptr{cstring("user"), cstring("bashd-prober"), cstring("x"), 1, ^uintptr(0)} // the thread's keyring, which ends with it
			}),
			plain("fanotify", "fanotify_init", nil, unix.SYS_FANOTIFY_INIT, numbers(unix.FAN_CLOEXEC|unix.FAN_REPORT_FID, unix.O_RDONLY)),
			plain("fanotify-content", "fanotify_init for content", nil, unix.SYS_FANOTIFY_INIT, numbers(unix.FAN_CLOEXEC|unix.FAN_CLASS_CONTENT, unix.O_RDONLY)),
			plain("kexec", "kexec_load", inval, unix.SYS_KEXEC_LOAD, numbers(0, 0, 0, 0x8000)), // a flag that does not exist
			plain("init-module", "init_module", []unix.Errno{unix.ENOEXEC, unix.EFAULT}, unix.SYS_INIT_MODULE, func() []uintptr {
				return []uintptr{0, 0, cstring("")}
			}),
			plain("finit-module", "finit_module", []unix.Errno{unix.EBADF}, unix.SYS_FINIT_MODULE, func() []uintptr {
				return []uintptr{^uintptr(0), cstring(""), 0}
			}),
			plain("delete-module", "delete_module", []unix.Errno{unix.ENOENT}, unix.SYS_DELETE_MODULE, func() []uintptr {
				return []uintptr{cstring("bashd_no_such_module"), unix.O_NONBLOCK}
			}),
			plain("swapon", "swapon", []unix.Errno{unix.ENOENT}, unix.SYS_SWAPON, func() []uintptr {
				return []uintptr{cstring("/bashd-no-such-file"), 0}
			}),
			plain("swapoff", "swapoff", []unix.Errno{unix.ENOENT}, unix.SYS_SWAPOFF, func() []uintptr {
				return []uintptr{cstring("/bashd-no-such-file")}
			}),
			plain("reboot", "reboot", inval, unix.SYS_REBOOT, numbers(0, 0, 0, 0)), // without the magic numbers
			plain("syslog", "reading the kernel's log", nil, unix.SYS_SYSLOG, numbers(10, 0, 0)),
			plain("acct", "acct", []unix.Errno{unix.ENOENT}, unix.SYS_ACCT, func() []uintptr {
				return []uintptr{cstring("/bashd-no-such-file")}
			}),
			plain("settimeofday", "setting the clock", nil, unix.SYS_SETTIMEOFDAY, numbers(0, 0)), // to nothing
			plain("sethostname", "setting the host's name", inval, unix.SYS_SETHOSTNAME, func() []uintptr {
				return []uintptr{cstring(""), 1 << 16}
			}),
			plain("setdomainname", "setting the domain's name", inval, unix.SYS_SETDOMAINNAME, func() []uintptr {
				return []uintptr{cstring(""), 1 << 16}
			}),
			plain("tty-input", "putting input into a terminal (TIOCSTI)", []unix.Errno{unix.ENOTTY}, unix.SYS_IOCTL, func() []uintptr {
				return []uintptr{1, unix.TIOCSTI, cstring("")} // standard output, a pipe: the word of the pipe
			}),
		}, nodeProbes()...,
	)
}

// nodeProbes make device nodes, which are not opened: those of /dev/null and of a loop device.
func nodeProbes() (list []probe) {
	for _, n := range []struct {
		name, text string
		kind       uint32
		major      uint32
	}{
		{"char", "character", unix.S_IFCHR, 1},
		{"block", "block", unix.S_IFBLK, 7},
	} {
		for _, w := range []struct {
			name, text string
			dir        func(at place) string
		}{
			{"outside", "outside", func(at place) string { return at.out }},
			{"ws", "in the workspace", func(at place) string { return at.ws }},
			{"temp", "in the temporary directory", func(at place) string { return at.temp }},
		} {
			effect := Effect{"mknod-" + n.name + "-" + w.name, ClassPrivilege, "making a " + n.text + " device " + w.text}
			list = append(list, probe{Effect: effect, try: func(_ *prober, at place) outcome {
				path := w.dir(at) + ".node"
				err := mknod(n.kind, int(unix.Mkdev(n.major, 3)))(path)
				if err == nil && w.name != "outside" { // there it is Judge's to see
					_ = unix.Unlink(path)
				}
				return result(err)
			}})
		}
	}
	return list
}

// identityProbes become somebody else.
func identityProbes() []probe {
	const nobodyElse = 12345
	return []probe{
		onCall("setuid", "becoming another user", nil, func(p *prober, _ place) (rawCall, error) {
			id := uintptr(0)
			if unix.Getuid() == 0 {
				id = nobodyElse
			}
			return raw(unix.SYS_SETRESUID, id, id, id)
		}),
		onCall("setgid", "becoming another group", nil, func(p *prober, _ place) (rawCall, error) {
			id := uintptr(0)
			if unix.Getgid() == 0 {
				id = nobodyElse
			}
			return raw(unix.SYS_SETRESGID, id, id, id)
		}),
		plain("setgroups", "leaving the user's groups", nil, unix.SYS_SETGROUPS, numbers(0, 0)),
		plain("raise-limit", "raising a limit of its own", nil, unix.SYS_PRLIMIT64, func() []uintptr {
			var l unix.Rlimit
			if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l) != nil {
				l.Max = 0
			}
			l.Max++
			return []uintptr{0, unix.RLIMIT_NOFILE, address(&l), 0}
		}),
		inClass(ClassScheduling, plain("raise-priority", "raising its own priority", nil, unix.SYS_SETPRIORITY, func() []uintptr {
			return []uintptr{unix.PRIO_PROCESS, 0, ^uintptr(0) - 19}
		})),
		inClass(ClassScheduling, plain("real-time", "scheduling in real time", nil, unix.SYS_SCHED_SETSCHEDULER, func() []uintptr {
			return []uintptr{0, 1, address(&[1]int32{1})}
		})),
	}
}

// lateProbes may disturb what comes after them.
func lateProbes() []probe {
	return []probe{
		{Effect: Effect{"process-limit", ClassProcessLimit, "more processes than the user's limit allows"}, try: func(*prober, place) outcome {
			return result(cloneLimited())
		}},
		{Effect: Effect{"hidden-directory-rename", ClassHidden, "renaming a hidden directory"}, try: func(p *prober, _ place) outcome {
			hidden, other := p.dir+"/hidden", p.dir+"/hidden-no-more"
			err := unix.Renameat2(unix.AT_FDCWD, hidden, unix.AT_FDCWD, other, unix.RENAME_NOREPLACE)
			if err == nil {
				_ = unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, hidden, unix.RENAME_NOREPLACE)
			}
			return result(err)
		}},
	}
}
