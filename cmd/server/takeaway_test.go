package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What a kernel or a container lacks is really taken away here: a program is started below a system call filter that
// answers in the kernel's place, and so are all that it starts. bashd has no hook for that and cannot tell the difference.
//
// What is taken is a list with commas in between. An item is one of
//
//	call=ERRNO         the call fails; with OK instead of an errno it does nothing and succeeds
//	call:detail=ERRNO  it fails where a flag or a string among its arguments is that one: see takenDetails
//	landlock:abi=N     Landlock is that of ABI N: newer rights and flags are refused as such a kernel does
//
// and a call is one of takeable. A detail of clone has clone3, whose flags no filter sees, fail with ENOSYS, as containers do.
const (
	takeaway     = "TEST_TAKEAWAY"      // makes TestTakeaway what its name says
	takeawayUser = "TEST_TAKEAWAY_USER" // the uid and gid that the program gets; unset: ours
)

// TestTakeaway runs the program that its arguments name without what the environment says. It is the child of other tests.
func TestTakeaway(t *testing.T) {
	spec, ok := os.LookupEnv(takeaway)
	if !ok {
		t.Skipf("only with %s", takeaway)
	}
	status, err := runWithout(spec, os.Getenv(takeawayUser), flag.Args())
	if err != nil {
		// Not to be taken for a failure of the program, which lacked nothing then.
		fmt.Fprintln(os.Stderr, "takeaway:", err)
		status = 125
	}
	unix.Exit(status) // with os.Exit the race detector would wait a second
}

// takeable are the calls that can be taken away. Go itself needs clone and prctl, of which only details can.
var takeable = map[string]uint32{
	"landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET,
	"landlock_add_rule":       unix.SYS_LANDLOCK_ADD_RULE, "landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF,
	"clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
	"open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
	"fsopen": unix.SYS_FSOPEN, "fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT,
	"setuid": unix.SYS_SETUID, "setreuid": unix.SYS_SETREUID, "setresuid": unix.SYS_SETRESUID,
	"setgid": unix.SYS_SETGID, "setregid": unix.SYS_SETREGID, "setresgid": unix.SYS_SETRESGID, "setgroups": unix.SYS_SETGROUPS,
	"seccomp": unix.SYS_SECCOMP, "prctl": unix.SYS_PRCTL, "capset": unix.SYS_CAPSET,
	"pidfd_open": unix.SYS_PIDFD_OPEN, "pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL,
	"close_range": unix.SYS_CLOSE_RANGE, "openat2": unix.SYS_OPENAT2, "memfd_create": unix.SYS_MEMFD_CREATE,
}

// condition narrows a rule down to certain arguments of its call.
type condition struct {
	arg  uint32
	test bpf.JumpTest // of the argument's lower half with val
	val  uint32
	text string // the string that the argument points at; a filter cannot see it, the supervisor can
}

const anyNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
	unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// takenDetails are the details of the calls that have some.
var takenDetails = map[string]map[string]condition{
	"clone":   namespaceFlags,
	"unshare": namespaceFlags,
	"prctl": {
		"seccomp": {test: bpf.JumpEqual, val: unix.PR_SET_SECCOMP}, "dumpable": {test: bpf.JumpEqual, val: unix.PR_SET_DUMPABLE},
		"capbset": {test: bpf.JumpEqual, val: unix.PR_CAPBSET_DROP}, "no-new-privs": {test: bpf.JumpEqual, val: unix.PR_SET_NO_NEW_PRIVS},
	},
	"seccomp": {"filter": {test: bpf.JumpEqual, val: unix.SECCOMP_SET_MODE_FILTER}},
	"fsopen":  {"proc": {text: "proc"}, "tmpfs": {text: "tmpfs"}},
	"mount":   {"proc": {arg: 2, text: "proc"}, "tmpfs": {arg: 2, text: "tmpfs"}},
}

