package sandbox_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// Who is meant by the calls about the priority of input and output (linux/ioprio.h).
const (
	ioprioProcess = 1
	ioprioGroup   = 2
	ioprioUser    = 3
	ioprioIdle    = 3 << 13
)

// strike is one way to do something to a thread of another process.
type strike struct {
	name string
	gap  string // where it may succeed
	do   func(pid, tid int) error
}

// info is a siginfo as a queued signal has it.
func info(sig int) uintptr {
	b := make([]int32, 32)
	b[0], b[2] = int32(sig), -1 // si_signo, si_code: SI_QUEUE
	infos = append(infos, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var infos [][]int32

const kill = uintptr(unix.SIGKILL)

// signals of every kind: all of them would end the target, or say that they could have.
var signals = []strike{
	{"kill-0", sandbox.GapSignals, func(pid, _ int) error { return unix.Kill(pid, 0) }},
	{"kill-thread-0", sandbox.GapSignals, func(_, tid int) error { return unix.Kill(tid, 0) }},
	{"tkill-0", sandbox.GapSignals, func(_, tid int) error { return raw(unix.SYS_TKILL, uintptr(tid), 0) }},
	{"stop", sandbox.GapSignals, func(pid, _ int) error { return unix.Kill(pid, unix.SIGSTOP) }},
	{"kill", sandbox.GapSignals, func(pid, _ int) error { return unix.Kill(pid, unix.SIGKILL) }},
	{"kill-thread", sandbox.GapSignals, func(_, tid int) error { return unix.Kill(tid, unix.SIGKILL) }},
	{"kill-group", sandbox.GapSignals, func(pid, _ int) error {
		if pid == 1 {
			return unix.ESRCH // -1 is not its group, but everybody, who come last
		}
		return unix.Kill(-pid, unix.SIGKILL)
	}},
	{"tkill", sandbox.GapSignals, func(_, tid int) error { return raw(unix.SYS_TKILL, uintptr(tid), kill) }},
	{"tgkill", sandbox.GapSignals, func(pid, tid int) error { return unix.Tgkill(pid, tid, unix.SIGKILL) }},
	{"rt_sigqueueinfo", sandbox.GapSignals, func(pid, _ int) error {
		return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), kill, info(int(kill)))
	}},
	{"rt_tgsigqueueinfo", sandbox.GapSignals, func(pid, tid int) error {
		return raw(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(pid), uintptr(tid), kill, info(int(kill)))
	}},
	{"pidfd", sandbox.GapSignals, func(pid, _ int) error { return byPidfd(pid, 0, 0) }},
	{"pidfd-thread", sandbox.GapSignals, func(_, tid int) error { return byPidfd(tid, pidfdThread, 0) }},
	{"pidfd-thread-to-process", sandbox.GapSignals, func(_, tid int) error { return byPidfd(tid, pidfdThread, 1<<1) }},
	{"pidfd-group", sandbox.GapSignals, func(pid, _ int) error { return byPidfd(pid, 0, 1<<2) }},
	{"pidfd-of-proc", sandbox.GapSignals, func(pid, _ int) error {
		return withOpen(fmt.Sprintf("/proc/%d", pid), unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
			return raw(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(fd), kill, 0, 0)
		})
	}},
	{"mrelease", sandbox.GapSignals, func(pid, _ int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return raw(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0)
	}},
}

// pidfdThread is PIDFD_THREAD.
const pidfdThread = unix.O_EXCL

func byPidfd(pid int, open, send uint) error {
	fd, err := unix.PidfdOpen(pid, int(open))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return raw(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(fd), kill, 0, uintptr(send))
}

