package prober

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Attribute ioctls on amd64 and arm64 that package unix does not name.
const (
	ioctlSetXFlags  = 0x401c5820 // FS_IOC_FSSETXATTR
	ioctlGetXFlags  = 0x801c581f // FS_IOC_FSGETXATTR
	ioctlSetVersion = 0x40087602 // FS_IOC_SETVERSION
	ioctlGetVersion = 0x80087601 // FS_IOC_GETVERSION

	flagNoDump  = 0x40 // FS_NODUMP_FL, which an owner may set, and which does nothing
	xflagNoDump = 0x80 // FS_XFLAG_NODUMP
)

const (
	attrName    = "user.bashd-prober"
	presentAttr = "user.bashd-present" // that of needAttr
	aclName     = "system.posix_acl_access"
)

// metadataProbes change modes, owners, and attributes of files outside.
func metadataProbes() []probe {
	return append(onPaths(ClassMetadata, []pathOp{
		{"chmod", "chmod of a file outside", 0, func(_ *prober, path string) error {
			return unix.Fchmodat(unix.AT_FDCWD, path, 0o600, 0)
		}, true},
		{"fchmod", "chmod of a file outside that is open for reading", 0, readable(func(fd int) error {
			return unix.Fchmod(fd, 0o600)
		}), false},
		{"chmod-path-fd", "chmod of a file outside by /proc/self/fd", 0, func(_ *prober, path string) error {
			return withFile(path, unix.O_PATH, func(fd int) error { return unix.Fchmodat(unix.AT_FDCWD, procFD(fd), 0o600, 0) })
		}, false},
		{"fchmodat2", "fchmodat2 of a file outside", 0, func(_ *prober, path string) error { return fchmodat2(cwd, path, 0) }, false},
		{"fchmodat2-fd", "fchmodat2 of a descriptor of a path outside", 0, func(_ *prober, path string) error {
			return withFile(path, unix.O_PATH, func(fd int) error { return fchmodat2(uintptr(fd), "", unix.AT_EMPTY_PATH) })
		}, false},
		{"chmod-directory", "chmod of a directory outside", needDir, func(_ *prober, path string) error {
			return unix.Fchmodat(unix.AT_FDCWD, dirBeside(path), 0o755, 0)
		}, false},
		{"chown", "chown of a file outside", 0, chownAt(0), true},
		{"lchown", "lchown of a file outside", 0, chownAt(unix.AT_SYMLINK_NOFOLLOW), false},
		{"fchown", "chown of a file outside that is open for reading", 0, func(p *prober, path string) error {
			return readable(func(fd int) error { return unix.Fchown(fd, int(p.own.UID), int(p.own.GID)) })(p, path)
		}, false},
		{"chown-path-fd", "chown of a descriptor of a path outside", 0, func(p *prober, path string) error {
			return withFile(path, unix.O_PATH, func(fd int) error {
				return unix.Fchownat(fd, "", int(p.own.UID), int(p.own.GID), unix.AT_EMPTY_PATH)
			})
		}, false},
		{"setflags", "changing the flags of a file outside (chattr)", 0, readable(setFlags), false},
		{"setxflags", "changing the extended flags of a file outside", 0, readable(setXFlags), false},
		{"setversion", "changing the generation of a file outside", 0, readable(func(fd int) error {
			version := uint64(7)
			_, err := call(unix.SYS_IOCTL, uintptr(fd), ioctlSetVersion, address(&version))
			return err
		}), false},
		{"file-setattr", "changing the flags of a file outside by file_setattr", 0, fileSetattr, false},
	}), append(xattrProbes(), standardInput()...)...)
}

// xattrProbes change extended attributes of files outside.
func xattrProbes() []probe {
	value := []byte("x")
	return onPaths(ClassMetadata, []pathOp{
		{"setxattr", "setting an attribute of a file outside", 0, func(_ *prober, path string) error {
			return unix.Setxattr(path, attrName, value, 0)
		}, true},
		{"lsetxattr", "setting an attribute of a file outside by lsetxattr", 0, func(_ *prober, path string) error {
			return unix.Lsetxattr(path, attrName, value, 0)
		}, false},
		{"fsetxattr", "setting an attribute of a file outside that is open for reading", 0, readable(func(fd int) error {
			return unix.Fsetxattr(fd, attrName, value, 0)
		}), false},
		{"setxattrat", "setting an attribute of a file outside by setxattrat", 0, setxattrat, false},
		{"removexattr", "removing an attribute of a file outside", needAttr, func(_ *prober, path string) error {
			return unix.Removexattr(path, presentAttr)
		}, true},
		{"lremovexattr", "removing an attribute of a file outside by lremovexattr", needAttr, func(_ *prober, path string) error {
			return unix.Lremovexattr(path, presentAttr)
		}, false},
		{"fremovexattr", "removing an attribute of a file outside that is open for reading", needAttr, readable(func(fd int) error {
			return unix.Fremovexattr(fd, presentAttr)
		}), false},
		{"removexattrat", "removing an attribute of a file outside by removexattrat", needAttr, func(_ *prober, path string) error {
			_, err := call(unix.SYS_REMOVEXATTRAT, cwd, cstring(path), 0, cstring(presentAttr))
			return err
		}, false},
		{"setacl", "setting an ACL of a file outside (setfacl)", 0, func(p *prober, path string) error {
			return unix.Setxattr(path, aclName, acl(p.own.UID), 0)
		}, true},
		{"fsetacl", "setting an ACL of a file outside that is open for reading", 0, func(p *prober, path string) error {
			return readable(func(fd int) error { return unix.Fsetxattr(fd, aclName, acl(p.own.UID), 0) })(p, path)
		}, false},
	})
}