var namespaceFlags = map[string]condition{
	"new": {test: bpf.JumpBitsSet, val: anyNamespace}, "newns": {test: bpf.JumpBitsSet, val: unix.CLONE_NEWNS},
	"newuser": {test: bpf.JumpBitsSet, val: unix.CLONE_NEWUSER}, "newpid": {test: bpf.JumpBitsSet, val: unix.CLONE_NEWPID},
	"newipc": {test: bpf.JumpBitsSet, val: unix.CLONE_NEWIPC},
}

// taken is what is taken away.
type taken struct {
	rules []takenRule // those of one call: the first that holds decides
	abi   int         // that Landlock is made out to have; 0: it is left alone
}

type takenRule struct {
	call  uint32
	when  *condition // nil: always
	errno unix.Errno // 0: success
}

// parseTaken understands a list and nothing else: a test whose item is misspelt would show nothing.
func parseTaken(spec string) (k taken, err error) {
	for item := range strings.SplitSeq(spec, ",") {
		if spec == "" {
			break
		}
		what, effect, _ := strings.Cut(item, "=")
		if what == "landlock:abi" {
			if k.abi, err = strconv.Atoi(effect); err != nil || k.abi < 1 || k.abi > newestABI {
				return k, fmt.Errorf("%s: no ABI from 1 to %d", item, newestABI)
			}
			k.rules = append(k.rules, olderLandlock(k.abi)...)
			continue
		}
		rules, err := parseItem(what, effect)
		if err != nil {
			return k, fmt.Errorf("%s: %w", item, err)
		}
		k.rules = append(k.rules, rules...)
	}
	return k, nil
}

func parseItem(what, effect string) ([]takenRule, error) {
	errno, ok := errnoNamed(effect)
	if !ok {
		return nil, errors.New("no such error")
	}
	name, detail, narrowed := strings.Cut(what, ":")
	call, ok := takeable[name]
	if !ok {
		return nil, errors.New("no such call")
	}
	if !narrowed {
		if name == "clone" || name == "prctl" {
			return nil, errors.New("only details of it can be taken away")
		}
		return []takenRule{{call: call, errno: errno}}, nil
	}
	when, ok := takenDetails[name][detail]
	if !ok {
		return nil, errors.New("no such detail")
	}
	rules := []takenRule{{call, &when, errno}}
	if name == "clone" {
		rules = append(rules, takenRule{call: unix.SYS_CLONE3, errno: unix.ENOSYS})
	}
	return rules, nil
}

func errnoNamed(name string) (unix.Errno, bool) {
	if name == "OK" {
		return 0, true
	}
	for e := unix.Errno(1); e < 200; e++ {
		if name != "" && unix.ErrnoName(e) == name {
			return e, true
		}
	}
	return 0, false
}

// newestABI is the newest Landlock that older ones are told from here.
const newestABI = 7

// olderLandlock refuses what Landlock of that ABI did not know and a filter can see. The rest is createRuleset's.
func olderLandlock(abi int) (rules []takenRule) {
	const ruleNetPort, flagsOf7 = 2, 7
	if abi < 4 {
		rules = append(rules, takenRule{unix.SYS_LANDLOCK_ADD_RULE, &condition{arg: 1, test: bpf.JumpEqual, val: ruleNetPort}, unix.EINVAL})
	}
	unknown := ^uint32(0)
	if abi >= 7 {
		unknown &^= flagsOf7
	}
	return append(rules, takenRule{unix.SYS_LANDLOCK_RESTRICT_SELF, &condition{arg: 1, test: bpf.JumpBitsSet, val: unknown}, unix.EINVAL})
}

// supervised reports that some answers depend on memory of the caller, where a filter cannot look.
func (k taken) supervised() bool {
	return k.abi > 0 || slices.ContainsFunc(k.rules, func(r takenRule) bool { return r.when != nil && r.when.text != "" })
}

