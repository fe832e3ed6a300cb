package prober

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// The victim tells which of its signals came: each probe that sends one has its own, by its index in the list. 32 to 34 are
// the C library's.
const (
	firstSignal = 35
	signals     = 29
	lastSignal  = firstSignal + signals // by which Judge asks whether all have been told
)

// target is somebody outside.
type target struct {
	name, text string
	of         func(p *prober) process
}

var targets = []target{
	{"victim", "another process of the same user", func(p *prober) process { return p.victim }},
	{"daemon", "bashd", func(p *prober) process { return p.daemon }},
	{"runner", "the command's runner", func(p *prober) process { return p.runner }},
}

// onTargets makes a probe for each target.
func onTargets(class Class, name, text string, do func(p *prober, pid int) error) (list []probe) {
	for _, t := range targets {
		list = append(list, probe{Effect: Effect{t.name + "-" + name, class, text + " " + t.text}, try: func(p *prober, _ place) outcome {
			who := t.of(p)
			if !p.visible(who) {
				return skip(notVisible)
			}
			return result(do(p, who.pid))
		}})
	}
	return list
}

// onVictim makes a probe that may do something for which Judge looks at the victim.
func onVictim(class Class, name, text string, do func(p *prober, pid int, at place) error) probe {
	return probe{Effect: Effect{"victim-" + name, class, text}, try: func(p *prober, at place) outcome {
		if !p.visible(p.victim) {
			return skip(notVisible)
		}
		return result(do(p, p.victim.pid, at))
	}}
}

// signalProbes signal processes outside: signal 0, which only asks, and for the victim signals that it counts.
func signalProbes() []probe {
	var list []probe
	list = append(list, onTargets(ClassSignals, "kill", "kill of", func(_ *prober, pid int) error { return unix.Kill(pid, 0) })...)
	list = append(list, onTargets(ClassSignals, "tkill", "tkill of a thread of", func(_ *prober, pid int) error {
		_, err := call(unix.SYS_TKILL, uintptr(threadOf(pid)), 0)
		return err
	})...)
	list = append(list, onTargets(ClassSignals, "tgkill", "tgkill of a thread of", func(_ *prober, pid int) error {
		return unix.Tgkill(pid, threadOf(pid), 0)
	})...)
	list = append(list, onTargets(ClassSignals, "kill-thread", "kill of a thread of", func(_ *prober, pid int) error {
		return unix.Kill(threadOf(pid), 0)
	})...)
	list = append(list, onTargets(ClassSignals, "pidfd", "pidfd_send_signal to", func(_ *prober, pid int) error {
		return pidfdSignal(pid, 0)
	})...)
	list = append(list, onTargets(ClassSignals, "group", "kill of the process group of", killGroup)...)
	list = append(
		list,
		onVictim(ClassSignals, "continue", "SIGCONT to another process", func(_ *prober, pid int, _ place) error {
			return unix.Kill(pid, unix.SIGCONT)
		}),
		counted("signal", "a signal to another process by kill", func(pid int, at place) error { return unix.Kill(pid, at.signal) }),
		counted("thread-signal", "a signal to a thread of another process", func(pid int, at place) error {
			_, err := call(unix.SYS_TKILL, uintptr(pid), uintptr(at.signal))
			return err
		}),
		counted("pidfd-signal", "a signal to another process by its descriptor", func(pid int, at place) error {
			return pidfdSignal(pid, at.signal)
		}),
		counted("queue", "a signal to another process by rt_sigqueueinfo", func(pid int, at place) error {
			_, err := call(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(at.signal), queued(at.signal))
			return err
		}),
		counted("thread-queue", "a signal to another process by rt_tgsigqueueinfo", func(pid int, at place) error {
			_, err := call(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(pid), uintptr(pid), uintptr(at.signal), queued(at.signal))
			return err
		}),
		fileOwner(),
	)
	return list
}

// counted makes a probe that sends the victim the signal of its place.
func counted(name, text string, do func(pid int, at place) error) probe {
	p := onVictim(ClassSignals, name, text, func(_ *prober, pid int, at place) error { return do(pid, at) })
	p.needs |= needVictim
	return p
}

// fileOwner has the kernel send a signal, to whom a file tells it to. Whether it did, the victim knows.
func fileOwner() probe {
	p := counted("file-owner", "a signal to another process as the owner of a file", func(pid int, at place) error {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return err
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
		for _, c := range []struct{ cmd, arg int }{
			{unix.F_SETOWN, pid},
			{unix.F_SETSIG, int(at.signal)},
			{unix.F_SETFL, unix.O_ASYNC | unix.O_NONBLOCK},
		} {
			if _, err := unix.FcntlInt(uintptr(pipe[0]), c.cmd, c.arg); err != nil {
				return err
			}
		}
		return writeByte(pipe[1])
	})
	try := p.try
	p.try = func(pr *prober, at place) outcome {
		o := try(pr, at)
		if o.state == did {
			o.state = unseen
		}
		return o
	}
	return p
}

// threadOf is a thread of the process that is not its first, where one is seen.
func threadOf(pid int) int {
	list, _ := names("/proc/" + strconv.Itoa(pid) + "/task")
	for _, name := range list {
		if tid, err := strconv.Atoi(name); err == nil && tid != pid {
			return tid
		}
	}
	return pid
}

func pidfdSignal(pid int, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, signal, nil, 0)
}

