package filter_test

import "golang.org/x/sys/unix"

func legacyRefused(files) []attempt {
	return []attempt{{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, []uintptr{bad, bad, 0, 0, bad}}}
}

func legacyMetadata(files) []attempt { return nil }

func legacyUnknown() []attempt { return nil }
