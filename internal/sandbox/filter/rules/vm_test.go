package rules

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// garbage in the upper half of a register that the kernel does not look at.
const garbage = 0xdeadbeef << 32

// program is a filter in a machine of user space.
type program struct {
	arch string
	vm   *bpf.VM
}

func newProgram(t *testing.T, arch string, mayChangeMetadata bool) program {
	t.Helper()
	list, err := Assemble(arch, mayChangeMetadata)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bpf.Assemble(list)
	if err != nil {
		t.Fatal(err)
	}
	decoded, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("not every instruction can be decoded")
	}
	vm, err := bpf.NewVM(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return program{arch, vm}
}

// audit is the architecture as the kernel tells it.
func (p program) audit() uint32 {
	if p.arch == "arm64" {
		return unix.AUDIT_ARCH_AARCH64
	}
	return unix.AUDIT_ARCH_X86_64
}

// number of a call; false where the architecture lacks it.
func (p program) number(t *testing.T, name string) (uint32, bool) {
	t.Helper()
	n, ok := numbers[name]
	if !ok {
		t.Fatalf("no call %q", name)
	}
	number := n.amd64
	if p.arch == "arm64" {
		number = n.arm64
	}
	return uint32(number), number != none
}

func must(number uint32, _ bool) uint32 { return number }

// run returns what becomes of a call, 0 for allowed. The machine reads words in network order, so they are put so.
func (p program) run(t *testing.T, audit, number uint32, args ...uint64) unix.Errno {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[0:], number)
	binary.BigEndian.PutUint32(data[4:], audit)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
	}
	result, err := p.vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	switch action, errno := uint32(result)&unix.SECCOMP_RET_ACTION_FULL, unix.Errno(result&unix.SECCOMP_RET_DATA); {
	case action == unix.SECCOMP_RET_ALLOW && errno == 0:
		return 0
	case action == unix.SECCOMP_RET_ERRNO && errno != 0:
		return errno
	}
	t.Fatalf("call %d: neither allowed nor an error: %#x", number, result)
	return 0
}

// each runs f for both architectures and options.
func each(t *testing.T, f func(t *testing.T, p program, mayChangeMetadata bool)) {
	for _, arch := range Arches {
		for _, metadata := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s metadata=%t", arch, metadata), func(t *testing.T) {
				f(t, newProgram(t, arch, metadata), metadata)
			})
		}
	}
}

// someArguments make every judged call that is refused for one of them be refused.
var someArguments = [][]uint64{
	{0, 0, 0, 0, 0, 0},
	{1, 1, 1, 1, 1, 1},
	{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)},
	{garbage, garbage, garbage, garbage, garbage, garbage},
	{0x7e020000, 0o6777, 0o6777, 0o6777, 4, 0},
}

// TestPlainVerdicts: every call without a check of its own has its verdict whatever the arguments are, under
// its own architecture; every other number is unknown.
func TestPlainVerdicts(t *testing.T) {
	each(t, func(t *testing.T, p program, mayChange bool) {
		want := map[uint32]unix.Errno{}
		add := func(list string, errno unix.Errno) {
			for name := range strings.FieldsSeq(list) {
				if n, ok := p.number(t, name); ok {
					want[n] = errno
				}
			}
		}
		add(allowed, 0)
		add(refused, unix.EPERM)
		add(unknown, unix.ENOSYS)
		changes := unix.Errno(0)
		if !mayChange {
			changes = unix.EPERM
		}
		add(metadata, changes)
		add("mq_open mq_unlink", changes)
		if !mayChange {
			want[must(p.number(t, "mq_open"))] = unix.Errno(0xfff)
		}
		for name := range judged {
			if n, ok := p.number(t, name); ok && (mayChange || want[n] != unix.EPERM) {
				want[n] = unix.Errno(0xfff) // by its arguments
			}
		}
		for n := range uint32(2000) {
			errno, known := want[n]
			if !known {
				errno = unix.ENOSYS
			}
			if errno == 0xfff {
				continue
			}
			for _, args := range someArguments {
				if got := p.run(t, p.audit(), n, args...); got != errno {
					t.Errorf("call %d%x: %v, not %v", n, args, got, errno)
				}
			}
		}
	})
}

