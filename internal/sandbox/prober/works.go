package prober

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"
)

// worksProbes are what a command needs. A mode in which one of them fails is of no use.
func worksProbes() []probe {
	list := filesWork("temp", "the temporary directory", 0, func(at place) string {
		return at.temp
	}, func(*prober) string {
		return ""
	})
	list = append(list, filesWork("ws", "the workspace", needTrace, func(at place) string { return at.ws }, needsWritable)...)
	for _, m := range []struct {
		name, text string
		do         func(path string) error
	}{
		{"ws-works-chmod", "chmod in the workspace", func(path string) error { return unix.Fchmodat(unix.AT_FDCWD, path, 0o700, 0) }},
		{"ws-works-utimes", "setting times in the workspace", func(path string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}, 0)
		}},
	} {
		list = append(list, probe{Effect: Effect{m.name, ClassWorks, m.text}, needs: needWs | needTrace, try: func(p *prober, at place) outcome {
			if why := needsWritable(p); why != "" {
				return skip(why)
			}
			return result(m.do(at.ws + ".file"))
		}})
	}
	return slices.Concat(list, devicesWork(), systemWorks())
}

func needsWritable(p *prober) string {
	if !p.workspace {
		return "the workspace is read-only in this mode"
	}
	return ""
}

// filesWork tries everything that one does with files. Each leaves a trace.
func filesWork(prefix, where string, needs need, in func(place) string, unless func(*prober) string) (list []probe) {
	for _, w := range []struct {
		name, text string
		do         func(at string) error
	}{
		{"write", "writing and reading a file in ", writeAndRead},
		{"append", "appending to a file in ", func(at string) error { return withNew(at, unix.O_APPEND, writeByte) }},
		{"truncate", "truncating a file in ", func(at string) error {
			return withNew(at, 0, func(int) error { return unix.Truncate(at+".f", 100) })
		}},
		{"mmap", "mapping a file for writing in ", func(at string) error {
			return withNew(at, 0, func(fd int) error {
				if err := unix.Ftruncate(fd, 8); err != nil {
					return err
				}
				return mapShared(unix.O_RDWR)(nil, at+".f")
			})
		}},
		{"mkdir", "making a directory in ", func(at string) error { return unix.Mkdirat(unix.AT_FDCWD, at+".d", 0o700) }},
		{"rmdir", "removing a directory in ", func(at string) error {
			return withNew(at, 0, func(int) error {
				if err := unix.Mkdirat(unix.AT_FDCWD, at+".d", 0o700); err != nil {
					return err
				}
				return unix.Unlinkat(unix.AT_FDCWD, at+".d", unix.AT_REMOVEDIR)
			})
		}},
		{"unlink", "removing a file in ", func(at string) error {
			return withNew(at, 0, func(int) error {
				if err := opens(at+".g", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL); err != nil {
					return err
				}
				return unix.Unlinkat(unix.AT_FDCWD, at+".g", 0)
			})
		}},
		{"rename", "renaming across directories in ", renameAcross},
		{"link", "linking a file in ", func(at string) error {
			return withNew(at, 0, func(int) error { return unix.Linkat(unix.AT_FDCWD, at+".f", unix.AT_FDCWD, at+".g", 0) })
		}},
		{"symlink", "making a symbolic link in ", func(at string) error { return unix.Symlinkat("x", unix.AT_FDCWD, at+".l") }},
		{"mkfifo", "making a FIFO in ", func(at string) error { return mknod(unix.S_IFIFO, 0)(at + ".p") }},
	} {
		effect := Effect{prefix + "-works-" + w.name, ClassWorks, w.text + where}
		list = append(list, probe{Effect: effect, needs: needs, try: func(p *prober, at place) outcome {
			if why := unless(p); why != "" {
				return skip(why)
			}
			return result(w.do(in(at)))
		}})
	}
	return list
}

// withNew runs f on a new file with the suffix .f.
func withNew(at string, flags int, f func(fd int) error) error {
	return withFile(at+".f", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|flags, f)
}

func writeAndRead(at string) error {
	if err := withNew(at, 0, writeByte); err != nil {
		return err
	}
	return reads(at+".f", []byte("x"))
}

// reads checks that a file begins so.
func reads(path string, want []byte) error {
	b, err := readSome(path)
	if err == nil && !bytes.HasPrefix(b, want) {
		err = unix.ENODATA
	}
	return err
}

func renameAcross(at string) error {
	if err := unix.Mkdirat(unix.AT_FDCWD, at+".d", 0o700); err != nil {
		return err
	}
	return withNew(at, 0, func(int) error { return unix.Renameat2(unix.AT_FDCWD, at+".f", unix.AT_FDCWD, at+".d/f", 0) })
}