// limits and priorities.
var slowings = []strike{
	{"prlimit-cpu", sandbox.GapScheduling, func(pid, _ int) error {
		return unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: 100000, Max: 100000}, nil)
	}},
	{"prlimit-thread", sandbox.GapScheduling, func(_, tid int) error {
		return unix.Prlimit(tid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil)
	}},
	{"renice", sandbox.GapScheduling, func(_, tid int) error { return unix.Setpriority(unix.PRIO_PROCESS, tid, 19) }},
	{"renice-group", sandbox.GapScheduling, func(pid, _ int) error { return unix.Setpriority(unix.PRIO_PGRP, pid, 19) }},
	{"affinity", sandbox.GapScheduling, func(_, tid int) error {
		set := unix.CPUSet{}
		set.Set(0)
		return unix.SchedSetaffinity(tid, &set)
	}},
	{"scheduler", sandbox.GapScheduling, func(_, tid int) error {
		const idle = 5
		var param int32
		return raw(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), idle, uintptr(unsafe.Pointer(&param)))
	}},
	{"schedule-parameters", sandbox.GapScheduling, func(_, tid int) error {
		var param int32
		return raw(unix.SYS_SCHED_SETPARAM, uintptr(tid), uintptr(unsafe.Pointer(&param)))
	}},
	{"schedule-attributes", sandbox.GapScheduling, func(_, tid int) error {
		return unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH, Nice: 19}, 0)
	}},
	{"ionice", sandbox.GapScheduling, func(_, tid int) error {
		return raw(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(tid), ioprioIdle)
	}},
	{"ionice-group", sandbox.GapScheduling, func(pid, _ int) error {
		return raw(unix.SYS_IOPRIO_SET, ioprioGroup, uintptr(pid), ioprioIdle)
	}},
	{"group", sandbox.GapScheduling, func(pid, _ int) error { return unix.Setpgid(pid, 0) }},
	{"oom_score_adj", sandbox.GapScheduling, procWrite("oom_score_adj", "1000")},
	{"comm", sandbox.GapScheduling, procWrite("comm", "hit")},
	{"timer-slack", sandbox.GapScheduling, procWrite("timerslack_ns", "1000000000")},
	{"autogroup", sandbox.GapScheduling, procWrite("autogroup", "19")},
	{"clear-refs", "", procWrite("clear_refs", "1")},
	{"core-filter", "", procWrite("coredump_filter", "0")},
	{"trace", "", func(pid, _ int) error { return trace(unix.PTRACE_SEIZE, pid) }},
	{"trace-thread", "", func(_, tid int) error { return trace(unix.PTRACE_ATTACH, tid) }},
	{"migrate", "", func(pid, _ int) error {
		var from, to uint64 = 1, 1
		return raw(unix.SYS_MIGRATE_PAGES, uintptr(pid), 2, uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&to)))
	}},
	{"advise", "", func(pid, _ int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		const cold = 20
		var page [1]unix.Iovec
		return raw(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&page[0])), 1, cold, 0)
	}},
	{"perf", "", func(_, tid int) error {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
		attr.Size = uint32(unsafe.Sizeof(attr))
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}},
}

func procWrite(file, text string) func(pid, tid int) error {
	return func(pid, tid int) error {
		for _, dir := range []string{fmt.Sprintf("/proc/%d", pid), fmt.Sprintf("/proc/%d/task/%d", pid, tid), fmt.Sprintf("/proc/%d", tid)} {
			if err := os.WriteFile(dir+"/"+file, []byte(text), 0); err == nil {
				return nil
			}
		}
		return unix.EACCES
	}
}

// trace becomes the tracer of a thread, on a thread of its own, whose end lets it go.
func trace(request uintptr, pid int) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- raw(unix.SYS_PTRACE, request, uintptr(pid), 0, 0)
	}()
	return <-failed
}

// noUser is one of whom nothing runs: a call about all of a user's processes that is not refused finds nobody, and does no harm to the
// machine if the sandbox is broken.
const noUser = 54321

// storms name no process.
var storms = []strike{
	{"renice-user", sandbox.GapScheduling, func(int, int) error { return reached(unix.Setpriority(unix.PRIO_USER, noUser, 19)) }},
	{"ionice-user", sandbox.GapScheduling, func(int, int) error {
		return reached(raw(unix.SYS_IOPRIO_SET, ioprioUser, noUser, ioprioIdle))
	}},
}

// owned has the kernel send a signal to the owner of a descriptor, who is somebody else.
func owned(pid int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for _, step := range []struct{ command, value int }{{unix.F_SETOWN, pid}, {unix.F_SETSIG, int(unix.SIGTERM)}, {unix.F_SETFL, unix.O_ASYNC}} {
		if _, err := unix.FcntlInt(uintptr(pair[0]), step.command, step.value); err != nil {
			return err
		}
	}
	_, err = unix.Write(pair[1], []byte("x"))
	return err
}

// attackProcesses does everything to every thread of every target. Gentle things come first: what ends a target would hide
// the rest.
func attackProcesses() {
	targets := givenTargets()
	spare := os.Getenv("SPARE") != ""
	if spare { // the last is its own runner
		targets = targets[:len(targets)-1]
	}
	hit := false
	for _, t := range targets {
		for _, s := range slices.Concat(slowings, signals) {
			for _, tid := range t.threads {
				err := s.do(t.pid, tid)
				hit = hit || s.gap == sandbox.GapSignals && err == nil
				tell(fmt.Sprintf("%s %s %d", s.name, t.name, tid), err)
			}
		}
		// It is carried out or not without a word: what is seen outside says which.
		_ = owned(t.pid)
	}
	if spare {
		return
	}
	for _, s := range storms {
		tell(s.name+" all -", s.do(0, 0))
	}
	// Last, since it ends at least the shell that waits for this process. Where signals get out it would end the machine, and has been
	// told already.
	fmt.Println("status 0")
	if !hit {
		_ = unix.Kill(-1, unix.SIGKILL)
	}
}

// TestPromise5Processes: no signal, limit, priority or trace of a command reaches the daemon, the runners, a sweeper or a
// command of another owner, on any of their threads.
func TestPromise5Processes(t *testing.T) {
	t.Parallel()
	if !inProcess(t, nil, nil) {
		return // it might have been killed, and that process was, if so
	}
	beDaemon(t)
	everyTier(t, func(t *testing.T, f *fixture) {
		for _, mode := range confinedModes {
			t.Run(string(mode), func(t *testing.T) { testProcesses(t, f, mode) })
			t.Run(string(mode)+"/tools", func(t *testing.T) { testTools(t, f, mode) })
		}
		t.Run("unconfined", func(t *testing.T) { controlProcesses(t, f) })
	})
}