// filter is the program that carries out k.
func (k taken) filter() ([]unix.SockFilter, error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no filter for %s", runtime.GOARCH)
	}
	// Offsets into struct seccomp_data: the number, the architecture, and six arguments of eight bytes.
	const number, architecture, arguments = 0, 4, 16
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: architecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}, // as where the kernel has no other: by its numbers a call would pass
	}
	rules := k.rules
	if k.abi > 0 {
		rules = append(slices.Clip(rules), takenRule{call: unix.SYS_LANDLOCK_CREATE_RULESET, when: &condition{text: "attr"}})
	}
	for _, r := range rules {
		body := []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(r.errno)}}
		switch {
		case r.when == nil:
		case r.when.text != "":
			body[0] = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
		default:
			body = append([]bpf.Instruction{
				bpf.LoadAbsolute{Off: arguments + 8*r.when.arg, Size: 4},
				bpf.JumpIf{Cond: r.when.test, Val: r.when.val, SkipFalse: 1},
			}, body...)
		}
		prog = append(prog, bpf.LoadAbsolute{Off: number, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: r.call, SkipTrue: uint8(len(body))})
		prog = append(prog, body...)
	}
	raw, err := bpf.Assemble(append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	var filter []unix.SockFilter
	for _, in := range raw {
		filter = append(filter, unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K})
	}
	return filter, err
}

// install puts the calling thread, and what it starts, under the filter. The listener is -1 where nobody need listen.
func (k taken) install() (listener int, err error) {
	filter, err := k.filter()
	if err != nil {
		return -1, err
	}
	if os.Geteuid() != 0 {
		// Root needs none, and set-user-ID programs would notice it.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return -1, os.NewSyscallError("prctl", err)
		}
	}
	flags := uintptr(0)
	if k.supervised() {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, os.NewSyscallError("seccomp", errno)
	}
	if flags == 0 {
		return -1, nil
	}
	return int(fd), nil // the kernel has set its close-on-exec
}

// runWithout runs argv without what spec says, as that user, and returns its exit status; 128 and the number for a signal. The
// program dies with this process.
func runWithout(spec, user string, argv []string) (status int, err error) {
	k, err := parseTaken(spec)
	if err != nil {
		return 0, err
	}
	attr, err := takenAttr(user)
	if err != nil {
		return 0, err
	}
	if k.supervised() && os.Geteuid() != 0 {
		// Without privileges we see into the memory of nobody who is not dumpable. That bashd is not is no subject here.
		dumpable := takenDetails["prctl"]["dumpable"]
		k.rules = append(k.rules, takenRule{call: unix.SYS_PRCTL, when: &dumpable})
	}
	pid, err := k.start(argv, attr)
	if err != nil {
		return 0, err
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// start starts argv below the filter, which no other thread of ours is under.
func (k taken) start(argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for good: the end of the thread would be the program's
		listener, err2 := k.install()
		if listener >= 0 {
			go k.supervise(listener)
		}
		if err = err2; err == nil {
			pid, err = syscall.ForkExec(argv[0], argv, attr)
		}
		close(started)
		select {}
	}()
	<-started
	return pid, err
}

func takenAttr(user string) (*syscall.ProcAttr, error) {
	attr := &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if user != "" {
		id, err := strconv.ParseUint(user, 10, 32)
		if err != nil {
			return nil, err
		}
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, takeaway) {
			attr.Env = append(attr.Env, v)
		}
	}
	return attr, nil
}

// notification and verdict are the kernel's struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type verdict struct {
	id    uint64
	val   int64
	errno int32 // negative
	flags uint32
}

// supervise answers the calls that the filter leaves to us. A caller that is gone by then needs no answer.
func (k taken) supervise(listener int) {
	for {
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		if errno == unix.EINTR || errno == unix.ENOENT {
			continue
		}
		if errno != 0 {
			fmt.Fprintln(os.Stderr, "takeaway: receiving:", errno)
			os.Exit(125)
		}
		v := k.decide(n)
		v.id = n.id
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&v)))
		if errno != 0 && errno != unix.ENOENT {
			fmt.Fprintln(os.Stderr, "takeaway: answering:", errno)
			os.Exit(125)
		}
	}
}

