package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// TestWorkdirLendsNoPermissions: a working directory behind one that the command's user may not pass is not entered with
// anybody else's permissions.
func TestWorkdirLendsNoPermissions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	everyTier(t, func(t *testing.T, f *fixture) {
		closed := tempDir(t)
		inner := closed + "/inner"
		must(t, os.Mkdir(inner, 0o755))
		must(t, os.WriteFile(inner+"/f", []byte("canary"), 0o644))
		must(t, os.Chown(closed, 12345, 12345))
		must(t, os.Chmod(closed, 0o700))
		link := f.ws + "/link"
		must(t, os.Symlink(inner, link))
		for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
			for _, dir := range []string{inner, link} {
				c := f.command(t, mode, "cat f")
				c.Workdir = dir
				p, err := f.Start(t.Context(), c)
				if _, ok := errors.AsType[*sandbox.WorkdirError](err); !ok {
					t.Errorf("%s, %s: %v, want a WorkdirError", mode, dir, err)
				}
				if err == nil {
					t.Errorf("it printed %q", finish(t, p).stdout)
				}
			}
		}
		must(t, os.Remove(link))
	})
}

// TestHiddenInsideWorkspace: a workspace shows nothing of a hidden path that lies in it, nor can it be written to there.
func TestHiddenInsideWorkspace(t *testing.T) {
	everyTier(t, func(t *testing.T, f *fixture) {
		secret := f.ws + "/secret"
		must(t, os.Mkdir(secret, 0o755))
		must(t, os.WriteFile(secret+"/f", []byte("canary"), 0o644))
		g, err := sandbox.New(t.Context(), sandbox.Config{Shell: "/bin/bash", Scratch: f.state, Hidden: []string{secret}, Tier: f.tier, RunAs: f.runAs})
		must(t, err)
		defer g.Close()
		f.Sandbox.Close()
		f.Sandbox = g
		got := f.run(t, f.command(t, sandbox.ReadOnly, `cat secret/f; cat "$WS/secret/f"; cd secret && cat f`))
		if strings.Contains(got.stdout, "canary") {
			t.Errorf("got %+v", got)
		}
		if _, err := f.Policy(sandbox.WorkspaceWrite, f.ws, f.temp, nil); err == nil {
			t.Error("a writable root may hold a hidden path")
		}
	})
}

// TestHiddenBehindALink: what is hidden by a path is not shown because the path comes to lead somewhere else.
func TestHiddenBehindALink(t *testing.T) {
	dir := tempDir(t)
	must(t, os.Mkdir(dir+"/real", 0o755))
	must(t, os.WriteFile(dir+"/real/f", []byte("canary"), 0o644))
	everyTier(t, func(t *testing.T, f *fixture) {
		read := func() error {
			c := f.command(t, sandbox.ReadOnly, `cat "$FILE"`)
			c.Env = append(c.Env, "FILE="+dir+"/later/f")
			p, err := f.Start(t.Context(), c)
			if err == nil && finish(t, p).stdout == "canary" {
				t.Error("the hidden file was read")
			}
			return err
		}
		if err := read(); err != nil { // not there yet
			t.Error(err)
		}
		must(t, os.Symlink("real", dir+"/later"))
		defer os.Remove(dir + "/later")
		if _, ok := errors.AsType[*sandbox.UnavailableError](read()); !ok {
			t.Error("no UnavailableError")
		}
	}, func(c *sandbox.Config) { c.Hidden = []string{dir + "/later"} })
}