// TestForeignNumbers: calls by another architecture's numbers, and those of x32, are unknown, all of them.
func TestForeignNumbers(t *testing.T) {
	each(t, func(t *testing.T, p program, _ bool) {
		foreign := []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64, 0}
		for _, audit := range foreign {
			if audit == p.audit() {
				continue
			}
			for n := range uint32(600) {
				if got := p.run(t, audit, n); got != unix.ENOSYS {
					t.Errorf("%#x: call %d: %v", audit, n, got)
				}
			}
		}
		for n := range uint32(600) {
			if got := p.run(t, p.audit(), n|0x40000000); got != unix.ENOSYS {
				t.Errorf("x32: call %d: %v", n, got)
			}
		}
		for _, n := range []uint32{472, 1 << 16, 1<<31 - 1, 1 << 31, ^uint32(0)} {
			if got := p.run(t, p.audit(), n); got != unix.ENOSYS {
				t.Errorf("call %d: %v", n, got)
			}
		}
	})
}

// call is one with its arguments and what becomes of it.
type call struct {
	name  string
	args  []uint64
	errno unix.Errno
}

const (
	ok   = unix.Errno(0)
	perm = unix.EPERM
)

// judgedCalls have arguments that decide.
var judgedCalls = slices.Concat(modeCalls(), processCalls, flagCalls, ioctlCalls)

// modeCalls are all calls with a mode, with the bits and without, once more with garbage above them.
func modeCalls() (calls []call) {
	at := map[string]int{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		for _, upper := range []uint64{0, garbage} {
			for mode, errno := range map[uint64]unix.Errno{
				0: ok, 0o777: ok, 0o1777: ok, 0o4755: perm, 0o2755: perm, 0o6000: perm, 0o100644: ok, 0o104755: perm, 0o37777: perm,
			} {
				args := make([]uint64, 4)
				args[at[name]] = mode | upper
				calls = append(calls, call{name, args, errno})
			}
		}
	}
	for kind, errno := range map[uint64]unix.Errno{
		unix.S_IFCHR: perm, unix.S_IFBLK: perm, unix.S_IFREG: ok, unix.S_IFIFO: ok, unix.S_IFSOCK: ok,
		unix.S_IFREG | 0o4755: perm, unix.S_IFIFO | 0o2644: perm, unix.S_IFCHR | 0x10000: perm,
	} {
		calls = append(calls,
			call{"mknod", []uint64{1, kind | 0o600}, errno}, call{"mknodat", []uint64{3, 1, kind | 0o600 | garbage}, errno})
	}
	const tmpfile = 0o20000000 // without the bit of O_DIRECTORY, which the architectures have at different places
	for flags, makes := range map[uint64]bool{
		0: false, unix.O_CREAT: true, unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC: true, tmpfile | unix.O_RDWR: true,
		tmpfile | 0o200000: true, tmpfile | 0o40000: true, 0o200000: false, 0o40000: false, unix.O_RDWR: false, unix.O_CREAT | garbage: true, garbage: false,
	} {
		with := ok
		if makes {
			with = perm
		}
		calls = append(calls,
			call{"open", []uint64{1, flags, 0o4755}, with}, call{"open", []uint64{1, flags, 0o644 | garbage}, ok},
			call{"openat", []uint64{3, 1, flags, 0o2755 | garbage}, with}, call{"openat", []uint64{3, 1, flags, 0o1777}, ok})
	}
	return calls
}