// goOn lets the kernel carry out the call.
func goOn() verdict { return verdict{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE} }

func fails(errno unix.Errno) verdict { return verdict{errno: -int32(errno)} }

func (k taken) decide(n notification) verdict {
	if n.number == unix.SYS_LANDLOCK_CREATE_RULESET {
		return createRuleset(k.abi, n)
	}
	for _, r := range k.rules {
		if int32(r.call) != n.number || r.when == nil || r.when.text == "" {
			continue
		}
		text, err := readMemory(n.pid, n.args[r.when.arg], uint64(len(r.when.text)+1))
		if err != nil {
			return fails(unix.EFAULT)
		}
		if string(text) == r.when.text+"\x00" {
			return fails(r.errno)
		}
	}
	return goOn()
}

// rulesetKnown are the rights that Landlock of an ABI knows, in the order of struct landlock_ruleset_attr: to files, to the network, and scopes.
// The structure ended with the last one that had any.
func rulesetKnown(abi int) []uint64 {
	known := []uint64{ll.AccessFSMakeSym<<1 - 1}
	if abi >= 2 {
		known[0] |= ll.AccessFSRefer
	}
	if abi >= 3 {
		known[0] |= ll.AccessFSTruncate
	}
	if abi >= 4 {
		known = append(known, ll.AccessNetBindTCP|ll.AccessNetConnectTCP)
	}
	if abi >= 5 {
		known[0] |= ll.AccessFSIoctlDev
	}
	if abi >= 6 {
		known = append(known, ll.ScopeAbstractUnixSocket|ll.ScopeSignal)
	}
	return known
}

// createRuleset answers landlock_create_ruleset as Landlock of that ABI would.
func createRuleset(abi int, n notification) verdict {
	attr, size, flags := n.args[0], n.args[1], uint32(n.args[2])
	if flags == unix.LANDLOCK_CREATE_RULESET_VERSION && attr == 0 && size == 0 {
		return verdict{val: int64(abi)}
	}
	if flags != 0 {
		return fails(unix.EINVAL)
	}
	if size > 4096 {
		return fails(unix.E2BIG)
	}
	b, err := readMemory(n.pid, attr, size&^7)
	if err != nil {
		return fails(unix.EFAULT)
	}
	known := rulesetKnown(abi)
	for i := 0; i < len(b)/8; i++ {
		handled := binary.NativeEndian.Uint64(b[8*i:])
		if i >= len(known) && handled != 0 {
			return fails(unix.E2BIG)
		}
		if i < len(known) && handled&^known[i] != 0 {
			return fails(unix.EINVAL)
		}
	}
	return goOn()
}

// readMemory reads up to size bytes at addr of another process, fewer where it has no more there.
func readMemory(pid uint32, addr, size uint64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	b := make([]byte, size)
	local := []unix.Iovec{{Base: &b[0], Len: size}}
	// An element is read whole or not at all, so none goes over the end of a page.
	var remote []unix.RemoteIovec
	for at, page := addr, uint64(os.Getpagesize()); at < addr+size; {
		end := min(addr+size, (at/page+1)*page)
		remote = append(remote, unix.RemoteIovec{Base: uintptr(at), Len: int(end - at)})
		at = end
	}
	got, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		// A program that is told something made up would show nothing.
		fmt.Fprintf(os.Stderr, "takeaway: reading memory of %d: %v\n", pid, err)
		os.Exit(125)
	}
	return b[:max(got, 0)], err
}

// tried makes TestTried try these things, with spaces in between.
const tried = "TEST_TRIED"

// TestTried tries things and prints what came of them. It is the program that the tests below take something away from.
func TestTried(t *testing.T) {
	names, ok := os.LookupEnv(tried)
	if !ok {
		t.Skipf("only with %s", tried)
	}
	for name := range strings.FieldsSeq(names) {
		fmt.Printf("%s=%s\n", name, try(name))
	}
	unix.Exit(0)
}

