package filter_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is a real call. It is made so that it does no harm where it goes through: most have arguments that the kernel
// would refuse with another error.
type attempt struct {
	name   string
	number uintptr
	args   []uintptr
}

const (
	bad  = ^uintptr(0)         // no descriptor, no address, no flags
	here = ^uintptr(0) - 99    // AT_FDCWD
	high = uintptr(0xff) << 32 // what no kernel looks at
)

// Refused with EPERM under both filters.
func refusedCalls(f files) []attempt {
	self := uintptr(os.Getpid())
	return slices.Concat([]attempt{
		{"mount", unix.SYS_MOUNT, []uintptr{bad, bad, bad, 0, 0}},
		{"umount2", unix.SYS_UMOUNT2, []uintptr{bad, bad}},
		{"pivot_root", unix.SYS_PIVOT_ROOT, []uintptr{bad, bad}},
		{"chroot", unix.SYS_CHROOT, []uintptr{bad}},
		{"open_tree", unix.SYS_OPEN_TREE, []uintptr{bad, bad, bad}},
		{"open_tree_attr", unix.SYS_OPEN_TREE_ATTR, []uintptr{bad, bad, bad, bad, 0}},
		{"move_mount", unix.SYS_MOVE_MOUNT, []uintptr{bad, bad, bad, bad, 0}},
		{"fsopen", unix.SYS_FSOPEN, []uintptr{bad, bad}},
		{"fsconfig", unix.SYS_FSCONFIG, []uintptr{bad, bad, 0, 0, 0}},
		{"fsmount", unix.SYS_FSMOUNT, []uintptr{bad, bad, 0}},
		{"fspick", unix.SYS_FSPICK, []uintptr{bad, bad, bad}},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, []uintptr{bad, bad, bad, 0, 0}},
		{"setns", unix.SYS_SETNS, []uintptr{bad, 0}},
		{"unshare", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWUSER | unix.CLONE_SIGHAND<<20}},
		{"clone", unix.SYS_CLONE, []uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_FS}},
		{"bpf", unix.SYS_BPF, []uintptr{bad, 0, 0}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, []uintptr{bad, bad, bad, bad, bad}},
		{"userfaultfd", unix.SYS_USERFAULTFD, []uintptr{bad}},
		{"keyctl", unix.SYS_KEYCTL, []uintptr{bad}},
		{"add_key", unix.SYS_ADD_KEY, []uintptr{bad, bad, 0, 0, bad}},
		{"request_key", unix.SYS_REQUEST_KEY, []uintptr{bad, bad, 0, 0}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, []uintptr{0, bad, 0, bad}},
		{"init_module", unix.SYS_INIT_MODULE, []uintptr{0, 0, 0}},
		{"finit_module", unix.SYS_FINIT_MODULE, []uintptr{bad, 0, bad}},
		{"delete_module", unix.SYS_DELETE_MODULE, []uintptr{bad, 0}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, []uintptr{bad, bad, 0}},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, []uintptr{bad, 0}},
		{"fanotify_mark", unix.SYS_FANOTIFY_MARK, []uintptr{bad, bad, 0, 0, 0}},
		{"quotactl", unix.SYS_QUOTACTL, []uintptr{bad, bad, 0, 0}},
		{"quotactl_fd", unix.SYS_QUOTACTL_FD, []uintptr{bad, bad, 0, 0}},
		{"swapon", unix.SYS_SWAPON, []uintptr{bad, bad}},
		{"swapoff", unix.SYS_SWAPOFF, []uintptr{bad}},
		{"reboot", unix.SYS_REBOOT, []uintptr{0, 0, 0, 0}},
		{"syslog", unix.SYS_SYSLOG, []uintptr{10, 0, 0}},
		{"acct", unix.SYS_ACCT, []uintptr{bad}},
		{"settimeofday", unix.SYS_SETTIMEOFDAY, []uintptr{bad, 0}},
		{"clock_settime", unix.SYS_CLOCK_SETTIME, []uintptr{0, bad}},
		{"sethostname", unix.SYS_SETHOSTNAME, []uintptr{0, bad}},
		{"setdomainname", unix.SYS_SETDOMAINNAME, []uintptr{0, bad}},
		{"process_madvise", unix.SYS_PROCESS_MADVISE, []uintptr{bad, 0, 0, 0, 0}},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, []uintptr{self, 0, 0, 0, 0, bad}},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, []uintptr{self, 0, 0, 0, 0, bad}},
		{"process_mrelease", unix.SYS_PROCESS_MRELEASE, []uintptr{bad, 0}},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, []uintptr{bad, 0, 0}},
		{"file_setattr", unix.SYS_FILE_SETATTR, []uintptr{bad, bad, bad, 0, 0}},

		{"fchmod set-ID", unix.SYS_FCHMOD, []uintptr{f.fd, 0o4755}},
		{"fchmodat set-ID", unix.SYS_FCHMODAT, []uintptr{here, f.path, 0o2755 | high}},
		{"fchmodat2 set-ID", unix.SYS_FCHMODAT2, []uintptr{here, f.path, 0o6755, 0}},
		{"openat set-ID", unix.SYS_OPENAT, []uintptr{here, f.fresh, unix.O_CREAT, 0o4700}},
		{"openat tmpfile set-ID", unix.SYS_OPENAT, []uintptr{here, f.dir, unix.O_TMPFILE | unix.O_RDWR, 0o4700}},
		{"mknodat set-ID", unix.SYS_MKNODAT, []uintptr{here, f.fresh, unix.S_IFREG | 0o4700, 0}},
		{"mknodat character", unix.SYS_MKNODAT, []uintptr{here, f.fresh, unix.S_IFCHR | 0o600, 0}},
		{"mknodat block", unix.SYS_MKNODAT, []uintptr{bad, f.fresh, unix.S_IFBLK | 0o600, 7 << 8}},
		{"renameat2 whiteout", unix.SYS_RENAMEAT2, []uintptr{here, bad, here, bad, unix.RENAME_WHITEOUT}},

		{"prlimit64", unix.SYS_PRLIMIT64, []uintptr{self, bad, bad, 0}},
		{"setpriority", unix.SYS_SETPRIORITY, []uintptr{unix.PRIO_PROCESS, self, 0}},
		{"setpriority group", unix.SYS_SETPRIORITY, []uintptr{unix.PRIO_PGRP, bad, 0}},
		{"setpriority user", unix.SYS_SETPRIORITY, []uintptr{unix.PRIO_USER, bad, 0}},
		{"ioprio_set", unix.SYS_IOPRIO_SET, []uintptr{1, self, 0}},
		{"ioprio_set user", unix.SYS_IOPRIO_SET, []uintptr{3, bad, 0}},
		{"sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, []uintptr{self, 8, bad}},
		{"sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER, []uintptr{self, bad, bad}},
		{"sched_setparam", unix.SYS_SCHED_SETPARAM, []uintptr{self, bad}},
		{"sched_setattr", unix.SYS_SCHED_SETATTR, []uintptr{self, bad, 0}},
		{"migrate_pages", unix.SYS_MIGRATE_PAGES, []uintptr{self, bad, bad, bad}},
		{"move_pages", unix.SYS_MOVE_PAGES, []uintptr{self, 0, 0, 0, 0, bad}},

		{"fcntl lease", unix.SYS_FCNTL, []uintptr{f.fd, unix.F_SETLEASE, unix.F_RDLCK}},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, []uintptr{f.fd, unix.TIOCSTI | high, bad}},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, []uintptr{f.fd, unix.TIOCLINUX, bad}},
		{"ioctl SETFLAGS", unix.SYS_IOCTL, []uintptr{f.fd, unix.FS_IOC_SETFLAGS | high, bad}},
		{"ioctl FSSETXATTR", unix.SYS_IOCTL, []uintptr{f.fd, 0x401c5820, bad}},
		{"ioctl SUBVOL_CREATE", unix.SYS_IOCTL, []uintptr{f.fd, 0x5000940e, bad}},
	}, legacyRefused(f))
}