// killGroup leaves its own group alone, which the command may signal.
func killGroup(_ *prober, pid int) error {
	group, err := unix.Getpgid(pid)
	if err != nil {
		return err
	}
	if group == unix.Getpgrp() || group <= 1 {
		return unix.ESRCH
	}
	return unix.Kill(-group, 0)
}

// queued is a struct siginfo for a signal that a process queues.
func queued(signal unix.Signal) uintptr {
	const byQueue = -1 // SI_QUEUE
	return address(&[32]int32{int32(signal), 0, byQueue})
}

// schedulingProbes change limits, priorities, and scheduling of processes outside: on the victim to other values, on the rest to the
// present ones.
func schedulingProbes() []probe {
	return slices.Concat(limitProbes(), schedulerProbes(), victimScheduling())
}

func limitProbes() []probe {
	var list []probe
	list = append(list, onTargets(ClassScheduling, "prlimit", "setting a limit of", func(_ *prober, pid int) error {
		var l unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &l); err != nil {
			return err
		}
		return unix.Prlimit(pid, unix.RLIMIT_CORE, &l, nil)
	})...)
	list = append(list, onTargets(ClassScheduling, "setpriority", "setting the priority of", func(_ *prober, pid int) error {
		nice, err := niceOf(pid)
		if err != nil {
			return err
		}
		return unix.Setpriority(unix.PRIO_PROCESS, pid, nice)
	})...)
	return append(list, onTargets(ClassScheduling, "ioprio", "setting the priority for disks of", func(_ *prober, pid int) error {
		prio, err := call(unix.SYS_IOPRIO_GET, ioprioProcess, uintptr(pid))
		if err != nil {
			return err
		}
		_, err = call(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(pid), prio)
		return err
	})...)
}

func schedulerProbes() []probe {
	var list []probe
	list = append(list, onTargets(ClassScheduling, "scheduler", "setting the scheduling of", func(_ *prober, pid int) error {
		policy, err := call(unix.SYS_SCHED_GETSCHEDULER, uintptr(pid))
		if err != nil {
			return err
		}
		var param int32
		if _, err := call(unix.SYS_SCHED_GETPARAM, uintptr(pid), address(&param)); err != nil {
			return err
		}
		_, err = call(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), policy, address(&param))
		return err
	})...)
	list = append(list, onTargets(ClassScheduling, "schedparam", "setting the scheduling parameter of", func(_ *prober, pid int) error {
		var param int32
		if _, err := call(unix.SYS_SCHED_GETPARAM, uintptr(pid), address(&param)); err != nil {
			return err
		}
		_, err := call(unix.SYS_SCHED_SETPARAM, uintptr(pid), address(&param))
		return err
	})...)
	list = append(list, onTargets(ClassScheduling, "schedattr", "setting the scheduling attributes of", func(_ *prober, pid int) error {
		attr, err := unix.SchedGetAttr(pid, 0)
		if err != nil {
			return err
		}
		return unix.SchedSetAttr(pid, attr, 0)
	})...)
	return append(list, onTargets(ClassScheduling, "affinity", "choosing the processors of", func(_ *prober, pid int) error {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil {
			return err
		}
		return unix.SchedSetaffinity(pid, &set)
	})...)
}

const (
	ioprioProcess = 1
	ioprioUser    = 3
	ioprioLowest  = 2<<13 | 7 // best effort, the last level
)

// niceOf is the priority as setpriority takes it; the system call returns 20 minus it.
func niceOf(pid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	return 20 - n, err
}

// victimScheduling changes the victim for good, and asks for all processes of the user in ways that must fail.
func victimScheduling() []probe {
	change := func(name, text string, do func(pid int) error) probe {
		return onVictim(ClassScheduling, name, text, func(_ *prober, pid int, _ place) error { return do(pid) })
	}
	return []probe{
		change("nice-lower", "lowering the priority of another process", func(pid int) error {
			nice, err := niceOf(pid)
			if err != nil {
				return err
			}
			return unix.Setpriority(unix.PRIO_PROCESS, pid, min(nice+1, 19))
		}),
		change("limit-lower", "lowering a limit of another process", func(pid int) error {
			var l unix.Rlimit
			if err := unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, nil, &l); err != nil {
				return err
			}
			return unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: l.Cur / 2, Max: l.Max}, nil)
		}),
		change("ioprio-lower", "lowering the priority for disks of another process", func(pid int) error {
			_, err := call(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(pid), ioprioLowest)
			return err
		}),
		{Effect: Effect{"user-setpriority", ClassScheduling, "setting the priority of all processes of the user"}, try: userPriority},
		// A class that does not exist is looked at first, so that EINVAL is the kernel's word and no filter's.
		{Effect: Effect{"user-ioprio", ClassScheduling, "setting the priority for disks of all processes of the user"}, try: func(p *prober, _ place) outcome {
			_, err := call(unix.SYS_IOPRIO_SET, ioprioUser, uintptr(p.own.UID), 7<<13)
			return reached(err, unix.EINVAL)
		}},
	}
}

// userPriority asks for a higher priority, which is refused to every process, with EACCES, unless something refuses the call before.
func userPriority(p *prober, _ place) outcome {
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NICE, nil, &l); err != nil {
		return result(err)
	}
	effective, _, _, err := capabilities()
	if err != nil {
		return result(err)
	}
	if l.Cur > 0 || effective&(1<<unix.CAP_SYS_NICE) != 0 {
		return skip("it would change all processes of the user")
	}
	return reached(unix.Setpriority(unix.PRIO_USER, int(p.own.UID), -20), unix.EACCES)
}
