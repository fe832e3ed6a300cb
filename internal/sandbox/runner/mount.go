package runner

import (
	"syscall"
	"unsafe"
)

// The kernel's calls about mounts by descriptor, which package syscall lacks. Numbers and values are those of the
// kernel's headers, the same for amd64 and arm64.
const (
	sysOpenTree     = 428
	sysMoveMount    = 429
	sysFsopen       = 430
	sysFsconfig     = 431
	sysFsmount      = 432
	sysOpenat2      = 437
	sysMountSetattr = 442

	atFDCWD   = -100
	atEmpty   = 0x1000 // AT_EMPTY_PATH: the descriptor itself is meant
	atWhole   = 0x8000 // AT_RECURSIVE: with everything that is mounted below
	treeClone = 1      // OPEN_TREE_CLONE

	moveEmpty = 0x04 | 0x40 // MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH

	fsconfigString = 1
	fsconfigCreate = 6
	fsCloexec      = 1 // of fsopen and fsmount

	mountReadOnly = 1
	mountNoSuid   = 2
	mountNoDev    = 4
	mountNoExec   = 8

	oPath          = 0x200000
	resolveNoMagic = 0x02
	resolveNoLinks = 0x04
	umountDetach   = 2
)

// path returns s for a system call. A NUL in it gives the name of no file.
func cstring(s string) *byte {
	p, err := syscall.BytePtrFromString(s)
	if err != nil {
		return new(byte)
	}
	return p
}

// fdOr tells a descriptor from an error.
func fdOr(r uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

func errOr(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// cloneTree makes an unattached copy of the mount that path, relative to dir, lies in, which shows what is at path. With
// whole, mounts below come along.
func cloneTree(dir int, path string, whole bool) (int, error) {
	flags := uintptr(treeClone | syscall.O_CLOEXEC | atEmpty)
	if whole {
		flags |= atWhole
	}
	return fdOr2(syscall.Syscall(sysOpenTree, uintptr(dir), uintptr(unsafe.Pointer(cstring(path))), flags))
}

func fdOr2(r, _ uintptr, errno syscall.Errno) (int, error) { return fdOr(r, errno) }

// attach mounts the unattached mount on what to names.
func attach(mount, to int) error {
	none := unsafe.Pointer(cstring(""))
	_, _, errno := syscall.Syscall6(sysMoveMount, uintptr(mount), uintptr(none), uintptr(to), uintptr(none), moveEmpty, 0)
	return errOr(errno)
}

// mountAttr is the kernel's struct mount_attr.
type mountAttr struct{ set, clear, propagation, userns uint64 }

// setMount changes attributes of the mount that dir names.
func setMount(dir int, a mountAttr, whole bool) error {
	flags := uintptr(atEmpty)
	if whole {
		flags |= atWhole
	}
	_, _, errno := syscall.Syscall6(sysMountSetattr, uintptr(dir), uintptr(unsafe.Pointer(cstring(""))), flags, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a), 0)
	return errOr(errno)
}

// option is one option of a new file system.
type option struct{ key, value string }

// newMount makes a file system of that kind and an unattached mount of it.
func newMount(kind string, attrs uintptr, options ...option) (int, error) {
	fs, err := fdOr2(syscall.Syscall(sysFsopen, uintptr(unsafe.Pointer(cstring(kind))), fsCloexec, 0))
	if err != nil {
		return -1, err
	}
	defer syscall.Close(fs)
	for _, o := range options {
		_, _, errno := syscall.Syscall6(sysFsconfig, uintptr(fs), fsconfigString, uintptr(unsafe.Pointer(cstring(o.key))), uintptr(unsafe.Pointer(cstring(o.value))), 0, 0)
		if errno != 0 {
			return -1, errno
		}
	}
	if _, _, errno := syscall.Syscall6(sysFsconfig, uintptr(fs), fsconfigCreate, 0, 0, 0, 0); errno != 0 {
		return -1, errno
	}
	return fdOr2(syscall.Syscall(sysFsmount, uintptr(fs), fsCloexec, attrs))
}

// openHow is the kernel's struct open_how.
type openHow struct{ flags, mode, resolve uint64 }

// openPath opens path, relative to dir, as a place and not for its content. resolve says which links are not followed.
func openPath(dir int, path string, flags int, resolve uint64) (int, error) {
	how := openHow{flags: uint64(flags | oPath | syscall.O_CLOEXEC), resolve: resolve}
	return fdOr2(syscall.Syscall6(sysOpenat2, uintptr(dir), uintptr(unsafe.Pointer(cstring(path))), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0))
}