// Refused with EPERM under the filter for read-only without mounts, and else not.
func metadataCalls(f files) []attempt {
	return slices.Concat([]attempt{
		{"fchmod", unix.SYS_FCHMOD, []uintptr{f.fd, 0o600}},
		{"fchmodat", unix.SYS_FCHMODAT, []uintptr{here, f.path, 0o600}},
		{"fchmodat2", unix.SYS_FCHMODAT2, []uintptr{here, f.path, 0o600, 0}},
		{"fchown", unix.SYS_FCHOWN, []uintptr{f.fd, bad, bad}},
		{"fchownat", unix.SYS_FCHOWNAT, []uintptr{here, f.path, bad, bad, 0}},
		{"utimensat", unix.SYS_UTIMENSAT, []uintptr{here, f.path, 0, 0}},
		{"setxattr", unix.SYS_SETXATTR, []uintptr{bad, bad, 0, 0, 0}},
		{"lsetxattr", unix.SYS_LSETXATTR, []uintptr{bad, bad, 0, 0, 0}},
		{"fsetxattr", unix.SYS_FSETXATTR, []uintptr{bad, bad, 0, 0, 0}},
		{"setxattrat", unix.SYS_SETXATTRAT, []uintptr{bad, bad, 0, bad, bad, bad}},
		{"removexattr", unix.SYS_REMOVEXATTR, []uintptr{bad, bad}},
		{"lremovexattr", unix.SYS_LREMOVEXATTR, []uintptr{bad, bad}},
		{"fremovexattr", unix.SYS_FREMOVEXATTR, []uintptr{bad, bad}},
		{"removexattrat", unix.SYS_REMOVEXATTRAT, []uintptr{bad, bad, 0, bad}},
		{"mq_open", unix.SYS_MQ_OPEN, []uintptr{bad, unix.O_CREAT | unix.O_RDWR, 0o600, 0}},
		{"mq_unlink", unix.SYS_MQ_UNLINK, []uintptr{bad}},
	}, legacyMetadata(f))
}