// TestMountsAreFollowed: what is mounted and unmounted on the host is seen by the next command, and a hidden path is hidden wherever
// it is mounted.
func TestMountsAreFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	secret := tempDir(t)
	must(t, os.Chmod(secret, 0o755))
	must(t, os.WriteFile(secret+"/f", []byte("canary"), 0o644))
	everyTier(t, func(t *testing.T, f *fixture) {
		read := func(file string) string {
			c := f.command(t, sandbox.ReadOnly, `cat "$FILE" 2>/dev/null`)
			c.Env = append(c.Env, "FILE="+file)
			return f.run(t, c).stdout
		}
		above := tempDir(t)
		must(t, os.Chmod(above, 0o755))
		place := above + "/place" // in a directory that commands may read as a whole
		must(t, os.Mkdir(place, 0o755))
		read(place)
		if err := unix.Mount("tmpfs", place, "tmpfs", 0, "mode=0755"); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
		mounted := true
		defer func() {
			if mounted {
				_ = unix.Unmount(place, unix.MNT_DETACH)
			}
		}()
		must(t, os.WriteFile(place+"/f", []byte("new"), 0o644))
		if got := read(place + "/f"); got != "new" {
			t.Errorf("what was mounted is not seen: %q", got)
		}
		must(t, unix.Unmount(place, 0))
		mounted = false
		if got := read(place + "/f"); got != "" {
			t.Errorf("what was unmounted is seen: %q", got)
		}
		must(t, unix.Mount(secret, place, "", unix.MS_BIND, ""))
		mounted = true
		if got := read(place + "/f"); got != "" {
			t.Errorf("the hidden file was read at another place: %q", got)
		}
		must(t, unix.Unmount(place, 0))
		mounted = false
		// A volume in a hidden directory, and elsewhere.
		volume := secret + "/volume"
		must(t, os.MkdirAll(volume, 0o755))
		must(t, unix.Mount("tmpfs", volume, "tmpfs", 0, "mode=0755"))
		defer func() { _ = unix.Unmount(volume, unix.MNT_DETACH) }()
		must(t, os.WriteFile(volume+"/f", []byte("canary"), 0o644))
		must(t, unix.Mount(volume, place, "", unix.MS_BIND, ""))
		mounted = true
		if got := read(place + "/f"); got != "" {
			t.Errorf("a hidden volume was read at another place: %q", got)
		}
	}, func(c *sandbox.Config) { c.Hidden, c.Warm = []string{secret}, 1 })
}

// TestDenialIsNoOracle: where hidden paths are not there for commands, no message makes the answer depend on what is.
func TestDenialIsNoOracle(t *testing.T) {
	secret := tempDir(t)
	must(t, os.WriteFile(secret+"/f", nil, 0o644))
	must(t, os.Symlink("/var/tmp", secret+"/link"))
	f := newFixture(t, func(c *sandbox.Config) { c.Hidden = []string{secret} })
	f.needs(t, sandbox.ReadOnly)
	if f.Report().Tier != sandbox.TierNamespaces {
		t.Skip("hidden names show here, and the report says so")
	}
	p := f.command(t, sandbox.ReadOnly, "true").Policy
	for _, line := range []string{
		"cat: " + secret + "/f: Permission denied", "touch: cannot touch '" + secret + "/f': Read-only file system",
		"touch: cannot touch '" + secret + "/none': Read-only file system", "touch: cannot touch '" + secret + "/link/x': Read-only file system",
	} {
		if d, denied := f.Denied(p, "/", 1, false, []byte(line+"\n")); denied {
			t.Errorf("%s: %+v", line, d)
		}
	}
	if _, denied := f.Denied(p, "/", 1, false, []byte("touch: cannot touch '"+f.out+"/x': Read-only file system\n")); !denied {
		t.Error("a real denial is none")
	}
}

// TestNothingStaysInTheRunner: what a command does to its standard input is not there for the next.
func TestNothingStaysInTheRunner(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	everyTier(t, func(t *testing.T, f *fixture) {
		const script = `exec python3 -c 'import fcntl, os
print(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND))
fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)'`
		for range 6 {
			if got := f.run(t, f.command(t, sandbox.ReadOnly, script)); got.stdout != "0\n" {
				t.Fatalf("got %+v", got)
			}
			time.Sleep(10 * time.Millisecond) // for the runner to be ready again
		}
	}, func(c *sandbox.Config) { c.Warm = 1 })
}

// TestCommandsYieldToTheDaemon: commands are nicer than the daemon, whatever that is, and have a share of what the kernel counts for
// the user that leaves the daemon some.
func TestCommandsYieldToTheDaemon(t *testing.T) {
	everyTier(t, func(t *testing.T, f *fixture) {
		prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		must(t, err)
		var files unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
		got := f.run(t, f.command(t, sandbox.ReadOnly, `nice; ulimit -n; ulimit -i`))
		var nice, open, signals uint64
		if _, err := fmt.Sscan(got.stdout, &nice, &open, &signals); err != nil {
			t.Fatal(err, got)
		}
		if nice != uint64(min(20-prio+5, 19)) || open >= files.Cur || signals > 1024 || open != f.Limits().OpenFiles {
			t.Errorf("nice %d, %d files of %d, %d signals", nice, open, files.Cur, signals)
		}
	}, func(c *sandbox.Config) { c.Limits.OpenFiles = 1 << 30 })
}

