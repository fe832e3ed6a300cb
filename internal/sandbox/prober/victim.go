package prober

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// victimReady is what the victim writes once it counts signals. Then it writes the number of each that comes.
const victimReady = 'R'

// beVictim is the victim: it lives until its standard input ends, which is when the daemon ends or has no more use for it.
func beVictim() {
	told := make(chan os.Signal, 2*signals)
	for s := firstSignal; s <= lastSignal; s++ {
		signal.Notify(told, syscall.Signal(s))
	}
	go func() {
		for s := range told {
			if number, ok := s.(syscall.Signal); ok {
				_ = writeAll(1, []byte{byte(number)})
			}
		}
	}()
	if writeAll(1, []byte{victimReady}) != nil {
		syscall.Exit(1)
	}
	for {
		if n, err := unix.Read(0, make([]byte, 1)); n <= 0 && err != unix.EINTR {
			syscall.Exit(0)
		}
	}
}

// victim is that process as the daemon sees it.
type victim struct {
	process *os.Process
	life    *os.File // its standard input
	told    *os.File // its standard output
	before  victimState
}

// victimPatience bounds how long the victim may take to answer.
const victimPatience = 5 * time.Second

// startVictim starts a victim of that user, with a secret in its environment and the mark in its command line.
func startVictim(own OwnIDs, mark string) (*victim, error) {
	stdin, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	told, stdout, err := os.Pipe()
	if err != nil {
		life.Close()
		return nil, err
	}
	defer stdout.Close()
	attr := &syscall.SysProcAttr{Setpgid: true}
	if int(own.UID) != os.Geteuid() || int(own.GID) != os.Getegid() {
		attr.Credential = &syscall.Credential{Uid: own.UID, Gid: own.GID}
	}
	v := &victim{life: life, told: told}
	v.process, err = os.StartProcess("/proc/self/exe", []string{Argv0, victimRole, mark}, &os.ProcAttr{
		Dir: "/", Env: []string{"BASHD_PROBE_SECRET=" + content, "GOMAXPROCS=1"}, Files: []*os.File{stdin, stdout, nil}, Sys: attr,
	})
	if err == nil && !v.await(victimReady) {
		err = errNoAnswer
	}
	if err == nil {
		v.before, err = v.state()
	}
	if err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// await reads until that byte comes.
func (v *victim) await(want byte) bool {
	_, ok := v.collect(want)
	return ok
}

// collect returns the bytes before that one, and whether it came.
func (v *victim) collect(want byte) (before []byte, ok bool) {
	_ = v.told.SetReadDeadline(time.Now().Add(victimPatience))
	for b := make([]byte, 1); ; {
		if n, err := v.told.Read(b); err != nil || n == 0 {
			return before, false
		}
		if b[0] == want {
			return before, true
		}
		before = append(before, b[0])
	}
}

// signals returns the numbers of the signals that came; not ok: the victim does not live.
func (v *victim) signals() (numbers []byte, ok bool) {
	// It may have been stopped.
	_ = v.process.Signal(syscall.SIGCONT)
	// Signals are told in the order of their numbers, if they are there. One that another thread has yet to take may
	// come after the first answer.
	for range 2 {
		if v.process.Signal(syscall.Signal(lastSignal)) != nil {
			return numbers, false
		}
		more, ok := v.collect(lastSignal)
		numbers = append(numbers, more...)
		if !ok {
			return numbers, false
		}
	}
	return numbers, true
}

// victimState is what a command could change of the victim. It is comparable.
type victimState struct {
	nice, policy, ioprio uintptr
	processors           unix.CPUSet
	limits               string
	oom, slack, name     string
}

func (v *victim) state() (s victimState, err error) {
	pid := uintptr(v.process.Pid)
	number := func(trap uintptr, args ...uintptr) (n uintptr) {
		if err == nil {
			n, err = call(trap, args...)
		}
		return n
	}
	s.nice = number(unix.SYS_GETPRIORITY, unix.PRIO_PROCESS, pid)
	s.policy = number(unix.SYS_SCHED_GETSCHEDULER, pid)
	s.ioprio = number(unix.SYS_IOPRIO_GET, ioprioProcess, pid)
	if err == nil {
		err = unix.SchedGetaffinity(int(pid), &s.processors)
	}
	if err != nil {
		return s, err
	}
	// What cannot be read stays empty: the slack of a timer is not for everybody. The limits can be read here without the
	// capability that prlimit asks for.
	dir := "/proc/" + strconv.Itoa(int(pid))
	for file, to := range map[string]*string{"/limits": &s.limits, "/oom_score_adj": &s.oom, "/timerslack_ns": &s.slack, "/comm": &s.name} {
		b, _ := readSome(dir + file)
		*to = string(b)
	}
	return s, nil
}

// close ends the victim and waits for it.
func (v *victim) close() {
	v.life.Close()
	if v.process != nil {
		_ = v.process.Kill()
		_, _ = v.process.Wait()
	}
	v.told.Close()
}
