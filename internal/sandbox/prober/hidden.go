package prober

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hiddenList collects probes of what lies below a hidden path.
type hiddenList []probe

func (l *hiddenList) add(class Class, name, text string, needs need, do func(p *prober, at place) error) {
	*l = append(*l, probe{Effect: Effect{name, class, text}, needs: needs, try: func(p *prober, at place) outcome {
		return result(do(p, at))
	}})
}

// onFile is for what changes a file.
func (l *hiddenList) onFile(class Class, name, text string, do func(path string) error) {
	l.add(class, name, text, needHidden, func(_ *prober, at place) error { return do(at.hidden + ".file") })
}

// onSecret is for what does not: they share one file.
func (l *hiddenList) onSecret(class Class, name, text string, do func(path string) error) {
	l.add(class, name, text, 0, func(p *prober, _ place) error { return do(p.dir + "/hidden/" + secretName) })
}

// hiddenProbes reach for what lies below a hidden path.
func hiddenProbes() []probe {
	return slices.Concat(hiddenReads(), hiddenChanges(), hiddenTraces())
}

// hiddenReads get at the content.
func hiddenReads() (list hiddenList) {
	secret := func(path string) error { return reads(path, []byte(content)) }

	list.onSecret(ClassHidden, "hidden-read", "reading a hidden file", secret)
	list.onSecret(ClassHidden, "hidden-read-by-root", "reading a hidden file through /proc/self/root", func(path string) error {
		return secret("/proc/self/root" + path)
	})
	list.add(ClassHidden, "hidden-read-by-cwd", "reading a hidden file through /proc/self/cwd", 0, func(*prober, place) error {
		return secret("/proc/self/cwd/../hidden/" + secretName)
	})
	list.add(ClassHidden, "hidden-read-by-link", "reading a hidden file through a link", 0, func(p *prober, at place) error {
		if err := unix.Symlinkat(p.dir+"/hidden/"+secretName, unix.AT_FDCWD, at.temp+".link"); err != nil {
			return err
		}
		return secret(at.temp + ".link")
	})
	list.onSecret(ClassHidden, "hidden-reopen", "reading a hidden file through a descriptor of its path", func(path string) error {
		return withFile(path, unix.O_PATH, func(fd int) error { return secret(procFD(fd)) })
	})
	list.onSecret(ClassHidden, "hidden-handle", "reading a hidden file by its handle", func(path string) error {
		return byHandle(path, secret)
	})
	list.add(ClassHidden, "hidden-link", "linking a hidden file to where it can be read", needHidden, func(_ *prober, at place) error {
		if err := unix.Linkat(unix.AT_FDCWD, at.hidden+".file", unix.AT_FDCWD, at.temp+".new", 0); err != nil {
			return err
		}
		return secret(at.temp + ".new")
	})
	list.add(ClassHidden, "hidden-rename", "moving a hidden file to where it can be read", needHidden, func(_ *prober, at place) error {
		if err := unix.Renameat2(unix.AT_FDCWD, at.hidden+".file", unix.AT_FDCWD, at.temp+".new", 0); err != nil {
			return err
		}
		return secret(at.temp + ".new")
	})
	list.add(ClassHidden, "hidden-execute", "executing a hidden file", needProgram, func(_ *prober, at place) error {
		return executesHidden(at.hidden + ".program")
	})
	return list
}

// hiddenChanges change files.
func hiddenChanges() (list hiddenList) {
	list.onFile(ClassHidden, "hidden-write", "writing to a hidden file", func(path string) error {
		return withFile(path, unix.O_WRONLY, writeByte)
	})
	list.onFile(ClassTruncate, "hidden-truncate", "truncating a hidden file", func(path string) error {
		return unix.Truncate(path, 1)
	})
	list.onFile(ClassHidden, "hidden-create", "making a file in a hidden directory", func(path string) error {
		return opens(path+".new", unix.O_WRONLY|unix.O_CREAT)
	})
	list.onFile(ClassHidden, "hidden-unlink", "removing a hidden file", func(path string) error {
		return unix.Unlinkat(unix.AT_FDCWD, path, 0)
	})
	list.onFile(ClassMetadata, "hidden-chmod", "chmod of a hidden file", func(path string) error {
		return unix.Fchmodat(unix.AT_FDCWD, path, 0o600, 0)
	})
	list.onFile(ClassTimestamps, "hidden-utimes", "setting the times of a hidden file", func(path string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}, 0)
	})
	return list
}

// hiddenTraces show that something is there.
func hiddenTraces() (list hiddenList) {
	list.add(ClassHiddenNames, "hidden-names", "listing a hidden directory", 0, func(p *prober, _ place) error {
		return listsSecret(p.dir + "/hidden")
	})
	list.add(ClassHiddenNames, "hidden-names-by-root", "listing a hidden directory through /proc/self/root", 0, func(p *prober, _ place) error {
		return listsSecret("/proc/self/root" + p.dir + "/hidden")
	})
	list.onSecret(ClassHiddenSockets, "hidden-stat", "reading the metadata of a hidden file", func(path string) error {
		return hasSize(path)
	})
	list.onSecret(ClassHiddenSockets, "hidden-getxattr", "reading the attributes of a hidden file", func(path string) error {
		_, err := unix.Llistxattr(path, make([]byte, 256))
		return err
	})
	list.add(ClassHiddenSockets, "hidden-connect", "connecting to a hidden socket", 0, func(p *prober, _ place) error {
		return p.within("hidden", func() error { return connects(unix.SOCK_STREAM, "stream") })
	})
	list.add(ClassHiddenSockets, "hidden-send", "sending to a hidden socket", 0, func(p *prober, _ place) error {
		return p.within("hidden", func() error { return connects(unix.SOCK_DGRAM, "datagram") })
	})
	return list
}

// secretName is a name in the hidden directory.
const secretName = "secret-name"

func listsSecret(dir string) error {
	list, err := names(dir)
	if err == nil && !slices.Contains(list, secretName) {
		err = unix.ENOENT
	}
	return err
}

// hasSize checks that the file is the secret one, and not what covers it.
func hasSize(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	if st.Size != int64(len(content)) {
		return unix.ENODATA
	}
	return nil
}

func connects(kind int, name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A full backlog is an answer of the socket, too.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil && err != unix.EAGAIN {
		return err
	}
	return nil
}

// byHandle opens a file by its handle, through the directory that the prober is in.
func byHandle(path string, f func(path string) error) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return err
	}
	return withFile(path[:strings.LastIndexByte(path, '/')], unix.O_RDONLY|unix.O_DIRECTORY, func(dir int) error {
		fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return f(procFD(fd))
	})
}

func executesHidden(path string) error {
	pid, err := forkExec(path, "program")
	if err == nil {
		reap(pid)
	}
	return err
}
