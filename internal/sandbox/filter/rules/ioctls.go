package rules

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// An ioctl on a file that a command may only read can change the file, make a subvolume or reach the server behind a mount, and
// Landlock has no say but on devices. So only known ones go through, by the second byte of the command, its type.
// The kernel takes the command from the lower half of the register.

// harmlessTypes are types of which everything goes through, but what is in hostile. None of them is an ioctl of a file
// in a file system, except the questions of 0x00 and 0x15.
var harmlessTypes = []uint32{
	'T' << 8,  // terminals, and FIONREAD and its like, which every file has; timerfd
	0x89 << 8, // sockets
	0x8b << 8, // sockets, wireless
	0x00 << 8, // FIBMAP (needs a capability), FIGETBSZ
	0x15 << 8, // the UUID and the name of a file system
	0x8a << 8, // epoll
	'I' << 8,  // inotify
	'!' << 8,  // seccomp notifications
	0xb7 << 8, // namespaces, questions only
	0xff << 8, // pidfds, questions only; the namespaces that they give are of no use without setns
}

// hostile are commands of those types that act on others: they type into a terminal (TIOCSTI, TIOCLINUX), take the
// console's output, or have the kernel load a line discipline.
var hostile = []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS, unix.TIOCSETD}

// harmless are the single commands of other types that go through. Where both sizes of a long are in use, both are here. The clones and
// FIDEDUPERANGE go by what is open for writing, or change no byte.
var harmless = []uint32{
	0x80086601, 0x80046601, // FS_IOC_GETFLAGS
	0x80087601, 0x80047601, // FS_IOC_GETVERSION
	0xc020660b, // FS_IOC_FIEMAP
	0x801c581f, // FS_IOC_FSGETXATTR
	0x81009431, // FS_IOC_GETFSLABEL
	0x40049409, // FICLONE
	0x4020940d, // FICLONERANGE
	0xc0189436, // FIDEDUPERANGE
	0x80045200, // RNDGETENTCNT
	0x80047210, // FAT_IOCTL_GET_ATTRIBUTES
}

// attributeTypes are the types of ioctls that change a file's attributes, make snapshots and so on: refused, as chattr and its like say.
var attributeTypes = []uint32{'f' << 8, 'X' << 8, 'v' << 8, 0x94 << 8, 'r' << 8}

// ioctls lets the harmless ones through. What is of no known type gets the answer of a file that does not have it: a command has
// no device to use it on.
func ioctls() check {
	kind := bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xff00}
	code := append([]bpf.Instruction{low(1)}, oneOf(hostile, refuse)...)
	code = append(code, kind)
	code = append(code, oneOf(harmlessTypes, allow)...)
	code = append(code, low(1))
	code = append(code, oneOf(harmless, allow)...)
	code = append(code, kind)
	code = append(code, oneOf(attributeTypes, refuse)...)
	return check{"ioctls", append(code, noTTY.ret())}
}
