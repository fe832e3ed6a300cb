package prober

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// legacyProbes use the system calls that only older architectures have, and the numbers of foreign ones: a filter has
// to know all of them.
func legacyProbes() []probe {
	path1 := func(trap uintptr, more ...uintptr) func(*prober, string) error {
		return func(_ *prober, path string) error {
			_, err := call(trap, append([]uintptr{cstring(path)}, more...)...)
			return err
		}
	}
	beside := func(trap uintptr, more ...uintptr) func(*prober, string) error {
		return func(p *prober, path string) error { return path1(trap, more...)(p, path[:len(path)-len("file")]+"new") }
	}
	both := func(trap uintptr) func(*prober, string) error {
		return func(_ *prober, path string) error {
			_, err := call(trap, cstring(path), cstring(path[:len(path)-len("file")]+"new"))
			return err
		}
	}
	own := func(trap uintptr) func(*prober, string) error {
		return func(p *prober, path string) error {
			return path1(trap, uintptr(p.own.UID), uintptr(p.own.GID))(p, path)
		}
	}
	const x32 = 0x40000000
	var list []probe
	for _, part := range [][]probe{
		onPaths(ClassWrite, []pathOp{
			{"legacy-open", "writing to a file outside that is opened by open", 0, legacyOpen, false},
			{"legacy-create", "making a file outside by creat", 0, beside(unix.SYS_CREAT, 0o600), false},
			{"legacy-mkdir", "making a directory outside by mkdir", 0, beside(unix.SYS_MKDIR, 0o700), false},
			{"legacy-mknod", "making a FIFO outside by mknod", 0, beside(unix.SYS_MKNOD, unix.S_IFIFO|0o600, 0), false},
			{"legacy-rename", "renaming a file outside by rename", 0, both(unix.SYS_RENAME), false},
			{"legacy-link", "linking a file outside by link", 0, both(unix.SYS_LINK), false},
			{"legacy-symlink", "making a symbolic link outside by symlink", 0, both(unix.SYS_SYMLINK), false},
			{"legacy-unlink", "removing a file outside by unlink", 0, path1(unix.SYS_UNLINK), false},
			{"legacy-rmdir", "removing a directory outside by rmdir", needDir, func(p *prober, path string) error {
				return path1(unix.SYS_RMDIR)(p, dirBeside(path))
			}, false},
		}),
		onPaths(ClassTruncate, []pathOp{
			{"legacy-truncate", "truncating a file outside by creat", 0, path1(unix.SYS_CREAT, 0o600), false},
			{"x32-truncate", "truncating a file outside by its x32 number", 0, path1(x32|unix.SYS_TRUNCATE, 1), false},
		}),
		onPaths(ClassMetadata, []pathOp{
			{"legacy-chmod", "chmod of a file outside by chmod", 0, path1(unix.SYS_CHMOD, 0o600), false},
			{"legacy-chown", "chown of a file outside by chown", 0, own(unix.SYS_CHOWN), false},
			{"legacy-lchown", "chown of a file outside by lchown", 0, own(unix.SYS_LCHOWN), false},
			{"x32-chmod", "chmod of a file outside by its x32 number", 0, path1(x32|unix.SYS_CHMOD, 0o600), false},
			{"i386-chmod", "chmod of a file outside by a 32-bit program", 0, chmod32, false},
		}),
		onPaths(ClassTimestamps, []pathOp{
			{"legacy-utime", "setting the times of a file outside by utime", 0, setTimes(unix.SYS_UTIME), false},
			{"legacy-utimes", "setting the times of a file outside by utimes", 0, setTimes(unix.SYS_UTIMES), false},
			{"legacy-futimesat", "setting the times of a file outside by futimesat", 0, func(_ *prober, path string) error {
				_, err := call(unix.SYS_FUTIMESAT, cwd, cstring(path), address(&[2]unix.Timeval{{Sec: 1e9}, {Sec: 1e9}}))
				return err
			}, false},
		}),
	} {
		list = append(list, part...)
	}
	return list
}

func legacyOpen(_ *prober, path string) error {
	fd, err := call(unix.SYS_OPEN, cstring(path), unix.O_WRONLY|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(int(fd))
	return writeByte(int(fd))
}

// setTimes works for a struct utimbuf and for a pair of struct timeval.
func setTimes(trap uintptr) func(*prober, string) error {
	return func(_ *prober, path string) error {
		_, err := call(trap, cstring(path), address(&[4]int64{1e9, 0, 1e9, 0}))
		return err
	}
}

// chmod32 runs a program for the 32-bit x86 that does the chmod and exits with its errno.
func chmod32(_ *prober, path string) error {
	fd, err := unix.MemfdCreate("bashd-prober", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	err = writeAll(fd, elf32(path))
	// By a descriptor for reading: a file that somebody has open for writing cannot be executed.
	program := -1
	if err == nil {
		program, err = open(procFD(fd), unix.O_RDONLY)
	}
	unix.Close(fd)
	if err != nil {
		return err
	}
	defer unix.Close(program)
	pid, err := forkExec(procFD(program), "bashd-prober-32")
	if err != nil {
		return err
	}
	switch status := reap(pid); {
	case !status.Exited():
		return unix.ENOSYS // killed by a call that the kernel or the filter does not know
	case status.ExitStatus() != 0:
		return unix.Errno(status.ExitStatus())
	}
	return nil
}

// elf32 is that program: one segment, which holds the headers, the code, and the path.
func elf32(path string) []byte {
	const base, headers = 0x08048000, 52 + 32
	code := []byte{
		0xb8, 15, 0, 0, 0, // mov eax, 15 (chmod)
		0xbb, 0, 0, 0, 0, // mov ebx, path
		0xb9, 0x80, 0x01, 0, 0, // mov ecx, 0600
		0xcd, 0x80, // int 0x80
		0xf7, 0xd8, // neg eax
		0x89, 0xc3, // mov ebx, eax
		0xb8, 1, 0, 0, 0, // mov eax, 1 (exit)
		0xcd, 0x80, // int 0x80
		0xf4, // hlt, which kills it where not even exit is known
	}
	le := binary.LittleEndian
	le.PutUint32(code[6:], base+headers+uint32(len(code)))
	size := uint32(headers + len(code) + len(path) + 1)
	b := append([]byte{0x7f, 'E', 'L', 'F', 1, 1, 1}, make([]byte, 9)...)
	b = le.AppendUint16(b, 2) // executable
	b = le.AppendUint16(b, 3) // 386
	for _, v := range []uint32{1, base + headers, 52, 0, 0} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint16{52, 32, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	const load, readExecute = 1, 5
	for _, v := range []uint32{load, 0, base, base, size, size, readExecute, 0x1000} {
		b = le.AppendUint32(b, v)
	}
	return append(append(append(b, code...), path...), 0)
}