// devicesWork are the devices that every command gets.
func devicesWork() (list []probe) {
	for _, d := range []struct {
		name, text string
		flags      int
		use        func(fd int) error
	}{
		{"null", "writing to /dev/null", unix.O_WRONLY, writeByte},
		{"zero", "reading /dev/zero", unix.O_RDONLY, func(fd int) error {
			return readsByte(fd, func(b byte) bool { return b == 0 })
		}},
		{"full", "finding /dev/full full", unix.O_WRONLY, func(fd int) error {
			switch err := writeByte(fd); err {
			case unix.ENOSPC:
				return nil
			case nil:
				return unix.ENODATA
			default:
				return err
			}
		}},
		{"random", "opening /dev/random", unix.O_RDONLY, func(int) error { return nil }}, // reading may wait at the host's start
		{"urandom", "reading /dev/urandom", unix.O_RDONLY, func(fd int) error {
			return readsByte(fd, func(byte) bool { return true })
		}},
		{"tty", "opening /dev/tty", unix.O_RDWR, func(int) error { return nil }},
	} {
		list = append(list, probe{Effect: Effect{"works-dev-" + d.name, ClassWorks, d.text}, try: func(p *prober, _ place) outcome {
			if !slices.Contains(p.devices, d.name) {
				return skip("this host has no such device")
			}
			err := withFile("/dev/"+d.name, d.flags, d.use)
			if d.name == "tty" && err == unix.ENXIO {
				err = nil // there is none: what a command in the background is told
			}
			return result(err)
		}})
	}
	return list
}

func readsByte(fd int, good func(byte) bool) error {
	b, err := readFD(fd)
	if err == nil && (len(b) == 0 || !good(b[0])) {
		err = unix.ENODATA
	}
	return err
}

// work is something that must work.
type work struct {
	name, text string
	do         func(p *prober) error
}

// systemWorks is the rest of what programs rely on.
func systemWorks() (list []probe) {
	for _, w := range append(processesWork(), readingWorks()...) {
		list = append(list, probe{Effect: Effect{"works-" + w.name, ClassWorks, w.text}, try: func(p *prober, _ place) outcome {
			err := w.do(p)
			if err == errNotHere {
				return skip("this host has no such file")
			}
			return result(err)
		}})
	}
	effect := Effect{"works-read-outside", ClassWorks, "reading a file outside"}
	return append(list, probe{Effect: effect, needs: needFile, try: func(_ *prober, at place) outcome {
		var st unix.Stat_t
		if err := unix.Lstat(at.file, &st); err == unix.ENOENT {
			return skip(notVisible)
		}
		return result(reads(at.file, []byte(content)))
	}})
}

func processesWork() []work {
	return []work{
		{"clone", "making a process", func(*prober) error { return clone(0) }},
		{"exec", "executing a program", executes},
		{"signal-own", "signalling a process of its own", signalOwn},
		{"pipe", "a pipe", func(*prober) error { return pipeWorks() }},
		{"socketpair", "a pair of sockets", func(*prober) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				unix.Close(pair[0])
				unix.Close(pair[1])
			}
			return err
		}},
		{"lower-limit", "lowering a limit of its own", func(*prober) error {
			var l unix.Rlimit
			if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &l); err != nil {
				return err
			}
			return unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{Max: l.Max}, nil)
		}},
		{"affinity-own", "choosing its own processors", func(*prober) error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				return err
			}
			return unix.SchedSetaffinity(0, &set)
		}},
	}
}

func readingWorks() []work {
	return []work{
		{"proc-self", "reading /proc/self/status", func(*prober) error { return reads("/proc/self/status", []byte("Name:")) }},
		{"read-etc", "reading /etc/passwd", func(*prober) error { return ifThere(reads("/etc/passwd", nil)) }},
		{"list-root", "listing /", func(*prober) error {
			_, err := names("/")
			return err
		}},
		{"list-workspace", "listing the workspace", func(p *prober) error {
			_, err := names(p.dir + "/ws")
			return err
		}},
		{"lock", "locking a file of its own", func(p *prober) error {
			return withFile(p.dir+"/ws", unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
				return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
			})
		}},
	}
}

// errNotHere stands for what the host need not have; no call of the prober's returns it.
const errNotHere = unix.ENOTNAM

func ifThere(err error) error {
	if err == unix.ENOENT {
		return errNotHere
	}
	return err
}

func executes(*prober) error {
	const shell = "/bin/sh"
	pid, err := forkExec(shell, "sh", "-c", "exit 7")
	if err != nil {
		return ifThere(err)
	}
	if status := reap(pid); status.ExitStatus() != 7 {
		return unix.ENOEXEC
	}
	return nil
}

func signalOwn(*prober) error {
	pid, err := clonePausing()
	if err != nil {
		return err
	}
	err = unix.Kill(pid, unix.SIGKILL)
	if err != nil {
		return err // it ends with the prober
	}
	if status := reap(pid); status.Signal() != unix.SIGKILL {
		return unix.ESRCH
	}
	return nil
}

func pipeWorks() error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if err := writeByte(pipe[1]); err != nil {
		return err
	}
	return readsByte(pipe[0], func(b byte) bool { return b == 'x' })
}