var processCalls = []call{
	{"sched_setparam", []uint64{0, 1}, ok},
	{"sched_setparam", []uint64{1, 1}, perm},
	{"sched_setscheduler", []uint64{garbage, 1}, ok},
	{"sched_setscheduler", []uint64{garbage | 1, 1}, perm},
	{"sched_setaffinity", []uint64{0, 8, 1}, ok},
	{"sched_setaffinity", []uint64{0xffffffff, 8, 1}, perm},
	{"sched_setattr", []uint64{0, 1, 0}, ok},
	{"sched_setattr", []uint64{77, 1, 0}, perm},
	{"migrate_pages", []uint64{0}, ok},
	{"migrate_pages", []uint64{1}, perm},
	{"move_pages", []uint64{garbage}, ok},
	{"move_pages", []uint64{garbage | 1}, perm},
	{"setpriority", []uint64{0, 0, 19}, ok},
	{"setpriority", []uint64{garbage, garbage, 19}, ok},
	{"setpriority", []uint64{0, 1, 19}, perm},
	{"setpriority", []uint64{1, 0, 19}, perm},
	{"setpriority", []uint64{2, 0, 19}, perm},
	{"ioprio_set", []uint64{1, 0, 0}, ok},
	{"ioprio_set", []uint64{1, 7, 0}, perm},
	{"ioprio_set", []uint64{0, 0, 0}, perm},
	{"ioprio_set", []uint64{2, 0, 0}, perm},
	{"ioprio_set", []uint64{3, 0, 0}, perm},
	{"prlimit64", []uint64{0, 7, 0x1000, 0}, ok},
	{"prlimit64", []uint64{garbage, 7, 0x1000, 0}, ok},
	{"prlimit64", []uint64{1, 7, 0, 0x1000}, ok},
	{"prlimit64", []uint64{1, 7, 0x1000, 0}, perm},
	{"prlimit64", []uint64{1, 7, 1 << 32, 0}, perm},
}

var flagCalls = []call{
	{"clone", []uint64{uint64(unix.SIGCHLD)}, ok},
	{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, ok},
	{"clone", []uint64{0x3d0f00}, ok}, // a thread of glibc
	{"clone", []uint64{garbage | 0x3d0f00}, ok},
	{"clone", []uint64{0x1200000 | uint64(unix.SIGCHLD)}, ok}, // its fork
	{"clone", []uint64{unix.CLONE_NEWNS | uint64(unix.SIGCHLD)}, perm},
	{"clone", []uint64{unix.CLONE_NEWCGROUP | garbage}, perm},
	{"clone", []uint64{unix.CLONE_NEWUTS}, perm},
	{"clone", []uint64{unix.CLONE_NEWIPC}, perm},
	{"clone", []uint64{unix.CLONE_NEWUSER}, perm},
	{"clone", []uint64{unix.CLONE_NEWPID}, perm},
	{"clone", []uint64{unix.CLONE_NEWNET}, perm},
	{"unshare", []uint64{0}, ok},
	{"unshare", []uint64{unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SYSVSEM}, ok},
	{"unshare", []uint64{unix.CLONE_NEWUSER}, perm},
	{"unshare", []uint64{unix.CLONE_NEWNS | unix.CLONE_FS}, perm},
	{"unshare", []uint64{unix.CLONE_NEWTIME}, perm},
	{"unshare", []uint64{1}, perm},
	{"unshare", []uint64{1 << 32}, perm},
	{"renameat2", []uint64{3, 1, 3, 1, 0}, ok},
	{"renameat2", []uint64{3, 1, 3, 1, unix.RENAME_EXCHANGE | garbage}, ok},
	{"renameat2", []uint64{3, 1, 3, 1, unix.RENAME_WHITEOUT | garbage}, perm},
	{"renameat2", []uint64{3, 1, 3, 1, unix.RENAME_WHITEOUT | unix.RENAME_NOREPLACE}, perm},
	{"fcntl", []uint64{3, unix.F_GETFL}, ok},
	{"fcntl", []uint64{3, unix.F_DUPFD_CLOEXEC | garbage}, ok},
	{"fcntl", []uint64{3, unix.F_GETLEASE}, ok},
	{"fcntl", []uint64{3, unix.F_SETLEASE, unix.F_RDLCK}, perm},
	{"fcntl", []uint64{3, unix.F_SETLEASE | garbage, unix.F_RDLCK}, perm},
	{"fcntl", []uint64{3, unix.F_SETDELEG, 0x1000}, perm},
}

