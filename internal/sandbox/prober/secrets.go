package prober

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// secretProbes look into processes outside.
func secretProbes() []probe {
	var list []probe
	for _, f := range []struct {
		name, text string
		do         func(dir string) error
	}{
		{"environ", "reading the environment of", readsSomething("/environ")},
		{"mem", "opening the memory of", func(dir string) error { return opens(dir+"/mem", unix.O_RDONLY) }},
		{"mem-write", "opening the memory for writing of", func(dir string) error { return opens(dir+"/mem", unix.O_RDWR) }},
		{"maps", "reading the memory map of", readsSomething("/maps")},
		{"auxv", "reading the auxiliary vector of", readsSomething("/auxv")},
		{"fd-link", "reading what is open, of", func(dir string) error {
			_, err := readlink(dir + "/fd/0")
			return err
		}},
		{"fd", "opening a descriptor of", func(dir string) error { return opens(dir+"/fd/0", unix.O_PATH) }},
		{"root", "going through the root of", func(dir string) error { return opens(dir+"/root/", unix.O_PATH|unix.O_DIRECTORY) }},
		{"cwd", "going through the working directory of", func(dir string) error {
			return opens(dir+"/cwd/", unix.O_PATH|unix.O_DIRECTORY)
		}},
		{"exe", "opening the program of", func(dir string) error { return opens(dir+"/exe", unix.O_PATH) }},
		{"namespace", "opening a namespace of", func(dir string) error { return opens(dir+"/ns/mnt", unix.O_RDONLY) }},
		{"thread-environ", "reading the environment, by a thread, of", func(dir string) error {
			pid, err := strconv.Atoi(dir[len("/proc/"):])
			if err != nil {
				return unix.EINVAL
			}
			return readsSomething("/task/" + strconv.Itoa(threadOf(pid)) + "/environ")(dir)
		}},
	} {
		list = append(list, inProc(ClassSecrets, f.name, f.text, f.do)...)
	}
	for _, f := range []string{"oom_score_adj", "timerslack_ns", "comm", "coredump_filter", "clear_refs", "autogroup", "sched"} {
		// Opened and not written.
		list = append(list, inProc(ClassScheduling, "proc-"+dashed(f), "opening for writing /proc/…/"+f+" of", func(dir string) error {
			return opens(dir+"/"+f, unix.O_WRONLY)
		})...)
	}
	list = append(list, onTargets(ClassSecrets, "vm-read", "process_vm_readv of", vmRead)...)
	list = append(list, onTargets(ClassSecrets, "getfd", "taking a descriptor from", takeDescriptor)...)
	list = append(list, onTargets(ClassSecrets, "kcmp", "comparing kernel objects with", func(_ *prober, pid int) error {
		const kcmpVM = 1
		_, err := call(unix.SYS_KCMP, uintptr(unix.Getpid()), uintptr(pid), kcmpVM, 0, 0)
		return err
	})...)
	list = append(list, traceProbes()...)
	return append(list, commandLine(), descriptorNumbers())
}

func dashed(s string) string {
	return string(bytes.ReplaceAll([]byte(s), []byte("_"), []byte("-")))
}

func readsSomething(file string) func(dir string) error {
	return func(dir string) error {
		b, err := readSome(dir + file)
		if err == nil && len(b) == 0 {
			err = unix.ENODATA
		}
		return err
	}
}

// inProc makes a probe for each target, on its directory in /proc.
func inProc(class Class, name, text string, do func(dir string) error) (list []probe) {
	for _, t := range targets {
		list = append(list, probe{Effect: Effect{t.name + "-" + name, class, text + " " + t.text}, try: func(p *prober, _ place) outcome {
			who := t.of(p)
			if !p.inProc(who) {
				return skip(notVisible)
			}
			return result(do("/proc/" + strconv.Itoa(who.pid)))
		}})
	}
	return list
}

// vmRead reads from address 0, which is nowhere mapped: EFAULT comes after the permission.
func vmRead(_ *prober, pid int) error {
	var b [1]byte
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(1)
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: 0, Len: 1}}, 0)
	if err == unix.EFAULT {
		err = nil
	}
	return err
}

func takeDescriptor(_ *prober, pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 0, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// traceProbes become tracers, in a child, whose end lets the process go again. None of them stops it.
func traceProbes() (list []probe) {
	for _, t := range targets {
		effect := Effect{t.name + "-ptrace", ClassSecrets, "tracing " + t.text}
		list = append(list, probe{Effect: effect, call: func(p *prober, _ place) (rawCall, error) {
			who := t.of(p)
			if !p.visible(who) {
				return rawCall{}, errNotVisible
			}
			return raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(who.pid), 0, 0)
		}})
	}
	return list
}

// commandLine reads that of the victim, which holds a mark.
func commandLine() probe {
	effect := Effect{"victim-cmdline", ClassCommandLines, "reading the command line of another process"}
	return probe{Effect: effect, try: func(p *prober, _ place) outcome {
		b, err := readSome("/proc/" + strconv.Itoa(p.victim.pid) + "/cmdline")
		if err == nil && !bytes.Contains(b, []byte(p.mark)) {
			return skip(notVisible)
		}
		return result(err)
	}}
}

// descriptorNumbers lists them, which is open, as command lines are, to every process of the same user; what they are of is not.
func descriptorNumbers() probe {
	effect := Effect{"victim-fd-numbers", ClassCommandLines, "listing the numbers of another process's descriptors"}
	return probe{Effect: effect, try: func(p *prober, _ place) outcome {
		if !p.inProc(p.victim) {
			return skip(notVisible)
		}
		_, err := names("/proc/" + strconv.Itoa(p.victim.pid) + "/fd")
		return result(err)
	}}
}

// socketProbes reach abstract sockets, which belong to no file.
func socketProbes() []probe {
	abstract := func(kind int, suffix string) func(*prober, place) outcome {
		return func(p *prober, _ place) outcome { return result(connects(kind, "@"+p.abstract+suffix)) }
	}
	return []probe{
		{Effect: Effect{"abstract-connect", ClassAbstractSockets, "connecting to an abstract unix socket outside"}, try: abstract(unix.SOCK_STREAM, "s")},
		{Effect: Effect{"abstract-send", ClassAbstractSockets, "sending to an abstract unix socket outside"}, try: abstract(unix.SOCK_DGRAM, "d")},
	}
}