// try tries one thing: a call, or a detail of one; or something that it has a case for.
func try(name string) string {
	switch name {
	case "abi":
		abi, err := ll.LandlockGetABIVersion()
		if err != nil {
			return outcome(err)
		}
		return strconv.Itoa(abi)
	case "rights", "net", "scopes":
		return accepted(24, func(bit uint64) error {
			attr := map[string]ll.RulesetAttr{"rights": {HandledAccessFS: bit}, "net": {HandledAccessNet: bit}, "scopes": {Scoped: bit}}[name]
			_, err := ll.LandlockCreateRuleset(&attr, 0)
			return err
		})
	case "ruleset-flags":
		return accepted(2, func(bit uint64) error { return rawCall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, uintptr(bit)) })
	case "restrict-flags":
		runtime.LockOSThread() // which nothing is enforced on, but the kernel wants to know that it may be
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return outcome(err)
		}
		return accepted(8, func(bit uint64) error {
			return known(rawCall(unix.SYS_LANDLOCK_RESTRICT_SELF, ^uintptr(0), uintptr(bit)))
		})
	case "rule-types":
		return accepted(2, func(bit uint64) error {
			return known(rawCall(unix.SYS_LANDLOCK_ADD_RULE, ^uintptr(0), uintptr(bit), 0, 0))
		})
	case "status":
		return ownStatus("Uid", "Groups", "NoNewPrivs", "Seccomp")
	case "exit":
		unix.Exit(7)
	case "die":
		return outcome(unix.Kill(os.Getpid(), unix.SIGKILL))
	case "stay":
		select {}
	}
	call, detail, narrowed := strings.Cut(name, ":")
	if narrowed {
		return outcome(tryDetail(call, detail))
	}
	all := ^uintptr(0) // no call does anything with arguments like these
	return outcome(rawCall(uintptr(takeable[call]), all, all, all, all, all))
}

func tryDetail(call, detail string) error {
	c := takenDetails[call][detail]
	switch call {
	case "clone":
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: uintptr(c.val)}})
		if err == nil {
			_, err = unix.Wait4(pid, nil, 0, nil)
		}
		return err
	case "unshare":
		failed := make(chan error)
		go func() {
			runtime.LockOSThread()
			failed <- unix.Unshare(int(c.val))
		}()
		return <-failed
	case "fsopen":
		_, err := unix.Fsopen(detail, unix.FSOPEN_CLOEXEC)
		return err
	case "mount":
		return unix.Mount("none", "/nonexistent", detail, 0, "")
	}
	return rawCall(uintptr(takeable[call]), uintptr(c.val), ^uintptr(0))
}

func rawCall(number uintptr, args ...uintptr) error {
	a := append(args, make([]uintptr, 6)...)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// known turns what a call says of the descriptor -1, which it looks at after its flags, into success.
func known(err error) error {
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return err
}

func outcome(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "OK"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// accepted lists which of the lowest n bits are taken, in hexadecimal, and how the others fail.
func accepted(n int, take func(bit uint64) error) string {
	var bits uint64
	var errs []string
	for i := range n {
		if err := take(1 << i); err == nil {
			bits |= 1 << i
		} else if name := outcome(err); !slices.Contains(errs, name) {
			errs = append(errs, name)
		}
	}
	return strings.Join(append([]string{fmt.Sprintf("%#x", bits)}, errs...), " ")
}

// ownStatus gives some lines of /proc/self/status, in the order in which they come there.
func ownStatus(fields ...string) string {
	b, _ := os.ReadFile("/proc/thread-self/status")
	var found []string
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains(fields, name) {
			found = append(found, name+" "+strings.Join(strings.Fields(value), " "))
		}
	}
	return strings.Join(found, ", ")
}

// tryWithout tries things without what spec says and returns what came of each.
func tryWithout(t *testing.T, spec, user string, things ...string) map[string]string {
	t.Helper()
	out, err := tryCommand(t, spec, user, things...).Output()
	if err != nil {
		t.Fatalf("without %q: %v %s", spec, err, out)
	}
	came := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		came[name] = what
	}
	for _, name := range things {
		if came[name] == "" {
			t.Errorf("without %q: nothing came of %s: %s", spec, name, out)
		}
	}
	return came
}

