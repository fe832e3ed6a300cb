package filter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// int80 is a 64-bit program that calls chmod("victim", 0777) by the numbers of i386 and exits with the error.
func int80() []byte {
	const base, headers = 0x400000, 64 + 56
	code := []byte{
		0xb8, 15, 0, 0, 0, // mov eax, chmod of i386
		0xbb, 0, 0, 0, 0, // mov ebx, the path
		0xb9, 0, 0, 0, 0, // mov ecx, the mode
		0xcd, 0x80, // int 0x80
		0xf7, 0xd8, // neg eax
		0x89, 0xc7, // mov edi, eax
		0xb8, 60, 0, 0, 0, // mov eax, exit of amd64
		0x0f, 0x05, // syscall
	}
	binary.LittleEndian.PutUint32(code[6:], uint32(base+headers+len(code)))
	binary.LittleEndian.PutUint32(code[11:], 0o777)
	code = append(code, "victim\x00"...)

	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + headers), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), uint64(headers + len(code)), uint64(headers + len(code)), uint64(4096),
	} {
		binary.Write(&b, binary.LittleEndian, field)
	}
	b.Write(code)
	return b.Bytes()
}

// TestInt80: the old gate, by which another architecture's numbers can be called, is shut.
func TestInt80(t *testing.T) {
	try := func(which string) (code int, mode os.FileMode) {
		dir := t.TempDir()
		victim := filepath.Join(dir, "victim")
		if err := os.WriteFile(victim, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "int80"), int80(), 0o700); err != nil {
			t.Fatal(err)
		}
		c := command(t, dir, roleExec, which, "./int80")
		_, err := output(t, c)
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		} else if ok {
			code = exit.ExitCode()
		}
		info, err := os.Stat(victim)
		if err != nil {
			t.Fatal(err)
		}
		return code, info.Mode()
	}
	if code, mode := try(without); code != 0 || mode != 0o777 {
		t.Skipf("this kernel has no such gate: exit %d, mode %v", code, mode)
	}
	for _, which := range []string{metadata, readOnly} {
		if code, mode := try(which); code != int(unix.ENOSYS) || mode != 0o600 {
			t.Errorf("%s: exit %d, mode %v", which, code, mode)
		}
	}
}
