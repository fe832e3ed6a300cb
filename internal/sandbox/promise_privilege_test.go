package sandbox_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// forbidden is a system call that no command has a business with. Its arguments are such that it would do no harm; it must fail
// before anybody looks at them.
type forbidden struct {
	name string
	do   func() error
}

// reached tells of a call that was not refused, whatever else it complained of.
func reached(err error) error {
	for _, refusal := range []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EROFS} {
		if errors.Is(err, refusal) {
			return err
		}
	}
	return nil
}

// otherID takes it for a refusal, too, that an id means nothing in a user namespace.
func otherID(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return unix.EPERM
	}
	return err
}

// nothing is an address where nothing is.
const nothing = uintptr(1)

func plain(name string, number uintptr, args ...uintptr) forbidden {
	return forbidden{name, func() error { return raw(number, args...) }}
}

func forbiddenCalls() []forbidden {
	calls := []forbidden{
		plain("clone3", unix.SYS_CLONE3, nothing, 0),
		plain("mount-tmpfs", unix.SYS_MOUNT, str("none"), str("/mnt"), str("tmpfs"), 0, 0),
		plain("mount-bind", unix.SYS_MOUNT, str("/etc"), str("/mnt"), 0, unix.MS_BIND, 0),
		plain("mount-writable", unix.SYS_MOUNT, 0, str("/"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0),
		plain("mount-shared", unix.SYS_MOUNT, 0, str("/"), 0, unix.MS_REC|unix.MS_SHARED, 0),
		plain("umount", unix.SYS_UMOUNT2, str("/proc"), unix.MNT_DETACH),
		plain("umount-tmp", unix.SYS_UMOUNT2, str("/tmp"), unix.MNT_DETACH),
		plain("umount-dev", unix.SYS_UMOUNT2, str("/dev"), unix.MNT_DETACH),
		plain("mount_setattr", unix.SYS_MOUNT_SETATTR, here, str("/"), 0, nothing, 0),
		plain("open_tree", unix.SYS_OPEN_TREE, here, str("/"), unix.OPEN_TREE_CLONE),
		plain("move_mount", unix.SYS_MOVE_MOUNT, here, str("/proc"), here, str("/mnt"), 0),
		plain("fsopen", unix.SYS_FSOPEN, str("tmpfs"), 0),
		plain("fsmount", unix.SYS_FSMOUNT, here, 0, 0),
		plain("fspick", unix.SYS_FSPICK, here, str("/"), 0),
		plain("pivot_root", unix.SYS_PIVOT_ROOT, str("/tmp"), str("/tmp")),
		plain("chroot", unix.SYS_CHROOT, str("/")),
		plain("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, nothing),
		plain("io_uring_enter", unix.SYS_IO_URING_ENTER, here, 0, 0, 0),
		plain("io_uring_register", unix.SYS_IO_URING_REGISTER, here, 0, 0, 0),
		plain("bpf", unix.SYS_BPF, 0, nothing, 0),
		plain("perf_event_open", unix.SYS_PERF_EVENT_OPEN, nothing, 0, here, here, 0),
		plain("userfaultfd", unix.SYS_USERFAULTFD, 1<<30),
		plain("add_key", unix.SYS_ADD_KEY, str("user"), str("bashd-test"), str("x"), 1, ^uintptr(1)),
		plain("keyctl", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(3), 0),
		plain("request_key", unix.SYS_REQUEST_KEY, str("user"), str("bashd-test"), 0, 0),
		plain("kexec_load", unix.SYS_KEXEC_LOAD, 0, 1<<20, 0, ^uintptr(0)),
		plain("kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, here, here, 0, 0, ^uintptr(0)),
		plain("init_module", unix.SYS_INIT_MODULE, nothing, 1, nothing),
		plain("finit_module", unix.SYS_FINIT_MODULE, here, nothing, ^uintptr(0)),
		plain("delete_module", unix.SYS_DELETE_MODULE, str("bashd-test-no-such"), unix.O_NONBLOCK),
		plain("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, here, nothing, 0),
		plain("fanotify_init", unix.SYS_FANOTIFY_INIT, ^uintptr(0)>>32, 0),
		plain("quotactl", unix.SYS_QUOTACTL, 0x800003<<8, str("/dev/null"), 0, 0),
		plain("quotactl_fd", unix.SYS_QUOTACTL_FD, here, 0x800003<<8, 0, 0),
		plain("swapon", unix.SYS_SWAPON, str("/dev/bashd-test-no-such"), 0),
		plain("swapoff", unix.SYS_SWAPOFF, str("/dev/bashd-test-no-such")),
		plain("reboot", unix.SYS_REBOOT, 0, 0, 0, 0), // no magic: it would be an invalid call
		plain("syslog", unix.SYS_SYSLOG, 3, nothing, 0),
		plain("settimeofday", unix.SYS_SETTIMEOFDAY, nothing, 0),
		plain("clock_settime", unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, nothing),
		plain("sethostname", unix.SYS_SETHOSTNAME, nothing, 1),
		plain("setdomainname", unix.SYS_SETDOMAINNAME, nothing, 1),
		plain("acct", unix.SYS_ACCT, str("/dev/bashd-test-no-such")),
		plain("vhangup", unix.SYS_VHANGUP),
		plain("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getppid()), nothing, 1, nothing, 1, 0),
		plain("process_madvise", unix.SYS_PROCESS_MADVISE, here, nothing, 1, 20, 0),
		plain("pidfd_getfd", unix.SYS_PIDFD_GETFD, here, 0, 0),
		plain("capset", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHeader)), uintptr(unsafe.Pointer(&allCaps))),
		{"setuid", func() error { return otherID(raw(unix.SYS_SETUID, 12345)) }},
		{"setgid", func() error { return otherID(raw(unix.SYS_SETGID, 12345)) }},
		plain("setgroups", unix.SYS_SETGROUPS, 0, 0),
		{"clock_adjtime", func() error {
			_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_STATUS | 1<<30})
			return err
		}},
		{"steal-input", func() error { return raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, str("x")) }},
		{"console", func() error { return raw(unix.SYS_IOCTL, 0, unix.TIOCLINUX, str("\x02")) }},
		{"drop-no-new-privs", func() error {
			if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == nil {
				return nil
			}
			return unix.EPERM
		}},
		{"capability-bound", func() error {
			if unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0) == nil {
				return nil
			}
			return unix.EPERM
		}},
	}
	for _, ns := range []struct {
		name, file string
		flag       uintptr
	}{
		{"user", "user", unix.CLONE_NEWUSER},
		{"mount", "mnt", unix.CLONE_NEWNS},
		{"pid", "pid", unix.CLONE_NEWPID},
		{"net", "net", unix.CLONE_NEWNET},
		{"ipc", "ipc", unix.CLONE_NEWIPC},
		{"uts", "uts", unix.CLONE_NEWUTS},
		{"cgroup", "cgroup", unix.CLONE_NEWCGROUP},
		{"time", "time", unix.CLONE_NEWTIME},
	} {
		calls = append(
			calls, plain("unshare-"+ns.name, unix.SYS_UNSHARE, ns.flag),
			forbidden{"setns-" + ns.name, func() error {
				err := withOpen("/proc/self/ns/"+ns.file, unix.O_RDONLY, func(fd int) error { return raw(unix.SYS_SETNS, uintptr(fd), 0) })
				if errors.Is(err, unix.ENOENT) {
					return unix.ENOSYS
				}
				return err
			}},
		)
		if ns.flag != unix.CLONE_NEWTIME {
			calls = append(calls, forbidden{"clone-" + ns.name, func() error {
				return startIn(&syscall.SysProcAttr{Cloneflags: ns.flag})
			}})
		}
	}
	return calls
}

