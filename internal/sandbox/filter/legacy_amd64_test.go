package filter_test

import "golang.org/x/sys/unix"

// The calls that only older architectures have.

func legacyRefused(f files) []attempt {
	return []attempt{
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, []uintptr{bad, bad, 0, 0, bad}},
		{"iopl", unix.SYS_IOPL, []uintptr{4}},
		{"ioperm", unix.SYS_IOPERM, []uintptr{bad, bad, 0}},
		{"chmod set-ID", unix.SYS_CHMOD, []uintptr{f.path, 0o4755}},
		{"creat set-ID", unix.SYS_CREAT, []uintptr{f.fresh, 0o4755}},
		{"open set-ID", unix.SYS_OPEN, []uintptr{f.fresh, unix.O_CREAT, 0o2755}},
		{"mknod set-ID", unix.SYS_MKNOD, []uintptr{f.fresh, unix.S_IFREG | 0o4700, 0}},
		{"mknod character", unix.SYS_MKNOD, []uintptr{f.fresh, unix.S_IFCHR | 0o600, 0}},
	}
}

func legacyMetadata(f files) []attempt {
	return []attempt{
		{"chmod", unix.SYS_CHMOD, []uintptr{f.path, 0o600}},
		{"chown", unix.SYS_CHOWN, []uintptr{f.path, bad, bad}},
		{"lchown", unix.SYS_LCHOWN, []uintptr{f.path, bad, bad}},
		{"utime", unix.SYS_UTIME, []uintptr{f.path, 0}},
		{"utimes", unix.SYS_UTIMES, []uintptr{f.path, 0}},
		{"futimesat", unix.SYS_FUTIMESAT, []uintptr{here, f.path, 0}},
	}
}

func legacyUnknown() []attempt {
	return []attempt{
		{"getpid of x32", unix.SYS_GETPID | 0x40000000, nil},
		{"chmod of x32", unix.SYS_CHMOD | 0x40000000, []uintptr{bad, 0}},
	}
}