// TestStoppedRunner: a command with full access that stops its runner ends all the same when it is killed.
func TestStoppedRunner(t *testing.T) {
	f := newFixture(t)
	c := f.command(t, sandbox.FullAccess, `echo up; sleep 0.2; setsid sleep 3999 & kill -STOP $PPID; sleep 3999`)
	alive := mark(t, &c)
	p := startAndAwait(t, f, c, "up\n")
	time.Sleep(500 * time.Millisecond)
	p.Kill()
	awaitGone(t, p, 10*time.Second)
	if left := alive(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestNextProcessKilled: that what waits to become a command was killed costs a caller nothing but time.
func TestNextProcessKilled(t *testing.T) {
	everyTier(t, func(t *testing.T, f *fixture) {
		f.run(t, f.command(t, sandbox.ReadOnly, "true"))
		time.Sleep(300 * time.Millisecond) // for a runner to wait
		for _, runner := range f.Trees() {
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", runner, runner))
			if err != nil {
				t.Skip("this kernel does not list children")
			}
			for child := range strings.FieldsSeq(string(children)) {
				var pid int
				_, err := fmt.Sscan(child, &pid)
				must(t, err)
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if got := f.run(t, f.command(t, sandbox.ReadOnly, "echo ran")); got.stdout != "ran\n" {
			t.Errorf("got %+v", got)
		}
	}, func(c *sandbox.Config) { c.Warm = 1 })
}

// TestMountsChangeMeanwhile: commands start, of every mode at once, while the host's mounts change.
func TestMountsChangeMeanwhile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	f := newFixture(t, func(c *sandbox.Config) { c.Warm = 1 })
	f.needs(t, sandbox.ReadOnly)
	place := tempDir(t)
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	must(t, unix.Unmount(place, 0))
	var all sync.WaitGroup
	for _, mode := range f.modes() {
		all.Go(func() {
			for range 15 {
				if got := f.run(t, f.command(t, mode, "echo ran")); got.stdout != "ran\n" {
					t.Errorf("%s: %+v", mode, got)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	var looking sync.WaitGroup
	looking.Go(func() { // what callers ask between two commands
		for {
			select {
			case <-over:
				return
			default:
				f.PrivateTemp(sandbox.ReadOnly)
			}
		}
	})
	defer looking.Wait()
	for changing := true; changing; {
		select {
		case <-over:
			changing = false
		default:
			if err := unix.Mount("tmpfs", place, "tmpfs", 0, ""); err == nil {
				_ = unix.Unmount(place, unix.MNT_DETACH)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestRunnerKeepsNothing: a runner that hides something anew for each command holds no more descriptors after many than after few.
func TestRunnerKeepsNothing(t *testing.T) {
	dir := tempDir(t)
	f := newFixture(t, func(c *sandbox.Config) {
		c.Warm, c.Tier, c.Hidden = 1, sandbox.TierNamespaces, []string{dir + "/later"}
	})
	f.needs(t, sandbox.ReadOnly)
	count := func() (most int) {
		f.run(t, f.command(t, sandbox.ReadOnly, "true"))
		time.Sleep(20 * time.Millisecond)
		for _, runner := range f.Trees() {
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", runner))
			if err != nil {
				t.Skipf("runners cannot be looked into: %v", err)
			}
			most = max(most, len(fds))
		}
		return most
	}
	count()
	must(t, os.Mkdir(dir+"/later", 0o755))
	must(t, os.WriteFile(dir+"/later/f", []byte("canary"), 0o644))
	for range 4 {
		count()
	}
	before := count()
	for range 20 {
		count()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
	c := f.command(t, sandbox.ReadOnly, `cat "$FILE"`)
	c.Env = append(c.Env, "FILE="+dir+"/later/f")
	if got := f.run(t, c); strings.Contains(got.stdout, "canary") {
		t.Errorf("got %+v", got)
	}
}

// TestTempIsBounded: what the private files take in memory is bounded in bytes and in number.
func TestTempIsBounded(t *testing.T) {
	f := newFixture(t, func(c *sandbox.Config) { c.TempBytes, c.Tier = 8<<20, sandbox.TierNamespaces })
	f.needs(t, sandbox.ReadOnly)
	got := f.run(t, f.command(t, sandbox.ReadOnly, `head -c 20M /dev/zero >/tmp/big; stat -c %s /tmp/big; rm /tmp/big
		i=0; while : >/tmp/f$i; do i=$((i + 1)); done; echo $i; : >/dev/shm/one || echo shared`))
	var size, files int
	if _, err := fmt.Sscan(got.stdout, &size, &files); err != nil || size > 8<<20 || files < 1000 || files > 8<<20/4096 || !strings.HasSuffix(got.stdout, "shared\n") {
		t.Errorf("got %d bytes in stdout: %.100q, stderr %.100q", len(got.stdout), got.stdout, got.stderr)
	}
}