var (
	capHeader = [2]uint32{unix.LINUX_CAPABILITY_VERSION_3, 0}
	allCaps   = [6]uint32{^uint32(0), ^uint32(0), 0, 0, 0, 0}
)

// startIn starts a program with these attributes.
func startIn(attr *syscall.SysProcAttr) error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// kernelFiles change the whole machine. They are opened for writing, and nothing is written.
var kernelFiles = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/sysrq",
	"/proc/sys/vm/drop_caches",
	"/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/timer_list", "/sys/kernel/uevent_helper", "/sys/power/state",
	"/sys/kernel/debug/tracing/trace",
	"/sys/kernel/security/lockdown", "/sys/fs/bpf/x", "/etc/passwd", "/etc/shadow", "/boot/x",
}

// attackPrivilege tries to become more than it is.
func attackPrivilege() {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); slices.Contains(statusKeys, key) {
			fmt.Printf("status %s\t%s\n", key, value)
		}
	}
	for _, c := range forbiddenCalls() {
		tell("call "+c.name, reached(c.do()))
	}
	for _, path := range slices.Concat(kernelFiles, cgroupFiles()) {
		tell("write "+path, withOpen(path, unix.O_WRONLY, func(int) error { return nil }))
	}
	for _, dir := range []string{os.Getenv("TMPDIR"), os.Getenv("WS")} {
		for kind, mode := range map[string]uint32{"block": unix.S_IFBLK, "character": unix.S_IFCHR} {
			tell("node "+kind+" "+dir, unix.Mknod(dir+"/"+kind, mode|0o666, int(unix.Mkdev(1, 5))))
		}
		for _, bits := range []uint32{0o4755, 0o2755} {
			path := fmt.Sprintf("%s/set%o", dir, bits)
			if os.WriteFile(path, nil, 0o644) == nil {
				tell("chmod "+path, unix.Chmod(path, bits))
			}
		}
	}
	for program := range strings.FieldsSeq(os.Getenv(setIDEnv)) {
		out, err := exec.Command(program, "-u").Output()
		fmt.Printf("become %s\t%s %v\n", filepath.Base(program), strings.TrimSpace(string(out)), err)
	}
	out, err := exec.Command("unshare", "-Ur", "id").CombinedOutput()
	tell("unshare -Ur", err)
	_ = out
	foreign := exec.Command(os.Getenv("PROGRAM"))
	foreign.Env = append(os.Environ(), roleEnv+"=foreign")
	tell("foreign", foreign.Run())
	const x32 = 0x40000000
	if runtime.GOARCH == "amd64" {
		tell("x32", raw(x32|unix.SYS_GETPID))
	}
}

