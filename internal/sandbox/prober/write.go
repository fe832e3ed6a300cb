package prober

import (
	"golang.org/x/sys/unix"
)

// writeProbes change the content of files outside.
func writeProbes() []probe {
	return onPaths(ClassWrite, []pathOp{
		{"open-write", "writing to a file outside", 0, openAndWrite(unix.O_WRONLY), true},
		{"open-rdwr", "writing to a file outside, open for reading too", 0, openAndWrite(unix.O_RDWR), false},
		{"open-append", "appending to a file outside", 0, openAndWrite(unix.O_WRONLY | unix.O_APPEND), false},
		{"open-direct", "opening a file outside with O_DIRECT and O_SYNC", 0, openAndSync, false},
		{"reopen-read", "opening a file outside for writing, through a descriptor for reading", 0, reopen(unix.O_RDONLY), true},
		{"reopen-path", "opening a file outside for writing, through a descriptor of its path", 0, reopen(unix.O_PATH), false},
		{"fallocate", "allocating room for a file outside", 0, onWritable(func(fd int) error {
			return unix.Fallocate(fd, 0, 0, 8192)
		}), false},
		{"punch-hole", "punching a hole into a file outside", 0, onWritable(func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8)
		}), false},
		{"copy-file-range", "copying into a file outside by the kernel", 0, fromSelf(func(from, to int) error {
			start, end := int64(0), int64(64)
			_, err := unix.CopyFileRange(from, &start, to, &end, 8, 0)
			return err
		}), false},
		{"sendfile", "sending into a file outside", 0, fromSelf(func(from, to int) error {
			_, err := unix.Sendfile(to, from, nil, 8)
			return err
		}), false},
		{"splice", "splicing into a file outside", 0, onWritable(spliceInto), false},
		{"pwritev2", "writing to a file outside by vectors", 0, onWritable(func(fd int) error {
			_, err := unix.Pwritev2(fd, [][]byte{[]byte("xy")}, 0, 0)
			return err
		}), false},
		{"mmap-shared", "changing a file outside in memory", 0, mapShared(unix.O_RDWR), true},
		{"mmap-read-only", "mapping a file outside for writing, through a descriptor for reading", 0, mapShared(unix.O_RDONLY), false},
	})
}

// truncateProbes shorten files outside.
func truncateProbes() []probe {
	return onPaths(ClassTruncate, []pathOp{
		{"truncate", "truncating a file outside by its path", 0, func(_ *prober, path string) error {
			return unix.Truncate(path, 1)
		}, true},
		{"ftruncate", "truncating a file outside that is open", 0, onWritable(func(fd int) error {
			return unix.Ftruncate(fd, 1)
		}), false},
		{"ftruncate-read-only", "truncating a file outside that is open for reading", 0, func(_ *prober, path string) error {
			return withFile(path, unix.O_RDONLY, func(fd int) error { return unix.Ftruncate(fd, 1) })
		}, false},
		{"open-truncate", "truncating a file outside by opening it for writing", 0, func(_ *prober, path string) error {
			return opens(path, unix.O_WRONLY|unix.O_TRUNC)
		}, true},
		{"open-truncate-read", "truncating a file outside by opening it for reading", 0, func(_ *prober, path string) error {
			return opens(path, unix.O_RDONLY|unix.O_TRUNC)
		}, false},
		{"open-create-truncate", "truncating a file outside as creat does", 0, func(_ *prober, path string) error {
			return opens(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
		}, false},
	})
}

func openAndWrite(flags int) func(*prober, string) error {
	return func(_ *prober, path string) error { return withFile(path, flags, writeByte) }
}

func onWritable(f func(fd int) error) func(*prober, string) error {
	return func(_ *prober, path string) error { return withFile(path, unix.O_WRONLY, f) }
}

// openAndSync writes nothing: what O_DIRECT may write depends on the file system.
func openAndSync(_ *prober, path string) error {
	err := opens(path, unix.O_WRONLY|unix.O_DIRECT|unix.O_SYNC)
	if err == unix.EINVAL {
		err = opens(path, unix.O_WRONLY|unix.O_SYNC) // not every file system knows O_DIRECT
	}
	return err
}

func reopen(flags int) func(*prober, string) error {
	return func(_ *prober, path string) error {
		return withFile(path, flags, func(fd int) error { return withFile(procFD(fd), unix.O_WRONLY, writeByte) })
	}
}

// fromSelf is for copies, of a part of the file to another part: not every file system copies from others.
func fromSelf(f func(from, to int) error) func(*prober, string) error {
	return func(_ *prober, path string) error {
		return withFile(path, unix.O_WRONLY, func(to int) error {
			return withFile(path, unix.O_RDONLY, func(from int) error { return f(from, to) })
		})
	}
}

func spliceInto(to int) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if err := writeByte(pipe[1]); err != nil {
		return err
	}
	_, err := unix.Splice(pipe[0], nil, to, nil, 1, 0)
	return err
}

