package sandbox_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// What the command is told of what it is to look for. The canary is written in hexadecimal, so that it is found nowhere but
// where it should not be.
const (
	canaryEnv  = "CANARY_HEX"
	addressEnv = "CANARY_ADDRESS" // in the memory of the first target
	pathsEnv   = "CANARY_PATHS"   // files, one a line
	devicesEnv = "CANARY_DEVICES"
)

// guarded are the files of a process that only itself may look into.
var guarded = []string{
	"environ", "mem", "maps", "smaps", "smaps_rollup", "numa_maps", "pagemap", "auxv", "stack", "syscall", "root", "cwd", "exe", "io",
}

// maxLook bounds what is read of one file.
const maxLook = 1 << 20

// attackSecrets looks for the canary in everything that there is of the targets in /proc, in their memory and descriptors,
// in files and on devices. A line with "did" is one that must not be; "found" names where the canary was.
func attackSecrets() {
	canary, err := hex.DecodeString(os.Getenv(canaryEnv))
	if err != nil || len(canary) == 0 {
		os.Exit(2)
	}
	for _, t := range givenTargets() {
		for _, tid := range t.threads { // the first of which is the process
			for _, dir := range []string{fmt.Sprintf("/proc/%d", tid), fmt.Sprintf("/proc/%d/task/%d", t.pid, tid)} {
				lookInto(t.name, dir, canary)
			}
			who := fmt.Sprintf("%s %d", t.name, tid)
			tell("trace "+who, trace(unix.PTRACE_SEIZE, tid))
			tell("read memory "+who, readMemory(tid, t.name))
			tell("take descriptor "+who, takeDescriptors(tid))
			tell("compare "+who, raw(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(tid), 1, 0, 0))
		}
	}
	for path := range strings.Lines(os.Getenv(pathsEnv)) {
		path = strings.TrimSuffix(path, "\n")
		for _, way := range waysTo(path) {
			tell("path "+way, looksFor(way, canary))
		}
		tell("handle "+path, byHandle(path, canary))
	}
	for device := range strings.FieldsSeq(os.Getenv(devicesEnv)) {
		tell("device "+device, looksFor(device, canary))
		tell("device /proc/self/root"+device, looksFor("/proc/self/root"+device, canary))
		tell("node "+device, ownNode(device, canary))
	}
	for _, path := range []string{"/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/proc/kmsg", "/dev/kmsg"} {
		tell("kernel "+path, withOpen(path, unix.O_RDONLY, func(int) error { return nil }))
	}
}

// lookInto reads all that a directory of /proc has about a process.
func lookInto(name, dir string, canary []byte) {
	for _, file := range guarded {
		tell(fmt.Sprintf("%s %s/%s", name, dir, file), opensOrReads(dir+"/"+file))
	}
	for _, list := range []string{"fd", "map_files", "ns"} {
		entries, _ := os.ReadDir(dir + "/" + list)
		names := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "mnt", "user"}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		slices.Sort(names)
		for _, n := range slices.Compact(names) {
			path := dir + "/" + list + "/" + n
			_, err := os.Readlink(path)
			if err != nil {
				err = withOpen(path, unix.O_RDONLY, func(int) error { return nil })
			}
			tell(name+" "+path, err)
			finds(name, path, canary)
		}
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != "mem" {
			finds(name, dir+"/"+e.Name(), canary)
		}
	}
}

// opensOrReads fails unless something can be had of the file, or it can be followed.
func opensOrReads(path string) error {
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSymlink != 0 {
		if _, err := os.Readlink(path); err == nil {
			return nil
		}
		return withOpen(path, unix.O_PATH, func(int) error { return nil })
	}
	return withOpen(path, unix.O_RDONLY, func(fd int) error {
		if strings.HasSuffix(path, "/mem") {
			return nil // that it opens is enough
		}
		n, err := unix.Read(fd, make([]byte, 4096))
		if err == nil && n == 0 {
			err = unix.ENODATA
		}
		return err
	})
}

