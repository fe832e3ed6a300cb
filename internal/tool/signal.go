package tool

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The first real-time signal that programs may use, as the C library of bash
// counts (the kernel's first two are its own), and the last one.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// SignalName is the name of s, such as SIGKILL; SIGRTMIN and SIGRTMIN+n for
// the real-time signals; SIG and the number for one without a name. It is
// empty for 0, which is no signal.
func SignalName(s syscall.Signal) string {
	switch name := unix.SignalName(s); {
	case s == 0:
		return ""
	case name != "":
		return name
	case s == sigRTMin:
		return "SIGRTMIN"
	case s > sigRTMin && s <= sigRTMax:
		return "SIGRTMIN+" + strconv.Itoa(int(s)-sigRTMin)
	default:
		return "SIG" + strconv.Itoa(int(s))
	}
}
