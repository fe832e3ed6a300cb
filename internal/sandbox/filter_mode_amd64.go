package sandbox

import "golang.org/x/sys/unix"

var archModeCalls = []modeCall{{unix.SYS_CHMOD, 1}, {unix.SYS_CREAT, 1}, {unix.SYS_MKNOD, 1}}

var archOpenCalls = []openCall{{unix.SYS_OPEN, 1, 2}}