// Unknown under both filters.
func unknownCalls() []attempt {
	return slices.Concat([]attempt{
		{"clone3", unix.SYS_CLONE3, []uintptr{bad, 0}},
		{"openat2", unix.SYS_OPENAT2, []uintptr{bad, bad, bad, 0}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, []uintptr{0, bad}},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, []uintptr{bad, 0, 0, bad, 0, 0}},
		{"io_uring_register", unix.SYS_IO_URING_REGISTER, []uintptr{bad, bad, 0, 0}},
	}, legacyUnknown())
}

// Allowed under both filters, and without error.
func allowedCalls(f files) []attempt {
	return []attempt{
		{"getpid", unix.SYS_GETPID, nil},
		{"openat", unix.SYS_OPENAT, []uintptr{here, f.made, unix.O_CREAT | unix.O_WRONLY, 0o600}},
		{"openat with garbage for a mode", unix.SYS_OPENAT, []uintptr{here, f.path, unix.O_RDONLY, 0o7777}},
		{"fcntl", unix.SYS_FCNTL, []uintptr{f.fd, unix.F_GETFL}},
		{"ioctl FIGETBSZ", unix.SYS_IOCTL, []uintptr{f.fd, 2, f.room}},
		{"unshare files", unix.SYS_UNSHARE, []uintptr{unix.CLONE_FS}},
		{"prlimit64 of itself", unix.SYS_PRLIMIT64, []uintptr{0, unix.RLIMIT_NOFILE, 0, f.room}},
		{"prlimit64 asks", unix.SYS_PRLIMIT64, []uintptr{uintptr(os.Getpid()), unix.RLIMIT_NOFILE, 0, f.room}},
		{"setpriority of itself", unix.SYS_SETPRIORITY, []uintptr{0, 0, 19}},
		{"ioprio_set of itself", unix.SYS_IOPRIO_SET, []uintptr{1 | high, high, 3 << 13}},
		{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY, []uintptr{uintptr(os.Getpid()), 128, f.room}},
	}
}