func mapShared(flags int) func(*prober, string) error {
	return func(_ *prober, path string) error {
		return withFile(path, flags, func(fd int) error {
			b, err := unix.Mmap(fd, 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			b[0] = 'x'
			err = unix.Msync(b, unix.MS_ASYNC)
			_ = unix.Munmap(b)
			return err
		})
	}
}

// nameProbes make, move, and remove names outside.
func nameProbes() []probe {
	var list []probe
	add := func(name, text string, needs need, try func(p *prober, at place) error) {
		list = append(list, probe{Effect: Effect{name, ClassWrite, text}, needs: needs, try: func(p *prober, at place) outcome {
			return result(try(p, at))
		}})
	}
	make := func(name, text string, f func(path string) error) {
		add(name, text, 0, func(_ *prober, at place) error { return f(at.out + ".new") })
	}
	make("create", "making a file outside", func(path string) error { return opens(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) })
	make("create-read", "making a file outside, open for reading", func(path string) error {
		return opens(path, unix.O_RDONLY|unix.O_CREAT)
	})
	make("mkdir", "making a directory outside", func(path string) error { return unix.Mkdirat(unix.AT_FDCWD, path, 0o700) })
	make("mkfifo", "making a FIFO outside", mknod(unix.S_IFIFO, 0))
	make("mknod-file", "making a file outside by mknod", mknod(unix.S_IFREG, 0))
	make("mknod-socket", "making a socket outside by mknod", mknod(unix.S_IFSOCK, 0))
	make("mknod-whiteout", "making a whiteout outside", mknod(unix.S_IFCHR, 0))
	make("symlink", "making a symbolic link outside", func(path string) error { return unix.Symlinkat("x", unix.AT_FDCWD, path) })
	add("create-by-link", "making a file outside through a dangling link", 0, func(_ *prober, at place) error {
		if err := unix.Symlinkat(at.out+".new", unix.AT_FDCWD, at.temp); err != nil {
			return err
		}
		return opens(at.temp, unix.O_WRONLY|unix.O_CREAT)
	})
	add("create-by-cwd", "making a file outside from the directory itself", 0, func(p *prober, at place) error {
		return p.within("out", func() error { return opens(at.name+".new", unix.O_WRONLY|unix.O_CREAT) })
	})
	add("mkdir-by-fd", "making a directory outside by a descriptor", 0, func(p *prober, at place) error {
		return withFile(p.dir+"/out", unix.O_PATH|unix.O_DIRECTORY, func(fd int) error {
			return unix.Mkdirat(fd, at.name+".new", 0o700)
		})
	})
	add("tmpfile", "making a file without a name outside", 0, func(p *prober, at place) error {
		return withFile(p.dir+"/out", unix.O_WRONLY|unix.O_TMPFILE, func(fd int) error {
			return unix.Linkat(unix.AT_FDCWD, procFD(fd), unix.AT_FDCWD, at.out+".new", unix.AT_SYMLINK_FOLLOW)
		})
	})
	add("bind-socket", "making a unix socket outside", 0, func(p *prober, at place) error {
		return p.within("out", func() error { return bindSocket(at.name + ".new") }) // the whole path can be too long for an address
	})
	add("unlink", "removing a file outside", needFile, func(_ *prober, at place) error {
		return unix.Unlinkat(unix.AT_FDCWD, at.file, 0)
	})
	add("rmdir", "removing a directory outside", needDir, func(_ *prober, at place) error {
		return unix.Unlinkat(unix.AT_FDCWD, at.out+".dir", unix.AT_REMOVEDIR)
	})
	return append(list, moveProbes()...)
}

// moveProbes move and link between places outside, the workspace, and the private temporary directory.
func moveProbes() []probe {
	const noFlags = 0
	var list []probe
	move := func(name, text string, needs need, from, to func(at place) string, flags uint) {
		list = append(list, probe{Effect: Effect{name, ClassWrite, text}, needs: needs, try: func(_ *prober, at place) outcome {
			return result(unix.Renameat2(unix.AT_FDCWD, from(at), unix.AT_FDCWD, to(at), flags))
		}})
	}
	link := func(name, text string, needs need, from, to func(at place) string) {
		list = append(list, probe{Effect: Effect{name, ClassWrite, text}, needs: needs, try: func(_ *prober, at place) outcome {
			return result(unix.Linkat(unix.AT_FDCWD, from(at), unix.AT_FDCWD, to(at), 0))
		}})
	}
	outFile := func(at place) string { return at.file }
	outNew := func(at place) string { return at.out + ".new" }
	outDir := func(at place) string { return at.out + ".dir" }
	wsFile := func(at place) string { return at.ws + ".file" }
	wsNew := func(at place) string { return at.ws + ".new" }
	tempNew := func(at place) string { return at.temp + ".new" }

	move("rename-beside", "renaming a file outside", needFile, outFile, outNew, noFlags)
	move("rename-out", "moving a file from outside into the workspace", needFile, outFile, wsNew, noFlags)
	move("rename-to-temp", "moving a file from outside into the temporary directory", needFile, outFile, tempNew, noFlags)
	move("rename-in", "moving a file from the workspace outside", needWs, wsFile, outNew, noFlags)
	move("rename-over", "replacing a file outside by one of the workspace", needFile|needWs, wsFile, outFile, noFlags)
	move("rename-directory", "moving a directory from outside into the workspace", needDir, outDir, wsNew, noFlags)
	move("rename-exchange", "exchanging a file outside for one of the workspace", needFile|needWs, wsFile, outFile, unix.RENAME_EXCHANGE)
	move("rename-exchange-beside", "exchanging two names outside", needFile|needDir, outDir, outFile, unix.RENAME_EXCHANGE)
	move("rename-noreplace", "renaming a file outside without replacing one", needFile, outFile, outNew, unix.RENAME_NOREPLACE)
	move("rename-whiteout", "leaving a whiteout where a file outside was", needFile, outFile, outNew, unix.RENAME_WHITEOUT)
	link("link-beside", "linking a file outside", needFile, outFile, outNew)
	link("link-out", "linking a file from outside into the workspace", needFile, outFile, wsNew)
	link("link-to-temp", "linking a file from outside into the temporary directory", needFile, outFile, tempNew)
	link("link-in", "linking a file of the workspace outside", needWs, wsFile, outNew)
	return list
}

func mknod(kind uint32, dev int) func(string) error {
	return func(path string) error { return unix.Mknodat(unix.AT_FDCWD, path, kind|0o600, dev) }
}

// within runs f with a directory of the scene as the working directory.
func (p *prober) within(dir string, f func() error) error {
	if err := unix.Chdir(p.dir + "/" + dir); err != nil {
		return err
	}
	err := f()
	if back := unix.Chdir(p.dir + "/ws"); back != nil {
		return back
	}
	return err
}

func bindSocket(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}