var ioctlCalls = []call{
	{"ioctl", []uint64{0, unix.TCGETS}, ok},
	{"ioctl", []uint64{0, unix.TIOCGWINSZ | garbage}, ok},
	{"ioctl", []uint64{0, unix.TIOCINQ}, ok},
	{"ioctl", []uint64{0, unix.SIOCGIFCONF}, ok},
	{"ioctl", []uint64{0, unix.TIOCSTI}, perm},
	{"ioctl", []uint64{0, unix.TIOCSTI | garbage}, perm},
	{"ioctl", []uint64{0, unix.TIOCLINUX | garbage}, perm},
	{"ioctl", []uint64{0, unix.TIOCCONS}, perm},
	{"ioctl", []uint64{0, unix.TIOCSETD}, perm},
	{"ioctl", []uint64{0, unix.FS_IOC_GETFLAGS}, ok},
	{"ioctl", []uint64{0, unix.FS_IOC_GETFLAGS | garbage}, ok},
	{"ioctl", []uint64{0, 0x80046601}, ok}, // the same of 32 bits
	{"ioctl", []uint64{0, unix.FS_IOC_SETFLAGS}, perm},
	{"ioctl", []uint64{0, unix.FS_IOC_SETFLAGS | garbage}, perm},
	{"ioctl", []uint64{0, 0x40046602}, perm}, // FS_IOC32_SETFLAGS
	{"ioctl", []uint64{0, 0x40087602}, perm}, // FS_IOC_SETVERSION
	{"ioctl", []uint64{0, 0x80087601}, ok},
	{"ioctl", []uint64{0, 0x801c581f}, ok},   // FS_IOC_FSGETXATTR
	{"ioctl", []uint64{0, 0x401c5820}, perm}, // FS_IOC_FSSETXATTR
	{"ioctl", []uint64{0, 0xc0045877}, perm}, // FIFREEZE
	{"ioctl", []uint64{0, unix.FS_IOC_SET_ENCRYPTION_POLICY}, perm},
	{"ioctl", []uint64{0, unix.FS_IOC_ENABLE_VERITY}, perm},
	{"ioctl", []uint64{0, unix.FICLONE}, ok},
	{"ioctl", []uint64{0, unix.FICLONERANGE}, ok},
	{"ioctl", []uint64{0, unix.FIDEDUPERANGE}, ok},
	{"ioctl", []uint64{0, 0x5000940e}, perm},        // BTRFS_IOC_SUBVOL_CREATE
	{"ioctl", []uint64{0, 0x41009432}, perm},        // FS_IOC_SETFSLABEL
	{"ioctl", []uint64{0, 0x80047210}, ok},          // FAT_IOCTL_GET_ATTRIBUTES
	{"ioctl", []uint64{0, 0x40047211}, perm},        // FAT_IOCTL_SET_ATTRIBUTES
	{"ioctl", []uint64{0, 0xbc10}, unix.ENOTTY},     // a subvolume of bcachefs
	{"ioctl", []uint64{0, 0x4b66}, unix.ENOTTY},     // a console's
	{"ioctl", []uint64{0, 0x5000f501}, unix.ENOTTY}, // f2fs
	{"ioctl", []uint64{0, ^uint64(0)}, ok},          // of a pidfd's type, which has no such
}

// TestJudgedCalls, and that none has been forgotten.
func TestJudgedCalls(t *testing.T) {
	changes := strings.Fields(metadata)
	each(t, func(t *testing.T, p program, mayChange bool) {
		allowedOnce, refusedOnce := map[string]bool{}, map[string]bool{}
		for _, c := range judgedCalls {
			n, exists := p.number(t, c.name)
			if !exists {
				continue
			}
			want := c.errno
			if !mayChange && slices.Contains(changes, c.name) {
				want = unix.EPERM
			}
			if got := p.run(t, p.audit(), n, c.args...); got != want {
				t.Errorf("%s%x: %v, not %v", c.name, c.args, got, want)
			}
			if c.errno == 0 {
				allowedOnce[c.name] = true
			} else {
				refusedOnce[c.name] = true
			}
		}
		for name := range judged {
			if _, exists := p.number(t, name); exists && !(allowedOnce[name] && refusedOnce[name]) {
				t.Errorf("%s is not tested both ways", name)
			}
		}
	})
}

