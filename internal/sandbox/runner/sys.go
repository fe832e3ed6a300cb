package runner

import (
	"syscall"
	"unsafe"
)

// What package syscall lacks. golang.org/x/sys/unix has it all, but whatever imports that is
// initialised after most of the daemon's packages, which is what a runner
// starts too often to wait for. Numbers and values are those of the kernel's headers, the same for
// amd64 and arm64.
const (
	sysPidfdSendSignal      = 424
	sysPidfdOpen            = 434
	sysCloseRange           = 436
	sysLandlockAddRule      = 445
	sysLandlockRestrictSelf = 446

	rulePathBeneath = 1

	prSetPdeathsig      = 1
	prSetTimerslack     = 29
	prSetDumpable       = 4
	prCapbsetDrop       = 24
	prSetChildSubreaper = 36
	prSetNoNewPrivs     = 38
	prCapAmbient        = 47
	prCapAmbientClear   = 4

	capVersion3       = 0x20080522
	closeRangeCloexec = 4

	seccompSetModeFilter = 1
	sigSetmask           = 2
)

func prctl(option, arg uintptr) error {
	if _, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func pidfdOpen(pid int) (int, error) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func pidfdSendSignal(fd int, sig syscall.Signal) {
	_, _, _ = syscall.Syscall6(sysPidfdSendSignal, uintptr(fd), uintptr(sig), 0, 0, 0, 0)
}

// send sends one message on a socket.
func send(fd int, msg []byte) {
	_, _, _ = syscall.Syscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&msg[0])), uintptr(len(msg)), syscall.MSG_NOSIGNAL, 0, 0)
}