// files are what the calls are made on.
type files struct {
	fd                     uintptr // of path, open for reading
	path, fresh, made, dir uintptr
	room                   uintptr
	keep                   [][]byte // what those addresses are of
}

func makeFiles() (f files, err error) {
	const mode = 0o600
	if err := os.WriteFile("file", []byte("content"), mode); err != nil {
		return f, err
	}
	fd, err := unix.Open("file", unix.O_RDONLY, 0)
	if err != nil {
		return f, err
	}
	pin := func(b []byte) uintptr {
		f.keep = append(f.keep, b)
		return uintptr(unsafe.Pointer(unsafe.SliceData(b))) // the heap does not move
	}
	f.fd, f.path, f.fresh = uintptr(fd), pin([]byte("file\x00")), pin([]byte("fresh\x00"))
	f.made, f.dir, f.room = pin([]byte("made\x00")), pin([]byte(".\x00")), pin(make([]byte, 4096))
	return f, nil
}

// makeCalls is the child: it prints a line for each.
func makeCalls() error {
	f, err := makeFiles()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, a := range slices.Concat(refusedCalls(f), metadataCalls(f), unknownCalls(), allowedCalls(f)) {
		var args [6]uintptr
		copy(args[:], a.args)
		_, _, errno := unix.RawSyscall6(a.number, args[0], args[1], args[2], args[3], args[4], args[5])
		fmt.Fprintf(&b, "%s=%d\n", a.name, errno)
		os.Remove("fresh")
	}
	_, err = os.Stdout.WriteString(b.String())
	return err
}

// made runs the child and returns the errors of its calls.
func made(t *testing.T, which string) map[string]unix.Errno {
	t.Helper()
	out, err := output(t, command(t, t.TempDir(), roleCalls, which))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	errs := map[string]unix.Errno{}
	for line := range strings.Lines(out) {
		name, errno, _ := strings.Cut(strings.TrimSpace(line), "=")
		n, err := strconv.Atoi(errno)
		if err != nil {
			t.Fatalf("line %q", line)
		}
		errs[name] = unix.Errno(n)
	}
	return errs
}

// TestRealCalls: the kernel answers as the rules say, and, to a root with every capability and without the filter, otherwise.
func TestRealCalls(t *testing.T) {
	free := made(t, without)
	for _, which := range []string{metadata, readOnly} {
		t.Run(which, func(t *testing.T) {
			got := made(t, which)
			expect := func(calls []attempt, want unix.Errno) {
				t.Helper()
				for _, c := range calls {
					if got[c.name] != want {
						t.Errorf("%s: %v, not %v", c.name, got[c.name], want)
					}
				}
			}
			differ := func(calls []attempt, want unix.Errno) {
				t.Helper()
				expect(calls, want)
				for _, c := range calls {
					switch {
					case free[c.name] == unix.ENOSYS:
						t.Logf("%s: not in this kernel", c.name)
					case free[c.name] == want && hasEverything():
						t.Errorf("%s: %v without a filter too: this proves nothing", c.name, want)
					}
				}
			}
			differ(refusedCalls(files{}), unix.EPERM)
			differ(unknownCalls(), unix.ENOSYS)
			expect(allowedCalls(files{}), 0)
			if which == readOnly {
				differ(metadataCalls(files{}), unix.EPERM)
				return
			}
			for _, c := range metadataCalls(files{}) {
				if got[c.name] != free[c.name] {
					t.Errorf("%s: %v, and %v without a filter", c.name, got[c.name], free[c.name])
				}
			}
		})
	}
}

// hasEverything asks whether this process has every capability that counts here.
func hasEverything() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "CapEff:")
	word, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	caps, err := strconv.ParseUint(word, 16, 64)
	const all = 1<<(unix.CAP_AUDIT_READ+1) - 1
	return err == nil && caps&all == all
}