// TestQueues: where nothing may change, message queues can be used, and neither made nor removed.
func TestQueues(t *testing.T) {
	each(t, func(t *testing.T, p program, mayChange bool) {
		refused := unix.EPERM
		if mayChange {
			refused = 0
		}
		for _, c := range []call{
			{"mq_open", []uint64{1, unix.O_RDWR, 0, 0}, 0},
			{"mq_open", []uint64{1, garbage | unix.O_RDWR, 0o600, 0}, 0},
			{"mq_open", []uint64{1, garbage | unix.O_RDWR | unix.O_CREAT, 0o600, 0}, refused},
			{"mq_open", []uint64{1, unix.O_CREAT | unix.O_EXCL, 0o600, 0}, refused},
			{"mq_unlink", []uint64{1}, refused},
		} {
			n, _ := p.number(t, c.name)
			if got := p.run(t, p.audit(), n, c.args...); got != c.errno {
				t.Errorf("%s%x: %v, not %v", c.name, c.args, got, c.errno)
			}
		}
	})
}

// TestNames holds what must be refused by name, apart from the tables: a call that is moved between them by mistake is found.
func TestNames(t *testing.T) {
	const never = `mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr
		setns bpf perf_event_open userfaultfd keyctl add_key request_key kexec_load kexec_file_load init_module finit_module
		delete_module open_by_handle_at fanotify_init quotactl quotactl_fd swapon swapoff reboot syslog acct settimeofday
		clock_settime sethostname setdomainname vhangup iopl ioperm process_madvise process_vm_readv process_vm_writev pidfd_getfd
		process_mrelease file_setattr`
	const needsMetadata = `chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr
		fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat`
	const missing = `clone3 openat2 io_uring_setup io_uring_enter io_uring_register`
	each(t, func(t *testing.T, p program, mayChange bool) {
		expect := func(list string, errno unix.Errno) {
			for name := range strings.FieldsSeq(list) {
				n, exists := p.number(t, name)
				if got := p.run(t, p.audit(), n); exists && got != errno {
					t.Errorf("%s: %v, not %v", name, got, errno)
				}
			}
		}
		expect(never, unix.EPERM)
		expect(missing, unix.ENOSYS)
		if mayChange {
			expect(needsMetadata, 0)
		} else {
			expect(needsMetadata, unix.EPERM)
		}
	})
}

// TestNoOtherArchitecture has a program.
func TestNoOtherArchitecture(t *testing.T) {
	if _, err := Assemble("riscv64", false); err == nil {
		t.Error("there is one for riscv64")
	}
}

// TestFitsTheKernel: a program has at most 4096 instructions, and is within what one filter should be.
func TestFitsTheKernel(t *testing.T) {
	for _, arch := range Arches {
		for _, metadata := range []bool{true, false} {
			if prog, err := Assemble(arch, metadata); err != nil || len(prog) > 512 {
				t.Errorf("%s: %d instructions, %v", arch, len(prog), err)
			}
		}
	}
}

// TestShortWays: no plain verdict takes more than a dozen instructions to find, which the time to load a filter goes by.
func TestShortWays(t *testing.T) {
	for _, arch := range Arches {
		spans, err := spansOf(arch, verdicts(true))
		if err != nil {
			t.Fatal(err)
		}
		if d := depth(len(spans)); d > 8 {
			t.Errorf("%s: %d comparisons for %d spans", arch, d, len(spans))
		}
	}
}

func depth(n int) int {
	if n <= 1 {
		return 0
	}
	return 1 + max(depth(n/2), depth(n-n/2))
}
