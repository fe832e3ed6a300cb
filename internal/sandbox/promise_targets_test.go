package sandbox_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// target is a process that a command must not reach, with its threads.
type target struct {
	name    string
	pid     int
	threads []int
}

// String is what parseTargets reads.
func (t target) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d", t.name, t.pid)
	for _, tid := range t.threads {
		fmt.Fprintf(&b, ":%d", tid)
	}
	return b.String()
}

func newTarget(tb testing.TB, name string, pid int) target {
	tb.Helper()
	tids := threadsOf(pid)
	if len(tids) == 0 {
		tb.Fatalf("%s (%d) has ended", name, pid)
	}
	return target{name, pid, tids}
}

func threadsOf(pid int) (tids []int) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// targetsEnv holds the targets, by their numbers outside, for a command.
const targetsEnv = "TARGETS"

func joinTargets(targets []target) string {
	var list []string
	for _, t := range targets {
		list = append(list, t.String())
	}
	return targetsEnv + "=" + strings.Join(list, ",")
}

// givenTargets are those of the command's environment, and its own runner, whose number it sees itself.
func givenTargets() (targets []target) {
	for text := range strings.SplitSeq(os.Getenv(targetsEnv), ",") {
		name, numbers, _ := strings.Cut(text, ":")
		t := target{name: name}
		for n := range strings.SplitSeq(numbers, ":") {
			pid, _ := strconv.Atoi(n)
			t.threads = append(t.threads, pid)
		}
		t.pid, t.threads = t.threads[0], t.threads[1:]
		targets = append(targets, t)
	}
	// Not the parent of this process, which is the shell, but the parent of that.
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	runner, _ := strconv.Atoi(fields[1])
	return append(targets, target{"own-runner", runner, threadsOf(runner)})
}

// sibling is a command of another owner, whose workspace and temporary directory lie in what is hidden from the first.
type sibling struct {
	*sandbox.Process
	own, ws string
	secret  string
	targets []target // its shell, its runner, and its sweeper where it has one
}

// startSibling starts it under that mode, with a secret in its environment, on its disk and in an open file.
func startSibling(t *testing.T, f *fixture, mode sandbox.Mode, secret string) *sibling {
	t.Helper()
	own, err := os.MkdirTemp(f.state, "other-")
	must(t, err)
	s := &sibling{own: own, ws: own + "/ws", secret: secret}
	for _, dir := range []string{s.ws, own + "/tmp"} {
		must(t, os.Mkdir(dir, 0o700))
	}
	must(t, os.WriteFile(own+"/output", []byte(secret), 0o644))
	must(t, os.WriteFile(s.ws+"/file", []byte(secret), 0o644))
	must(t, os.Chmod(own, 0o711))
	f.grant(t, s.ws)
	f.grant(t, own+"/tmp")
	c := f.command(t, mode, `echo "$SECRET" >"$TMPDIR/file"; exec 7<"$TMPDIR/file"; echo up; sleep 3999; true`)
	c.Policy, err = f.Policy(mode, s.ws, own+"/tmp", []string{own})
	must(t, err)
	temp := own + "/tmp"
	if f.PrivateTemp(mode) {
		temp = "/tmp"
	}
	c.Workdir = s.ws
	c.Env = append(c.Env, "SECRET="+secret, "TMPDIR="+temp)
	s.Process = startAndAwait(t, f, c, "up\n")
	shell := shellOf(t, s.Process)
	s.targets = []target{newTarget(t, "sibling", shell), newTarget(t, "its-runner", s.Runner())}
	if x := sweeperOf(t, s.Process, shell); x != 0 {
		s.targets = append(s.targets, newTarget(t, "its-sweeper", x))
	} else if mode.Confined() && f.Report().Cleanup == sandbox.CleanupDomain {
		t.Error("it has no sweeper")
	}
	return s
}

// sweeperOf is the pid of the sweeper, 0 where there is none: the child of the runner that is not the shell, and not the one
// that waits to become the next command, who is in a session of its own.
func sweeperOf(t *testing.T, p *sandbox.Process, shell int) int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Runner(), p.Runner()))
	must(t, err)
	for field := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(field)
		must(t, err)
		session, _ := unix.Getsid(pid)
		if runners, _ := unix.Getsid(p.Runner()); pid != shell && session == runners {
			return pid
		}
	}
	return 0
}

// daemonTarget is this process.
func daemonTarget(t *testing.T) target { return newTarget(t, "daemon", os.Getpid()) }

// lives is what must stay of a thread, whatever a command tries: that it is there, is not stopped, its limits, priority,
// scheduling, processors, signals and the score that the kernel picks by when memory runs out.
func lives(pid, tid int) map[string]string {
	dir := fmt.Sprintf("/proc/%d/task/%d", pid, tid)
	facts := map[string]string{}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return facts
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	facts["group, session"] = fields[2] + " " + fields[3]
	facts["nice, started"] = fields[16] + " " + fields[19]
	facts["priority, policy"] = fields[37] + " " + fields[38]
	if slices.Contains([]string{"T", "t", "Z", "X"}, fields[0]) {
		facts["state"] = fields[0]
	}
	status, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "TracerPid", "Cpus_allowed", "Uid", "Umask":
			facts[key] = value
		case "SigPnd", "ShdPnd":
			pending, _ := strconv.ParseUint(value, 16, 64)
			// That a child has ended is told to every parent, and Go's runtime wakes its threads by another.
			facts[key] = fmt.Sprintf("%x", pending&^(1<<(unix.SIGCHLD-1)|1<<(unix.SIGURG-1)))
		}
	}
	for _, file := range []string{"limits", "oom_score_adj", "comm", "cgroup"} {
		b, _ := os.ReadFile(dir + "/" + file)
		facts[file] = string(b)
	}
	io, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioProcess, uintptr(tid), 0)
	facts["io"] = fmt.Sprint(io)
	return facts
}

// states are those of all threads of the targets.
func states(targets []target) map[string]string {
	all := map[string]string{}
	for _, t := range targets {
		for _, tid := range t.threads {
			for what, is := range lives(t.pid, tid) {
				all[fmt.Sprintf("%s %d/%d %s", t.name, t.pid, tid, what)] = is
			}
		}
	}
	return all
}
