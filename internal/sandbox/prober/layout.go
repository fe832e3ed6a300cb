package prober

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// layOut makes the files and sockets of the scene.
func (s *Scene) layOut() error {
	for _, name := range []string{"out", "ws", "tmp", "hidden"} {
		if err := s.makeDir(s.dir + "/" + name); err != nil {
			return err
		}
	}
	for _, p := range probes() {
		if err := s.provide(p); err != nil {
			return err
		}
	}
	if err := s.makeFile(s.Hidden()+"/"+secretName, content, 0o644); err != nil {
		return err
	}
	return s.listen()
}

// provide makes what one probe needs.
func (s *Scene) provide(p probe) error {
	out, ws, hidden := s.Outside()+"/"+p.Name, s.Root()+"/"+p.Name, s.Hidden()+"/"+p.Name
	for _, step := range []struct {
		needs need
		do    func() error
	}{
		{needFile, func() error { return s.makeFile(out+".file", content, 0o644) }},
		{needDir, func() error { return s.makeDir(out + ".dir") }},
		{needAttr, func() error { return setAttr(out + ".file") }},
		{needWs, func() error { return s.makeFile(ws+".file", content, 0o644) }},
		{needWsDir, func() error { return s.makeDir(ws + ".dir") }},
		{needLink, func() error { return os.Symlink(out+".file", ws+".link") }},
		{needHidden, func() error { return s.makeFile(hidden+".file", content, 0o644) }},
		{needProgram, func() error { return s.makeFile(hidden+".program", "#!/bin/sh\n", 0o755) }},
	} {
		if p.needs&step.needs == 0 {
			continue
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scene) makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return s.give(path, 0o700)
}

func (s *Scene) makeFile(path, text string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return s.give(path, mode)
}

// give makes the command's user the owner. The mode is set whatever the daemon's mask is.
func (s *Scene) give(path string, mode os.FileMode) error {
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return os.Chown(path, int(s.own.UID), int(s.own.GID))
}

// setAttr sets the attribute that a probe removes. A file system without attributes has none to lose.
func setAttr(path string) error {
	err := unix.Setxattr(path, presentAttr, []byte("x"), 0)
	if err == unix.ENOTSUP || err == unix.EPERM {
		err = nil
	}
	return err
}

// listen opens sockets in the hidden directory and abstract ones. Nobody need accept: the kernel answers.
func (s *Scene) listen() error {
	dir, err := unix.Open(s.Hidden(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	// By the descriptor: a whole path can be too long for an address.
	hidden := "/proc/self/fd/" + strconv.Itoa(dir)
	for _, l := range []struct {
		kind int
		name string
	}{
		{unix.SOCK_STREAM, hidden + "/stream"},
		{unix.SOCK_DGRAM, hidden + "/datagram"},
		{unix.SOCK_STREAM, "@" + s.nonce + "s"},
		{unix.SOCK_DGRAM, "@" + s.nonce + "d"},
	} {
		fd, err := unix.Socket(unix.AF_UNIX, l.kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, fd)
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: l.name}); err != nil {
			return err
		}
		if l.name[0] != '@' {
			if err := s.give(l.name, 0o666); err != nil {
				return err
			}
		}
		if l.kind == unix.SOCK_STREAM {
			if err := unix.Listen(fd, 8); err != nil {
				return err
			}
		}
	}
	return nil
}

// aboveOwn is a number that no program expects a descriptor of its own to have.
const aboveOwn = 100

// leak opens a file for appending such that children inherit it.
func (s *Scene) leak() error {
	fd, err := unix.Open(s.Outside()+"/inherited-write.file", unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.inherited, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD, aboveOwn)
	return err
}
