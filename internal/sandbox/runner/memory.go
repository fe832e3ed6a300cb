package runner

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// How long a runner waits before it takes it that nobody waits for it, and before it takes itself for idle.
const (
	rehearseAfter = 200 * time.Microsecond
	settleAfter   = 100 * time.Millisecond
)

// idle reports that nothing comes from the daemon for so long.
func idle(d time.Duration) bool {
	p := struct {
		fd      int32
		events  int16
		revents int16
	}{fd: SocketFD, events: 1} // POLLIN
	ts := syscall.NsecToTimespec(int64(d))
	n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return errno == 0 && n == 0
}

// forgetProgram unmaps the pages of the program that the start of the process has touched, most of them never to be used again. Those that
// are come back from the page cache.
func forgetProgram() {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var start, end uint64 // of a mapping of a file that cannot be written; 0: of another
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 2 && strings.IndexByte(fields[0], '-') > 0:
			// from-to perms offset device inode path
			start, end = 0, 0
			if len(fields) >= 6 && fields[5][0] == '/' && strings.IndexByte(fields[1], 'w') < 0 {
				from, to, _ := strings.Cut(fields[0], "-")
				start, _ = strconv.ParseUint(from, 16, 64)
				end, _ = strconv.ParseUint(to, 16, 64)
			}
		case len(fields) >= 2 && fields[0] == "Anonymous:" && fields[1] == "0" && start < end:
			// Not one that was written before it was made read-only, as the loader does: its content would be lost.
			const dontNeed = 4 // MADV_DONTNEED
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), dontNeed)
		}
	}
}