func tryCommand(t *testing.T, spec, user string, things ...string) *osexec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := self
	if user != "" {
		dir, err := os.MkdirTemp("/var/tmp", "bashd-takeaway-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		program = copyOfSelf(t, dir)
	}
	cmd := osexec.Command(self, "-test.run=^TestTakeaway$", "--", program, "-test.run=^TestTried$")
	cmd.Env = append(os.Environ(), takeaway+"="+spec, takeawayUser+"="+user, tried+"="+strings.Join(things, " "))
	cmd.Stderr = os.Stderr
	return cmd
}

// oddError is one that none of the calls has of itself.
const oddError = "ENOANO"

// TestTakenCalls takes each call away, and nothing else with it.
func TestTakenCalls(t *testing.T) {
	t.Parallel()
	var names []string
	for name := range takeable {
		if !slices.Contains([]string{"clone", "clone3", "prctl"}, name) { // which Go and the C library need: see TestTakenDetails
			names = append(names, name)
		}
	}
	slices.Sort(names)
	with := tryWithout(t, "", "", names...)
	for half := range 2 {
		var items []string
		for i, name := range names {
			if i%2 == half {
				items = append(items, name+"="+oddError)
			}
		}
		without := tryWithout(t, strings.Join(items, ","), "", names...)
		for i, name := range names {
			want := with[name]
			if i%2 == half {
				want = oddError
			}
			if with[name] == oddError || without[name] != want {
				t.Errorf("%s: %s with it, %s without %q; want %s", name, with[name], without[name], items, want)
			}
		}
	}
	if got := tryWithout(t, "setns=OK", "", "setns"); with["setns"] == "OK" || got["setns"] != "OK" {
		t.Errorf("setns is to do nothing and succeed: %q", got)
	}
}

// TestTakenDetails takes each detail away, and nothing else of its call.
func TestTakenDetails(t *testing.T) {
	t.Parallel()
	for call, details := range takenDetails {
		var all []string
		for detail := range details {
			all = append(all, call+":"+detail)
		}
		with := tryWithout(t, "", "", all...)
		for _, taken := range all {
			without := tryWithout(t, taken+"="+oddError, "", append(all, "clone3")...)
			for _, name := range all {
				gone := name == taken || call+":new" == name && call != "prctl" || call+":new" == taken
				if with[name] == oddError || (without[name] == oddError) != gone || !gone && without[name] != with[name] {
					t.Errorf("%s: %s with it, %s without %s; want it gone: %t", name, with[name], without[name], taken, gone)
				}
			}
			if (without["clone3"] == "ENOSYS") != (call == "clone") {
				t.Errorf("without %s, clone3 gives %s", taken, without["clone3"])
			}
		}
	}
}