func looksFor(path string, canary []byte) error {
	return withOpen(path, unix.O_RDONLY, func(fd int) error {
		b := make([]byte, maxLook)
		have := 0
		for have < len(b) {
			n, err := unix.Read(fd, b[have:])
			if err != nil || n == 0 {
				break
			}
			have += n
		}
		if !bytes.Contains(b[:have], canary) {
			return unix.ENODATA
		}
		return nil
	})
}

func finds(name, path string, canary []byte) {
	if looksFor(path, canary) == nil {
		tell(fmt.Sprintf("found %s %s", name, path), nil)
	}
}

// readMemory reads the canary where it is known to lie, or, of others, whatever can be read at all.
func readMemory(pid int, name string) error {
	address, _ := strconv.ParseUint(os.Getenv(addressEnv), 0, 64)
	if name != "daemon" {
		address = 0 // EFAULT comes after the permission
	}
	var b [8]byte
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}}, 0)
	if err == unix.EFAULT {
		return nil
	}
	if err != nil && withOpen(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDONLY, func(fd int) error {
		_, err := unix.Pread(fd, b[:], int64(address))
		return err
	}) == nil {
		return nil
	}
	return err
}

func takeDescriptors(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	for n := range 16 {
		var fd int
		if fd, err = unix.PidfdGetfd(pidfd, n, 0); err == nil {
			unix.Close(fd)
			return nil
		}
	}
	return err
}

// waysTo are the paths by which a file can be named.
func waysTo(path string) []string {
	link := os.Getenv("TMPDIR") + "/way-" + filepath.Base(path)
	_ = os.Remove(link)
	_ = os.Symlink(path, link)
	ways := []string{path, link, "/proc/self/root" + path, "/proc/self/cwd/../../../../../../.." + path, "/proc/1/root" + path}
	for _, t := range givenTargets() {
		ways = append(ways, fmt.Sprintf("/proc/%d/root%s", t.pid, path))
	}
	return ways
}

func byHandle(path string, canary []byte) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return err
	}
	return withOpen(".", unix.O_RDONLY|unix.O_DIRECTORY, func(dir int) error {
		fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return looksFor(fmt.Sprintf("/proc/self/fd/%d", fd), canary)
	})
}

// ownNode makes a node of the same device where the command may write, and reads that.
func ownNode(device string, canary []byte) error {
	for _, dir := range []string{os.Getenv("TMPDIR"), os.Getenv("WS")} {
		node := dir + "/node"
		var major, minor uint32 = 7, 0
		if _, err := fmt.Sscanf(filepath.Base(device), "loop%d", &minor); err != nil {
			return err
		}
		if unix.Mknod(node, unix.S_IFBLK|0o666, int(unix.Mkdev(major, minor))) == nil {
			return nil // that it can be made is too much
		}
	}
	return unix.EPERM
}

// canaryText is what the daemon has everywhere.
func canaryText() string { return os.Getenv("PROMISE_CANARY") }

// inMemory is the canary as the daemon holds it.
var inMemory []byte

// TestPromise4Canary: what the daemon has in its environment, command line, memory, descriptors and files, and what another
// owner's command has, cannot be read; of the daemon itself, of each of its threads, of the runners, and of the sweeper.
func TestPromise4Canary(t *testing.T) {
	t.Parallel()
	canary := fmt.Sprintf("canary-%d-%d", os.Getpid(), time.Now().UnixNano())
	if !inProcess(t, []string{"PROMISE_CANARY=" + canary}, []string{canary}) {
		return
	}
	beDaemon(t)
	inMemory = []byte(canaryText())
	tokens := tempDir(t)
	must(t, os.Chmod(tokens, 0o755)) // the sandbox is what hides it
	must(t, os.WriteFile(tokens+"/tokens", inMemory, 0o644))
	open, err := os.Open(tokens + "/tokens")
	must(t, err)
	defer open.Close()
	everyTier(t, func(t *testing.T, f *fixture) {
		for _, mode := range confinedModes {
			t.Run(string(mode), func(t *testing.T) { testCanary(t, f, mode, tokens+"/tokens") })
		}
		t.Run("unconfined", func(t *testing.T) { controlCanary(t, f) })
	}, func(c *sandbox.Config) { c.Hidden = append(c.Hidden, tokens+"/tokens") })
}

