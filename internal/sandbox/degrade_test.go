package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// TestOlderLandlock: with fewer rights the same things are refused as far as they go,
// and what does not is told.
func TestOlderLandlock(t *testing.T) {
	for abi, want := range map[int]struct {
		tier, cleanup string
		gaps          []string
	}{
		1: {"C-", "subreaper", []string{"abstract-sockets", "cleanup", "device-ioctl", "signals", "truncate"}},
		2: {"C-", "subreaper", []string{"abstract-sockets", "cleanup", "device-ioctl", "signals", "truncate"}},
		3: {"C", "subreaper", []string{"abstract-sockets", "cleanup", "device-ioctl", "signals"}},
		5: {"C", "subreaper", []string{"abstract-sockets", "cleanup", "signals"}},
		6: {"C", "domain", nil},
	} {
		t.Run(fmt.Sprint("ABI ", abi), func(t *testing.T) {
			f := newFixtureOn(t, abi)
			f.needs(t, sandbox.ReadOnly)
			r := f.Report()
			if r.ABI < abi {
				t.Skipf("this kernel has Landlock ABI %d", r.ABI)
			}
			always := append([]string{"command-lines", "hidden-names", "hidden-sockets", "process-limit"}, want.gaps...)
			enforcement := sandbox.Full // under read-only the filter refuses what changes metadata
			if slices.Contains(always, "truncate") {
				enforcement = sandbox.Partial
			}
			if gaps := slices.Sorted(slices.Values(always)); r.ReadOnly.Enforcement != enforcement || !slices.Equal(r.ReadOnly.Gaps, gaps) {
				t.Errorf("read-only: %+v, want %s %v", r.ReadOnly, enforcement, gaps)
			}
			if gaps := slices.Sorted(slices.Values(append(always, "metadata", "timestamps"))); r.WorkspaceWrite.Enforcement != sandbox.Partial || !slices.Equal(r.WorkspaceWrite.Gaps, gaps) {
				t.Errorf("workspace-write: %+v, want partial %v", r.WorkspaceWrite, gaps)
			}
			if r.Tier != want.tier || r.Cleanup != want.cleanup {
				t.Errorf("tier %s, cleanup %s", r.Tier, r.Cleanup)
			}
			c := f.command(t, sandbox.ReadOnly, `(setsid sleep 3999 >/dev/null 2>&1 &); echo x >"$OUT/new"`)
			alive := mark(t, &c)
			if got := f.run(t, c); got.status.ExitStatus() == 0 {
				t.Errorf("got %+v", got)
			}
			if left := alive(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func newFixtureOn(t *testing.T, abi int) *fixture {
	t.Helper()
	f := newFixture(t)
	var err error
	f.Sandbox.Close()
	if f.Sandbox, err = sandbox.NewOn(t.Context(), sandbox.Config{Shell: "/bin/bash", Scratch: f.state, Tier: sandbox.TierLandlock}, abi); err != nil {
		t.Fatal(err)
	}
	return f
}

// underFilter runs the test again in a process whose kernel answers errno to the system
// calls that are listed, and reports whether this is that process.
func underFilter(t *testing.T, errno unix.Errno, calls ...uint32) (inside bool) {
	t.Helper()
	const env = "TEST_UNDER_FILTER"
	if os.Getenv(env) == t.Name() {
		return true
	}
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		// The filter cannot be taken off again: the thread ends with this goroutine.
		runtime.LockOSThread()
		if err := installFilter(errno, calls); err != nil {
			done <- result{nil, err}
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"="+t.Name())
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	if r.err != nil || !strings.Contains(string(r.out), "--- PASS") {
		t.Errorf("under the filter: %v\n%s", r.err, r.out)
	}
	return false
}

// installFilter makes the calling thread, and what it starts, get errno from calls.
func installFilter(errno unix.Errno, calls []uint32) error {
	const loadNumber = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	prog := []unix.SockFilter{{Code: loadNumber, K: 0}}
	for _, nr := range calls {
		prog = append(prog,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	prog = append(prog, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return e
	}
	return nil
}

// refusesConfined checks that both confined modes are refused, that nothing ran, and that full access works.
func refusesConfined(t *testing.T, reason string, change ...func(*sandbox.Config)) {
	t.Helper()
	f := newFixture(t, change...)
	for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		_, err := f.Start(t.Context(), f.command(t, mode, `touch "$OUT/marker"`))
		if e, ok := errors.AsType[*sandbox.UnavailableError](err); !ok || !strings.Contains(e.Error(), reason) {
			t.Errorf("%s: got %v, want %q in it", mode, err, reason)
		}
		if m := f.Report().Mode(mode); m.Enforcement != "" || m.Unavailable == "" {
			t.Errorf("%s: %+v", mode, m)
		}
	}
	if _, err := os.Stat(f.out + "/marker"); err == nil {
		t.Error("the command ran")
	}
	if r := f.Report(); r.Tier != "none" {
		t.Errorf("tier %s", r.Tier)
	}
	if got := f.run(t, f.command(t, sandbox.FullAccess, "echo free")); got.stdout != "free\n" {
		t.Errorf("got %+v", got)
	}
}

func TestWithoutLandlock(t *testing.T) {
	if underFilter(t, unix.ENOSYS, unix.SYS_LANDLOCK_CREATE_RULESET) {
		refusesConfined(t, "no Landlock")
	}
}

func TestLandlockNotEnabled(t *testing.T) {
	if underFilter(t, unix.EOPNOTSUPP, unix.SYS_LANDLOCK_CREATE_RULESET) {
		refusesConfined(t, "not enabled")
	}
}

// TestRestrictSelfFails: that the kernel knows Landlock and then refuses to enforce it is
// found by the probe.
func TestRestrictSelfFails(t *testing.T) {
	if underFilter(t, unix.EPERM, unix.SYS_LANDLOCK_RESTRICT_SELF) {
		refusesConfined(t, "probe")
	}
}

// TestRestrictSelfLies: a Landlock that says yes and does nothing is found too.
func TestRestrictSelfLies(t *testing.T) {
	if underFilter(t, 0, unix.SYS_LANDLOCK_RESTRICT_SELF) {
		refusesConfined(t, "", func(c *sandbox.Config) { c.Tier = sandbox.TierLandlock })
	}
}

// TestLayerLimit: a daemon that is already under as many Landlock layers as the kernel
// allows cannot confine, and says so.
func TestLayerLimit(t *testing.T) {
	const env = "TEST_LAYER_LIMIT"
	if os.Getenv(env) != "" {
		refusesConfined(t, "probe")
		return
	}
	newFixture(t).needs(t, sandbox.ReadOnly)
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its layers with it
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.EnterLayers(15); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFewDescriptors: where descriptors run out in the middle of a start, the command is refused, and nothing else happens.
func TestFewDescriptors(t *testing.T) {
	f := newFixture(t)
	f.needs(t, sandbox.ReadOnly)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	c := f.command(t, sandbox.ReadOnly, "echo ran")
	refused := 0
	for more := range uint64(24) {
		// The lowest free number is where the next descriptors go.
		free, err := unix.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(free)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free) + more, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		p, err := f.Start(t.Context(), c)
		if restoreErr := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); restoreErr != nil {
			t.Fatal(restoreErr)
		}
		if err != nil {
			refused++
			continue
		}
		p.Kill()
		<-p.Gone()
		p.Stdout.Close()
		p.Stderr.Close()
	}
	if refused == 0 {
		t.Error("there were always enough of them")
	}
	if got := f.run(t, c); got.stdout != "ran\n" {
		t.Errorf("afterwards: %+v", got)
	}
}