// TestTakenLandlock: an older Landlock takes what that kernel took, by the kernel's own headers, and fails as it did.
func TestTakenLandlock(t *testing.T) {
	t.Parallel()
	things := []string{"abi", "rights", "net", "scopes", "ruleset-flags", "restrict-flags", "rule-types"}
	newest, err := strconv.Atoi(tryWithout(t, "", "", "abi")["abi"])
	if err != nil {
		t.Skipf("there is no Landlock to make older here: %v", err)
	}
	for abi, want := range map[int][]string{
		1: {"1", "0x1fff EINVAL", "0x0 E2BIG", "0x0 E2BIG", "0x1 EINVAL", "0x0 EINVAL", "0x1 EINVAL"},
		2: {"2", "0x3fff EINVAL", "0x0 E2BIG", "0x0 E2BIG", "0x1 EINVAL", "0x0 EINVAL", "0x1 EINVAL"},
		3: {"3", "0x7fff EINVAL", "0x0 E2BIG", "0x0 E2BIG", "0x1 EINVAL", "0x0 EINVAL", "0x1 EINVAL"},
		4: {"4", "0x7fff EINVAL", "0x3 EINVAL", "0x0 E2BIG", "0x1 EINVAL", "0x0 EINVAL", "0x3"},
		5: {"5", "0xffff EINVAL", "0x3 EINVAL", "0x0 E2BIG", "0x1 EINVAL", "0x0 EINVAL", "0x3"},
		6: {"6", "0xffff EINVAL", "0x3 EINVAL", "0x3 EINVAL", "0x1 EINVAL", "0x0 EINVAL", "0x3"},
		7: {"7", "0xffff EINVAL", "0x3 EINVAL", "0x3 EINVAL", "0x1 EINVAL", "0x7 EINVAL", "0x3"},
	} {
		if abi > newest {
			continue
		}
		for _, user := range someUsers() {
			got := tryWithout(t, fmt.Sprint("landlock:abi=", abi), user, things...)
			for i, name := range things {
				if got[name] != want[i] {
					t.Errorf("ABI %d as user %q: %s: %s; want %s", abi, user, name, got[name], want[i])
				}
			}
		}
	}
}

// someUsers are ours, and where we may change, one without privileges.
func someUsers() []string {
	if os.Geteuid() == 0 {
		return []string{"", strconv.Itoa(nobody)}
	}
	return []string{""}
}

// TestTakenUser: for root nothing but the filter is different, and another user has nothing of root's left.
func TestTakenUser(t *testing.T) {
	t.Parallel()
	before := ownStatus("Uid", "Groups")
	for _, user := range someUsers() {
		want, privs := before, "0"
		if user != "" {
			want = "Uid 65534 65534 65534 65534, Groups "
		}
		if os.Geteuid() != 0 {
			privs = "1"
		}
		if got := tryWithout(t, "setns=EPERM", user, "status")["status"]; got != want+", NoNewPrivs "+privs+", Seccomp 2" {
			t.Errorf("user %q: %s", user, got)
		}
	}
}

// TestTakeawayEnds: the program's end is told, and the end of what supervises it is the program's.
func TestTakeawayEnds(t *testing.T) {
	t.Parallel()
	for thing, status := range map[string]int{"abi": 0, "exit": 7, "die": 128 + 9} {
		cmd := tryCommand(t, "setns=EPERM", "", thing)
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != status {
			t.Errorf("%s: %v; want status %d", thing, err, status)
		}
	}
	cmd := tryCommand(t, "landlock:abi=1", someUsers()[len(someUsers())-1], "status", "stay")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if children := childrenOf(cmd.Process.Pid); len(children) != 1 {
		t.Errorf("children %v; want the program", children)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil { // ends with the program, which holds the other end
		t.Error(err)
	}
}

// TestTakeawayMisspelt: what is not understood is not passed over.
func TestTakeawayMisspelt(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"unshare", "unshare=", "unshare=EPREM", "unshar=EPERM", "unshare:newfoo=EPERM", "setns:new=EPERM", "clone=EPERM", "prctl=EPERM", "=EPERM", ",",
		"unshare=EPERM,", "unshare=EPERM,,mount=EPERM", "landlock:abi=0", "landlock:abi=8", "landlock:abi=x", "landlock=ENOSYS", "landlock:abi=1=2",
	} {
		cmd := tryCommand(t, spec, "", "abi")
		cmd.Stderr = nil
		if out, err := cmd.Output(); cmd.ProcessState.ExitCode() != 125 || len(out) != 0 {
			t.Errorf("%q: %v %s; want status 125", spec, err, out)
		}
	}
}