func testCanary(t *testing.T, f *fixture, mode sandbox.Mode, tokens string) {
	f.needs(t, mode)
	must(t, os.WriteFile(f.state+"/database", inMemory, 0o644))
	other := startSibling(t, f, mode, canaryText())
	free := startAndAwait(t, f, f.secretCommand(t), "up\n")
	targets := slices.Concat([]target{daemonTarget(t)}, other.targets, []target{newTarget(t, "free", shellOf(t, free))})
	paths := []string{f.state + "/database", other.own + "/output", other.own + "/tmp/file", other.ws + "/file", tokens, "/tmp/file"}
	env := append(lookFor(targets), pathsEnv+"="+strings.Join(paths, "\n"))
	if device := loopDevice(t, f); device != "" {
		env = append(env, devicesEnv+"="+device)
	}
	results := f.tries(t, mode, "secrets", env...)
	for _, name := range done(results) {
		if strings.HasPrefix(name, "found ") && strings.HasSuffix(name, "/cmdline") && f.tells(mode, sandbox.GapCommandLines) {
			continue // of the daemon's, which keeps secrets out of it
		}
		t.Errorf("%s succeeded", name)
	}
	readable := slices.ContainsFunc(done(results), func(s string) bool { return strings.HasSuffix(s, "/cmdline") })
	if f.tells(mode, sandbox.GapCommandLines) != readable {
		t.Errorf("whether command lines can be read is told wrongly: %v", f.Report().Mode(mode).Gaps)
	}
}

// secretCommand runs under full access with the canary in its environment: without a sandbox it can be looked into.
func (f *fixture) secretCommand(t *testing.T) sandbox.Command {
	t.Helper()
	c := f.command(t, sandbox.FullAccess, `echo up; sleep 3999; true`)
	c.Env = append(c.Env, "SECRET="+canaryText())
	return c
}

// lookFor tells a command what to look for.
func lookFor(targets []target) []string {
	return []string{
		joinTargets(targets), canaryEnv + "=" + hex.EncodeToString(inMemory),
		fmt.Sprintf("%s=%#x", addressEnv, uintptr(unsafe.Pointer(&inMemory[0]))),
	}
}

// controlCanary sees that an unconfined command finds the canary of another.
func controlCanary(t *testing.T, f *fixture) {
	must(t, os.WriteFile(f.out+"/database", inMemory, 0o644))
	f.grant(t, f.out)
	free := startAndAwait(t, f, f.secretCommand(t), "up\n")
	targets := []target{newTarget(t, "free", shellOf(t, free))}
	results := f.tries(t, sandbox.FullAccess, "secrets", append(lookFor(targets), pathsEnv+"="+f.out+"/database")...)
	pid := targets[0].pid
	for _, name := range []string{
		fmt.Sprintf("found free /proc/%d/environ", pid), fmt.Sprintf("free /proc/%d/maps", pid), fmt.Sprintf("free /proc/%d/fd/0", pid),
		fmt.Sprintf("read memory free %d", pid), fmt.Sprintf("take descriptor free %d", pid), fmt.Sprintf("trace free %d", pid),
		"path " + f.out + "/database",
	} {
		if results[name] != succeeded {
			t.Errorf("%s fails unconfined, too: %s", name, results[name])
		}
	}
}

// loopDevice is a disk that holds the canary; empty where none can be made.
func loopDevice(t *testing.T, f *fixture) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return ""
	}
	image := f.state + "/image"
	must(t, os.WriteFile(image, append(slices.Clone(inMemory), make([]byte, 1<<20)...), 0o600))
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Logf("no disk can be made here: %v", err)
		return ""
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Errorf("%s stays: %v", device, err)
		}
	})
	if looksFor(device, inMemory) != nil {
		t.Errorf("the disk does not hold the canary")
	}
	return device
}