// statusKeys are what a command is to the kernel.
var statusKeys = []string{"CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd", "NoNewPrivs", "Seccomp", "Groups"}

// cgroupFiles let a process leave its control group.
func cgroupFiles() (paths []string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[2], "cgroup") {
			for _, file := range []string{"cgroup.procs", "tasks", "release_agent", "notify_on_release", "cgroup.subtree_control"} {
				paths = append(paths, fields[1]+"/"+file)
			}
		}
	}
	return paths
}

// foreignChmod is chmod by the number of 32-bit programs, which a filter that looks at numbers only takes for another call.
// It ends with its error, or with a signal where the kernel has no such calls.
func foreignChmod() {
	if runtime.GOARCH != "amd64" {
		os.Exit(int(unix.ENOSYS))
	}
	const low = 0x40 // MAP_32BIT: the call takes 32 bits of an address
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|low)
	if err != nil {
		os.Exit(int(unix.ENOSYS))
	}
	const text, result = 256, 128 // where in the page
	base := uintptr(unsafe.Pointer(&page[0]))
	copy(page[text:], os.Getenv("OUT")+"/foreign\x00")
	le := binary.LittleEndian
	code := le.AppendUint32([]byte{0xb8}, 15)                          // mov eax, 15 (chmod)
	code = le.AppendUint32(append(code, 0xbb), uint32(base+text))      // mov ebx, path
	code = le.AppendUint32(append(code, 0xb9), 0o600)                  // mov ecx, 0600
	code = append(code, 0xcd, 0x80)                                    // int 0x80
	code = le.AppendUint64(append(code, 0x48, 0xba), uint64(base+128)) // mov rdx, result
	code = append(code, 0x89, 0x02, 0xc3)                              // mov [rdx], eax; ret
	copy(page, code)
	entry := &page[0]
	function := &entry // what a func value points at
	(*(*func())(unsafe.Pointer(&function)))()
	os.Exit(int(-int32(le.Uint32(page[result:]))))
}

// setIDEnv names programs that run as their owner, by whom they are started.
const setIDEnv = "SET_ID_PROGRAMS"

var setIDOnce sync.Once