func testProcesses(t *testing.T, f *fixture, mode sandbox.Mode) {
	f.needs(t, mode)
	confined := startSibling(t, f, mode, "secret")
	targets := append([]target{daemonTarget(t)}, confined.targets...)
	before := states(targets)
	results := f.strikes(t, mode, targets)
	after := states(targets)
	for _, name := range done(results) {
		kind, _, _ := strings.Cut(name, " ")
		gap := gapOfStrike(kind)
		if gap == "" || !f.tells(mode, gap) {
			t.Errorf("%s succeeded; the gaps are %v", name, f.Report().Mode(mode).Gaps)
		}
	}
	if f.tells(mode, sandbox.GapSignals) || f.tells(mode, sandbox.GapScheduling) {
		t.Logf("told not to be kept: %v", f.Report().Mode(mode).Gaps)
		return
	}
	// Threads of a Go program come and go; those that there were are not changed.
	for what, was := range before {
		if is, ok := after[what]; ok && is != was {
			t.Errorf("%s was %q and is %q", what, was, is)
		}
	}
	for _, target := range targets {
		if len(threadsOf(target.pid)) == 0 {
			t.Errorf("%s is gone", target.name)
		}
	}
	select {
	case <-confined.Exited():
		t.Error("the sibling has ended")
	default:
	}
}

// strikes runs the attack, at the end of which the command kills itself.
func (f *fixture) strikes(t *testing.T, mode sandbox.Mode, targets []target, env ...string) map[string]string {
	t.Helper()
	c := f.command(t, mode, `"$PROGRAM"; echo "status $?"`)
	c.Env = append(c.Env, roleEnv+"=processes", "PROGRAM="+ownProgram(t), raceEnv, joinTargets(targets))
	c.Env = append(c.Env, env...)
	got := f.run(t, c)
	results := map[string]string{}
	ended := false
	for line := range strings.Lines(got.stdout) {
		ended = ended || line == "status 0\n"
		if name, result, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			results[name] = result
		}
	}
	if !ended || len(results) == 0 {
		t.Fatalf("the attack did not come to its end: %+v", got)
	}
	return results
}

func gapOfStrike(kind string) string {
	for _, s := range slices.Concat(signals, slowings, storms) {
		if s.name == kind {
			return s.gap
		}
	}
	return ""
}

// controlProcesses sees that the strikes hit an unconfined process of the same user.
func controlProcesses(t *testing.T, f *fixture) {
	victim := startAndAwait(t, f, f.command(t, sandbox.FullAccess, `echo up; sleep 3999; true`), "up\n")
	prey := newTarget(t, "prey", shellOf(t, victim))
	results := f.strikes(t, sandbox.FullAccess, []target{prey}, "SPARE=1")
	for _, name := range []string{"prlimit-cpu", "renice", "affinity", "scheduler", "ionice", "oom_score_adj", "stop", "kill", "trace"} {
		if got := results[fmt.Sprintf("%s prey %d", name, prey.pid)]; got != succeeded {
			t.Errorf("%s fails unconfined, too: %s", name, got)
		}
	}
	awaitGone(t, victim, 5e9)
}

// testTools does the same with the programs that people would use.
func testTools(t *testing.T, f *fixture, mode sandbox.Mode) {
	f.needs(t, mode)
	confined := startSibling(t, f, mode, "secret")
	targets := append([]target{daemonTarget(t)}, confined.targets...)
	before := states(targets)
	c := f.command(t, mode, `for target in ${TARGETS//,/ }; do
		IFS=: read -r name pid threads <<<"$target"
		for id in $pid ${threads//:/ }; do
			for tool in "kill -9 $id" "kill -STOP $id" "prlimit --pid $id --nofile=64:64" \
				"renice -n 10 -p $id" "taskset -cp 0 $id" "ionice -c3 -p $id" "chrt -i -p 0 $id"; do
				command -v ${tool%% *} >/dev/null || continue
				$tool >/dev/null 2>&1 && echo "$name: $tool"
			done
		done
	done
	echo end
	kill -0 $DAEMON 2>/dev/null || bash -c 'kill -9 -1' 2>/dev/null`)
	c.Env = append(c.Env, joinTargets(targets), fmt.Sprintf("DAEMON=%d", os.Getpid()))
	got := f.run(t, c)
	if told := f.tells(mode, sandbox.GapSignals) || f.tells(mode, sandbox.GapScheduling); !told && got.stdout != "end\n" {
		t.Errorf("got %+v", got)
	}
	after := states(targets)
	for what, was := range before {
		if is, ok := after[what]; ok && is != was {
			t.Errorf("%s was %q and is %q", what, was, is)
		}
	}
}