// timestampProbes change times of files outside.
func timestampProbes() []probe {
	then := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}
	return onPaths(ClassTimestamps, []pathOp{
		{"utimensat", "setting the times of a file outside (touch -d)", 0, func(_ *prober, path string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, path, then, 0)
		}, true},
		{"utimensat-now", "setting the times of a file outside to now", 0, func(_ *prober, path string) error {
			_, err := call(unix.SYS_UTIMENSAT, cwd, cstring(path), 0, 0)
			return err
		}, false},
		{"utimensat-nofollow", "setting the times of a file outside without following links", 0, func(_ *prober, path string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, path, then, unix.AT_SYMLINK_NOFOLLOW)
		}, false},
		{"futimens", "setting the times of a file outside that is open for reading", 0, readable(func(fd int) error {
			_, err := call(unix.SYS_UTIMENSAT, uintptr(fd), 0, address(&then[0]), 0)
			return err
		}), false},
		{"futimens-now", "setting the times of a file outside that is open for reading to now", 0, readable(func(fd int) error {
			_, err := call(unix.SYS_UTIMENSAT, uintptr(fd), 0, 0, 0)
			return err
		}), false},
		{"utimensat-path-fd", "setting the times of a file outside by /proc/self/fd", 0, func(_ *prober, path string) error {
			return withFile(path, unix.O_PATH, func(fd int) error { return unix.UtimesNanoAt(unix.AT_FDCWD, procFD(fd), then, 0) })
		}, false},
		{"utimensat-directory", "setting the times of a directory outside", needDir, func(_ *prober, path string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, dirBeside(path), then, 0)
		}, false},
	})
}

// standardInput is a descriptor that the command is given: of /dev/null, which is the host's. What is set is what is there already.
func standardInput() []probe {
	onInput := func(f func(st *unix.Stat_t) error) func(*prober, place) outcome {
		return func(*prober, place) outcome {
			var st unix.Stat_t
			if err := unix.Fstat(0, &st); err != nil {
				return result(err)
			}
			if st.Mode&unix.S_IFMT != unix.S_IFCHR {
				return skip("standard input is no device")
			}
			return result(f(&st))
		}
	}
	return []probe{
		{Effect: Effect{"chmod-stdin", ClassMetadata, "chmod of /dev/null through standard input"}, try: onInput(func(st *unix.Stat_t) error {
			return unix.Fchmod(0, st.Mode&0o7777)
		})},
		{Effect: Effect{"utimens-stdin", ClassTimestamps, "setting the times of /dev/null through standard input"}, try: onInput(func(st *unix.Stat_t) error {
			same := [2]unix.Timespec{st.Atim, st.Mtim}
			_, err := call(unix.SYS_UTIMENSAT, 0, 0, address(&same[0]), 0)
			return err
		})},
	}
}

func readable(f func(fd int) error) func(*prober, string) error {
	return func(_ *prober, path string) error { return withFile(path, unix.O_RDONLY, f) }
}

// dirBeside turns …/file into …/dir.
func dirBeside(path string) string { return path[:len(path)-len("file")] + "dir" }

func chownAt(flags int) func(*prober, string) error {
	return func(p *prober, path string) error {
		return unix.Fchownat(unix.AT_FDCWD, path, int(p.own.UID), int(p.own.GID), flags)
	}
}

// fchmodat2 is called by its number: package unix falls back to other calls.
func fchmodat2(dir uintptr, path string, flags uintptr) error {
	_, err := call(unix.SYS_FCHMODAT2, dir, cstring(path), 0o600, flags)
	return err
}

func setFlags(fd int) error {
	var flags uint32
	if _, err := call(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_GETFLAGS, address(&flags)); err != nil {
		return err
	}
	flags |= flagNoDump
	_, err := call(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_SETFLAGS, address(&flags))
	return err
}

func setXFlags(fd int) error {
	var attr [7]uint32 // struct fsxattr
	if _, err := call(unix.SYS_IOCTL, uintptr(fd), ioctlGetXFlags, address(&attr)); err != nil {
		return err
	}
	attr[0] |= xflagNoDump
	_, err := call(unix.SYS_IOCTL, uintptr(fd), ioctlSetXFlags, address(&attr))
	return err
}

func fileSetattr(_ *prober, path string) error {
	attr := [3]uint64{xflagNoDump} // struct file_attr
	_, err := call(unix.SYS_FILE_SETATTR, cwd, cstring(path), address(&attr), 24, 0)
	return err
}

func setxattrat(_ *prober, path string) error {
	value := [1]byte{'x'}
	args := struct {
		value       uint64
		size, flags uint32
	}{uint64(address(&value)), 1, 0}
	_, err := call(unix.SYS_SETXATTRAT, cwd, cstring(path), 0, cstring(attrName), address(&args), 16)
	return err
}

// acl is one that lets a user write, as the kernel takes it: version 2, then tag, permissions, and id of each entry.
func acl(uid uint32) []byte {
	const user, member, group, mask, other = 1, 2, 4, 16, 32
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{user, 6, ^uint32(0)}, {member, 6, uid}, {group, 4, ^uint32(0)}, {mask, 6, ^uint32(0)}, {other, 4, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}