// setIDProgram makes id run as root, and as nobody; both names, or none where this process cannot make them.
func setIDProgram(t *testing.T) string {
	t.Helper()
	if given := os.Getenv(setIDEnv); given != "" || os.Geteuid() != 0 {
		return given
	}
	dir := filepath.Dir(ownProgram(t))
	root, other := dir+"/as-root", dir+"/as-nobody"
	setIDOnce.Do(func() {
		id, err := exec.LookPath("id")
		must(t, err)
		for path, uid := range map[string]uint32{root: 0, other: nobody.UID} {
			copyFile(t, id, path, 0o755)
			must(t, os.Chown(path, int(uid), int(uid)))
			must(t, os.Chmod(path, 0o755|os.ModeSetuid))
		}
	})
	return root + " " + other
}

// machine is what none of it may change.
func machine(t *testing.T) map[string]string {
	t.Helper()
	facts := map[string]string{}
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/self/mounts",
		"/proc/self/cgroup", "/proc/swaps",
		"/proc/self/oom_score_adj",
	} {
		b, _ := os.ReadFile(path)
		facts[path] = string(b)
	}
	return facts
}

// TestPromise6Privilege: no namespace, mount, device, set-ID program, foreign system call or file of the kernel makes a
// command more than it is.
func TestPromise6Privilege(t *testing.T) {
	t.Parallel()
	everyTier(t, func(t *testing.T, f *fixture) {
		for _, mode := range confinedModes {
			t.Run(string(mode), func(t *testing.T) { testPrivilege(t, f, mode) })
		}
		t.Run("unconfined", func(t *testing.T) { controlPrivilege(t, f) })
	})
}

func testPrivilege(t *testing.T, f *fixture, mode sandbox.Mode) {
	f.needs(t, mode)
	must(t, os.WriteFile(f.out+"/foreign", []byte("x"), 0o644))
	f.grant(t, f.out)
	before, files := machine(t), facts(t, f.out)
	results := f.tries(t, mode, "privilege", setIDEnv+"="+setIDProgram(t))
	unchanged(t, before, machine(t))
	unchanged(t, files, facts(t, f.out))
	for _, name := range done(results) {
		if kind, _, _ := strings.Cut(name, " "); kind == "call" && f.tells(mode, sandbox.GapSystemCalls) {
			continue
		}
		t.Errorf("%s succeeded; the gaps are %v", name, f.Report().Mode(mode).Gaps)
	}
	f.isPowerless(t, results)
}

// isPowerless looks at what the command was to the kernel.
func (f *fixture) isPowerless(t *testing.T, results map[string]string) {
	t.Helper()
	const none = "0000000000000000"
	want := map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"}
	if os.Geteuid() == 0 || f.Report().Tier == sandbox.TierNamespaces {
		want["CapBnd"] = none // else it takes a capability to give them up
	}
	if f.runAs != nil {
		want["Groups"] = ""
	}
	for key, value := range want {
		if got := strings.TrimSpace(results["status "+key]); got != value {
			t.Errorf("%s is %q, want %q", key, got, value)
		}
	}
	for name, result := range results {
		if strings.HasPrefix(name, "become ") && result != fmt.Sprintf("%d <nil>", f.owner().UID) {
			t.Errorf("%s was %s, want %d", name, result, f.owner().UID)
		}
	}
}

// controlPrivilege sees that the set-ID programs and the foreign call work unconfined.
func controlPrivilege(t *testing.T, f *fixture) {
	must(t, os.WriteFile(f.out+"/foreign", []byte("x"), 0o644))
	f.grant(t, f.out)
	c := f.command(t, sandbox.FullAccess, `for p in $`+setIDEnv+`; do "$p" -u; done; `+roleEnv+`=foreign "$PROGRAM"; echo $?`)
	c.Env = append(c.Env, setIDEnv+"="+setIDProgram(t), "PROGRAM="+ownProgram(t), raceEnv)
	got := f.run(t, c)
	if setIDProgram(t) != "" && !strings.HasPrefix(got.stdout, "0\n65534\n") {
		t.Errorf("got %+v", got)
	}
	if runtime.GOARCH != "amd64" {
		return
	}
	st, err := os.Stat(f.out + "/foreign")
	must(t, err)
	if called := strings.HasSuffix("\n"+got.stdout, "\n0\n"); called != (st.Mode() == 0o600) {
		t.Errorf("the foreign call: %v, %+v", st.Mode(), got)
	} else if !called {
		t.Log("this kernel has no 32-bit calls")
	}
}
