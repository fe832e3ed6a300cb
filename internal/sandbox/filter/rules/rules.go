// Package rules says which system calls a confined command may make, and turns that into the programs that the kernel
// runs. It is the source of package filter's generated file and of nothing at run time.
//
// Every call that is known has its verdict here, by name. What has none is refused as unknown (ENOSYS): a number that is newer than
// these tables may do anything, and programs know how to do without a call that their kernel lacks.
//
// The package refuses to judge what it cannot see: what lies in memory, and who has which pid.
package rules

import (
	"maps"
	"strings"

	"golang.org/x/sys/unix"
)

// allowed are the calls that go through whatever their arguments are: they act on the caller, on what it has open, on paths (Landlock and
// mounts judge those), or on processes that the kernel's own checks, a Landlock domain or a pid namespace, keep from
// reaching outside (kill and its like, ptrace, kcmp, get_robust_list). uprobe and uretprobe are made by code that a host's own
// tracer has put into the program: refusing them would end it.
const allowed = `
	read write close stat fstat lstat poll lseek mmap mprotect munmap brk pread64 pwrite64 readv writev access pipe
	rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend rt_tgsigqueueinfo sigaltstack
	select sched_yield mremap msync mincore madvise shmget shmat shmctl shmdt dup dup2 dup3 pause nanosleep getitimer alarm setitimer
	sendfile socket connect accept accept4 sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername socketpair
	setsockopt getsockopt recvmmsg sendmmsg
	fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill ptrace uname sysinfo times personality
	semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_timedsend mq_timedreceive mq_notify mq_getsetattr
	flock fsync fdatasync sync syncfs truncate ftruncate getdents getdents64 getcwd chdir fchdir rename renameat mkdir mkdirat rmdir
	link linkat unlink unlinkat symlink symlinkat readlink readlinkat umask ustat statfs fstatfs sysfs newfstatat statx
	faccessat faccessat2 fallocate fadvise64 readahead copy_file_range splice tee vmsplice sync_file_range
	getpid getppid gettid getuid getgid geteuid getegid getpgid setpgid getpgrp getsid setsid
	setuid setgid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid setfsuid setfsgid capget capset
	getrlimit setrlimit getrusage getpriority ioprio_get
	sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_getaffinity sched_getattr
	mlock munlock mlockall munlockall mlock2 modify_ldt prctl arch_prctl set_thread_area get_thread_area
	gettimeofday time adjtimex clock_adjtime clock_gettime clock_getres clock_nanosleep
	timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime
	getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr getxattrat listxattrat file_getattr
	futex futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list set_tid_address restart_syscall
	io_setup io_destroy io_getevents io_submit io_cancel io_pgetevents
	epoll_create epoll_create1 epoll_wait epoll_ctl epoll_pwait epoll_pwait2 pselect6 ppoll signalfd signalfd4 eventfd eventfd2
	inotify_init inotify_init1 inotify_add_watch inotify_rm_watch pipe2 preadv pwritev preadv2 pwritev2
	remap_file_pages mbind set_mempolicy get_mempolicy set_mempolicy_home_node getcpu kcmp name_to_handle_at
	seccomp getrandom memfd_create memfd_secret membarrier pkey_mprotect pkey_alloc pkey_free rseq rseq_slice_yield uretprobe uprobe
	pidfd_open pidfd_send_signal close_range cachestat map_shadow_stack mseal
	landlock_create_ruleset landlock_add_rule landlock_restrict_self
	statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules`

// refused are the calls that no confined command may make: they change mounts or namespaces, the kernel, the host, its clock, or
// reach into processes, files and keys past the checks that confine a command. A command has no capability, so the
// kernel refuses many of them too; where it does not is a matter of its version and settings.
const refused = `
	mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr setns
	bpf perf_event_open userfaultfd keyctl add_key request_key lookup_dcookie
	kexec_load kexec_file_load init_module finit_module delete_module
	open_by_handle_at fanotify_init fanotify_mark quotactl quotactl_fd swapon swapoff
	reboot syslog acct settimeofday clock_settime sethostname setdomainname vhangup iopl ioperm nfsservctl
	process_madvise process_vm_readv process_vm_writev process_mrelease pidfd_getfd
	file_setattr`

// unknown are the calls that programs must believe their kernel does not have. Each has what counts in memory, out of a filter's
// sight (clone3 its flags, openat2 its mode), or does other calls that no filter sees (io_uring); programs fall back to the
// calls that can be judged. The rest have gone from the kernel, never were in it, or are newer than any program's need of them (listns).
const unknown = `
	clone3 openat2 io_uring_setup io_uring_enter io_uring_register
	uselib _sysctl create_module get_kernel_syms query_module getpmsg putpmsg afs_syscall tuxcall security vserver
	epoll_ctl_old epoll_wait_old arch_specific_syscall listns`

// metadata are the calls that change the mode, owner, times or attributes of a file and nothing else. Landlock has no right for
// them: where no mount is read-only in their way they are refused under read-only. Those with a verdict of their own
// in judged have it where metadata may be changed.
const metadata = `
	chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
	setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat`

// queues are the calls that make and remove message queues, which stay behind like files and are out of Landlock's sight. They are
// refused together with changes of metadata; where there are namespaces, a command's queues are its own and end with it.
var queues = map[string]check{
	"mq_open":   noBits(1, unix.O_CREAT),
	"mq_unlink": refuse,
}

// judged are the calls whose arguments decide.
var judged = map[string]check{
	// The bits that make a program run as its file's owner or group, see checks.go.
	"chmod":     setID(1),
	"fchmod":    setID(1),
	"fchmodat":  setID(2),
	"fchmodat2": setID(2),
	"creat":     setID(1),
	"open":      made(1, 2),
	"openat":    made(2, 3),
	"mknod":     node(1),
	"mknodat":   node(2),

	// A whiteout is a device, made without mknod.
	"renameat2": noBits(4, renameWhiteout),

	"clone":   noBits(0, newNamespace),
	"unshare": onlyBits(0, cloneFS|cloneFiles|cloneSysVSem),

	// Pids cannot be told apart here: refused is what names any process, be it the command's own child or the caller by
	// its pid. Calls on the caller as pid 0 go through, which is what ulimit, nice, taskset and ionice do for a program that they start.
	"sched_setparam":     zero(0),
	"sched_setscheduler": zero(0),
	"sched_setaffinity":  zero(0),
	"sched_setattr":      zero(0),
	"migrate_pages":      zero(0),
	"move_pages":         zero(0),
	"setpriority":        zeroOf(prioProcess),
	"ioprio_set":         zeroOf(ioprioProcess),
	"prlimit64":          ownLimits(),

	"fcntl": noLease(),
	"ioctl": ioctls(),
}

// verdicts maps every known call to what becomes of it.
func verdicts(mayChangeMetadata bool) map[string]check {
	all := map[string]check{}
	for name := range strings.FieldsSeq(allowed) {
		all[name] = allow
	}
	for name := range strings.FieldsSeq(refused) {
		all[name] = refuse
	}
	for name := range strings.FieldsSeq(unknown) {
		all[name] = absent
	}
	for name := range strings.FieldsSeq(metadata) {
		all[name] = allow
	}
	for name := range queues {
		all[name] = allow
	}
	maps.Copy(all, judged)
	if !mayChangeMetadata {
		for name := range strings.FieldsSeq(metadata) {
			all[name] = refuse
		}
		maps.Copy(all, queues)
	}
	return all
}
