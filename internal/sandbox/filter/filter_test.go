package filter_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/filter"
)

func TestProgramFor(t *testing.T) {
	seen := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, o := range []filter.Options{{Metadata: true}, {Metadata: false}} {
			prog, err := filter.ProgramFor(arch, o)
			if err != nil || len(prog) == 0 || len(prog)%8 != 0 {
				t.Fatalf("%s %+v: %d bytes, %v", arch, o, len(prog), err)
			}
			name := fmt.Sprintf("%s %+v", arch, o)
			if other, taken := seen[string(prog)]; taken {
				t.Errorf("%s is %s", name, other)
			}
			seen[string(prog)] = name
			if own, err := filter.Program(o); arch == runtime.GOARCH && (err != nil || !bytes.Equal(own, prog)) {
				t.Errorf("Program and ProgramFor differ: %v", err)
			}
		}
	}
	for _, arch := range []string{"", "386", "riscv64"} {
		if prog, err := filter.ProgramFor(arch, filter.Options{}); err == nil || prog != nil {
			t.Errorf("%q has a program of %d bytes", arch, len(prog))
		}
	}
}

// TestUsable agrees with the kernel, which tells the actions that it knows.
func TestUsable(t *testing.T) {
	known, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		t.Skip(err)
	}
	if want := bytes.Contains(known, []byte("errno")); filter.Usable() != want {
		t.Errorf("Usable is %t, and the kernel knows %s", !want, known)
	}
}

// BenchmarkLoad measures the one call that loads a filter, which every command pays for, with a filter that allows everything
// beside it. A thread that has taken one ends.
func BenchmarkLoad(b *testing.B) {
	if !filter.Usable() {
		b.Skip("the kernel takes no filters")
	}
	progs := map[string][]byte{"nothing": {0x06, 0, 0, 0, 0, 0, 0xff, 0x7f}}
	for name, o := range map[string]filter.Options{"metadata": {Metadata: true}, "read-only": {}} {
		prog, err := filter.Program(o)
		if err != nil {
			b.Skip(err)
		}
		progs[name] = prog
	}
	for _, name := range []string{"nothing", "metadata", "read-only"} {
		b.Run(name, func(b *testing.B) {
			var total time.Duration
			for b.Loop() {
				total += loadingTime(b, progs[name])
			}
			b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/load")
		})
	}
}

func loadingTime(b *testing.B, prog []byte) (took time.Duration) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		fprog := unix.SockFprog{Len: uint16(len(prog) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(prog)))}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			done <- err
			return
		}
		begin := time.Now()
		_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
		took = time.Since(begin)
		if errno != 0 {
			done <- errno
			return
		}
		done <- nil
	}()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return took
}
