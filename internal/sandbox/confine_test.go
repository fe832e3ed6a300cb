package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// snapshot tells everything of a directory tree that a command could change.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d", path, st.Mode(), st.Size())
		if st.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", content)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestWritesOutsideAreRefused: each way to change what a mode forbids fails, and the
// object outside is as before, bytes and names.
func TestWritesOutsideAreRefused(t *testing.T) {
	t.Parallel()
	attempts := map[string]string{
		"append":           `echo x >>"$OUT/file"`,
		"truncate":         `: >"$OUT/file"`,
		"truncate(2)":      `truncate -s0 "$OUT/file"`,
		"create":           `: >"$OUT/new"`,
		"mkdir":            `mkdir "$OUT/new"`,
		"mkfifo":           `mkfifo "$OUT/new"`,
		"mknod":            `mknod "$OUT/new" c 1 3`,
		"symlink":          `ln -s x "$OUT/new"`,
		"unlink":           `rm -f "$OUT/file"`,
		"rmdir":            `rmdir "$OUT/empty"`,
		"rename out":       `mv -n "$WS/mine" "$OUT/new"`,
		"rename in":        `mv "$OUT/file" "$WS/taken"`,
		"rename beside":    `mv "$OUT/file" "$OUT/other"`,
		"link in":          `ln "$OUT/file" "$WS/hard" && echo x >>"$WS/hard"`,
		"through a link":   `echo x >"$WS/esc/new"`,
		"through a link 2": `echo x >>"$WS/escfile"`,
		"dd":               `dd if=/dev/zero of="$OUT/file" bs=1 count=1 conv=notrunc`,
		"tee":              `echo x | tee -a "$OUT/file"`,
		"read-write open":  `exec 9<>"$OUT/file"; echo x >&9`,
		"/proc/self/root":  `echo x >>"/proc/self/root$OUT/file"`,
		"/proc/self/cwd":   `cd "$OUT" && echo x >>/proc/self/cwd/file`,
		"/dev/shm":         `: >/dev/shm/bashd-test-new; false`,
		"/tmp":             `: >/tmp/bashd-test-new; false`,
		"a child's child":  `setsid -w bash -c '(echo x >>"$OUT/file") & wait $!'`,
	}
	everyTier(t, func(t *testing.T, f *fixture) { testWritesOutside(t, f, attempts) })
}

func testWritesOutside(t *testing.T, f *fixture, attempts map[string]string) {
	for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		for name, script := range attempts {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				f.needs(t, mode)
				out := filepath.Join(tempDir(t), "out")
				ws := f.ws
				for _, err := range []error{
					os.MkdirAll(out+"/empty", 0o755), os.WriteFile(out+"/file", []byte("content"), 0o644),
					os.WriteFile(ws+"/mine", nil, 0o644), relink(out, ws+"/esc"), relink(out+"/file", ws+"/escfile"),
				} {
					if err != nil {
						t.Fatal(err)
					}
				}
				before := snapshot(t, out)
				c := f.command(t, mode, script)
				c.Env = append(c.Env, "OUT="+out)
				got := f.run(t, c)
				if got.status.ExitStatus() == 0 {
					t.Errorf("it succeeded: %+v", got)
				}
				for _, shared := range []string{"/tmp/bashd-test-new", "/dev/shm/bashd-test-new"} {
					if os.Remove(shared) == nil {
						t.Errorf("%s was made", shared)
					}
				}
				if after := snapshot(t, out); after != before {
					t.Errorf("outside changed from\n%s\nto\n%s", before, after)
				}
			})
		}
	}
}

func relink(target, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

// TestWhatIsAllowedWorks: what a mode allows is not in the way of ordinary work.
func TestWhatIsAllowedWorks(t *testing.T) {
	t.Parallel()
	everyTier(t, testWhatIsAllowedWorks)
}

func testWhatIsAllowedWorks(t *testing.T, f *fixture) {
	both := `set -e
		echo a >/dev/null; echo b >/dev/stderr; echo c | tee /dev/stderr >/dev/null
		test "$(cat <(echo d))" = d
		test "$(head -c4 /dev/zero | wc -c)" = 4
		head -c4 /dev/urandom >/dev/null
		f=$(mktemp); echo x >"$f"; mv "$f" "$f.2"; rm "$f.2"
		mkdir "$TMPDIR/d"; : >"$TMPDIR/d/f"; mv "$TMPDIR/d/f" "$TMPDIR/f"; rmdir "$TMPDIR/d"
		test "$(cat <<<"$(head -c 200000 /dev/zero | tr '\0' x)" | wc -c)" = 200001
		ls / >/dev/null; cat /etc/passwd >/dev/null; ls -l /dev/null >/dev/null
		sort </etc/passwd >/dev/null
		trap 'exit 0' USR1; kill -USR1 $$; exit 3`
	inside := `set -e; cd "$WS"
		mkdir -p a b; echo x >a/f; ln a/f b/g; i=$(stat -c %i a/f); mv a/f b/f; test $i = $(stat -c %i b/f); rm b/f; ln b/g a/h; ln -s ../b/g a/s; cat a/s >/dev/null
		truncate -s 10 b/g; chmod 600 b/g; touch -d 2001-01-01 b/g; rm a/h a/s b/g; rmdir a b
		mkfifo p; (echo x >p) & read -r l <p; test "$l" = x; rm p`
	for mode, script := range map[sandbox.Mode]string{sandbox.ReadOnly: both, sandbox.WorkspaceWrite: both, sandbox.FullAccess: both} {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			if got := f.run(t, f.command(t, mode, script)); got.status.ExitStatus() != 0 || got.stderr != "b\nc\n" {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("inside the workspace", func(t *testing.T) {
		f.needs(t, sandbox.WorkspaceWrite)
		if got := f.run(t, f.command(t, sandbox.WorkspaceWrite, inside)); got.status.ExitStatus() != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("not in read-only", func(t *testing.T) {
		f.needs(t, sandbox.ReadOnly)
		if got := f.run(t, f.command(t, sandbox.ReadOnly, `: >"$WS/f"`)); got.status.ExitStatus() == 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestHiddenPaths: the state directory, other owners' directories and devices cannot be read,
// the owner's own can.
func TestHiddenPaths(t *testing.T) {
	secret := tempDir(t)
	if err := os.WriteFile(secret+"/canary", []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *sandbox.Config) { c.Hidden = []string{secret} })
	for _, file := range []string{f.state + "/canary", f.state + "/own/file", f.ws + "/file", f.out + "/file"} {
		if err := os.WriteFile(file, []byte("canary"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := relink(secret, f.ws+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		for path, readable := range map[string]bool{
			f.state + "/own/file":                  true,
			f.ws + "/file":                         true,
			f.out + "/file":                        true,
			f.state + "/canary":                    false,
			secret + "/canary":                     false,
			f.ws + "/link/canary":                  false,
			"/proc/self/root" + secret + "/canary": false,
			"/dev/kmsg":                            false,
		} {
			t.Run(string(mode)+path, func(t *testing.T) {
				f.needs(t, mode)
				c := f.command(t, mode, `head -c 6 "$FILE"`)
				c.Env = append(c.Env, "FILE="+path)
				if got := f.run(t, c); (got.stdout == "canary") != readable || (got.status.ExitStatus() == 0) != readable {
					t.Errorf("got %+v, want it readable: %v", got, readable)
				}
			})
		}
	}
}

// TestHiddenLayerFollowsChanges: files that appear beside a hidden path are readable to
// commands that start afterwards, and a hidden path that is made later is hidden.
func TestHiddenLayerFollowsChanges(t *testing.T) {
	parent := tempDir(t)
	f := newFixture(t, func(c *sandbox.Config) { c.Hidden = []string{parent + "/secret"} })
	f.needs(t, sandbox.ReadOnly)
	read := func(name string) bool {
		c := f.command(t, sandbox.ReadOnly, `cat "$FILE"`)
		c.Env = append(c.Env, "FILE="+filepath.Join(parent, name))
		return f.run(t, c).stdout == "canary"
	}
	write := func(name string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(parent, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, name), []byte("canary"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		beside := fmt.Sprintf("beside%d", i)
		read("nothing") // builds and keeps a layer
		write(beside)
		if !read(beside) {
			t.Errorf("%s is not readable", beside)
		}
	}
	write("secret/file")
	if read("secret/file") {
		t.Error("the hidden file is readable")
	}
}

// TestSecretsOfTheDaemon: a confined command cannot read the daemon's memory, environment or
// descriptors, nor the runner's.
func TestSecretsOfTheDaemon(t *testing.T) {
	t.Parallel()
	everyTier(t, testSecretsOfTheDaemon)
}

func testSecretsOfTheDaemon(t *testing.T, f *fixture) {
	for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			c := f.command(t, mode, `
				for pid in $DAEMON $(ls /proc/$DAEMON/task) $PPID; do
					for file in environ mem maps auxv; do head -c1 /proc/$pid/$file >/dev/null && echo read $pid $file; done
					for fd in 0 1 2 3 4 5; do readlink /proc/$pid/fd/$fd >/dev/null && echo link $pid $fd; head -c1 /proc/$pid/fd/$fd >/dev/null </dev/null && echo opened $pid $fd; done
					ls /proc/$pid/root/ >/dev/null && echo root $pid
				done 2>/dev/null; echo end`)
			c.Env = append(c.Env, fmt.Sprintf("DAEMON=%d", os.Getpid()))
			if got := f.run(t, c); got.stdout != "end\n" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestCommandIsPlain: descriptors, signals, session, umask, privileges of a command.
func TestCommandIsPlain(t *testing.T) {
	everyTier(t, testCommandIsPlain, func(c *sandbox.Config) { c.Limits = sandbox.Limits{OpenFiles: 100, FileBytes: 1 << 20, CPUSeconds: 60} })
}

func testCommandIsPlain(t *testing.T, f *fixture) {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	must(t, err)
	for _, mode := range f.modes() {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			got := f.run(t, f.command(t, mode, `
				echo fds $(ls /proc/self/fd | tr '\n' ' ')
				grep -E '^(SigIgn|SigBlk|CapEff|CapPrm|CapAmb|NoNewPrivs):' /proc/self/status
				echo umask $(umask) nofile $(ulimit -n) core $(ulimit -c) fsize $(ulimit -f) cpu $(ulimit -t)
				read -r _ _ _ _ pgrp session _ </proc/$$/stat; echo session $((session == $$)) $((pgrp == $$))
				(exec 3</dev/tty) 2>/dev/null || echo no tty
				(yes | head -1 >/dev/null; echo pipe ${PIPESTATUS[0]})
				echo slack $(cat /proc/self/timerslack_ns)
				echo flags $- args $# zero $0 source "${BASH_SOURCE[0]}"`))
			for _, want := range []string{
				"fds 0 1 2 3\n", "SigIgn:\t0000000000000000\n", "SigBlk:\t0000000000000000\n",
				"umask 0022 nofile 100 core 0 fsize 1024 cpu 60\n", "session 1 1\n", "no tty\n", "pipe 141\n", "flags hBc args 0 zero bash source \n",
				fmt.Sprintf("slack %d\n", slack), // the runner has another, for its own sake
			} {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("no %q in\n%s%s", want, got.stdout, got.stderr)
				}
			}
			if mode.Confined() {
				for _, want := range []string{"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
					if !strings.Contains(got.stdout, want) {
						t.Errorf("no %q in\n%s", want, got.stdout)
					}
				}
			}
		})
	}
}

// TestLongScript: a command that is longer than one argument may be runs as any other.
func TestLongScript(t *testing.T) {
	f := newFixture(t)
	pad := ": '" + strings.Repeat("x", 140_000) + "'\n"
	for name, script := range map[string]string{
		"facts":       `echo "$0" $# $- "${BASH_SOURCE[0]}" "${BASHD_SCRIPT-unset}"; ls /proc/self/fd | tr '\n' ' '; exit 5`,
		"stdin":       `cat; echo end`,
		"return":      `return 3; echo "$?"`,
		"syntax":      `if then`,
		"trap":        `trap 'echo bye' EXIT; exit 4`,
		"last status": `(exit 6)`,
		"here-doc":    "cat <<E\nx\nE\n",
		"functions":   `f() { echo "${FUNCNAME[*]}"; }; f`,
		"comment":     `echo a # and no newline`,
	} {
		t.Run(name, func(t *testing.T) {
			short := f.run(t, f.command(t, sandbox.FullAccess, script))
			long := f.run(t, f.command(t, sandbox.FullAccess, pad+script))
			if long.stdout != short.stdout || long.status != short.status || (long.stderr == "") != (short.stderr == "") {
				t.Errorf("long: %+v\nshort: %+v", long, short)
			}
		})
	}
}

// TestPolicyRefusesWideRoots: what would open too much cannot be a root.
func TestPolicyRefusesWideRoots(t *testing.T) { everyTier(t, testPolicyRefusesWideRoots) }

func testPolicyRefusesWideRoots(t *testing.T, f *fixture) {
	for _, root := range []string{"/", "", "relative", filepath.Dir(f.state), f.state} {
		if _, err := f.Policy(sandbox.WorkspaceWrite, root, f.temp, []string{f.own}); err == nil && root != f.state {
			t.Errorf("%q was accepted", root)
		}
	}
}

// TestWorkspaceSwappedForALink: a root that was replaced by a link after it was resolved
// is refused, not followed.
func TestWorkspaceSwappedForALink(t *testing.T) { everyTier(t, testWorkspaceSwappedForALink) }

func testWorkspaceSwappedForALink(t *testing.T, f *fixture) {
	f.needs(t, sandbox.WorkspaceWrite)
	c := f.command(t, sandbox.WorkspaceWrite, `: >"$OUT/new"`)
	c.Workdir = "/"
	if err := os.RemoveAll(f.ws); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(f.out, f.ws); err != nil {
		t.Fatal(err)
	}
	_, err := f.Start(t.Context(), c)
	if _, ok := errors.AsType[*sandbox.UnavailableError](err); !ok {
		t.Errorf("got %v, want an UnavailableError", err)
	}
	if entries, _ := os.ReadDir(f.out); len(entries) != 0 {
		t.Errorf("it wrote %v", entries)
	}
}

// TestStartErrors: what keeps a command from starting is told by kind.
func TestStartErrors(t *testing.T) {
	dir := tempDir(t)
	plain := dir + "/plain"
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		shell, kind string
		env         []string
	}{
		"missing":        {dir + "/none", sandbox.KindShellMissing, nil},
		"not executable": {plain, sandbox.KindNotExecutable, nil},
		"a directory":    {dir, sandbox.KindNotExecutable, nil},
		"too long":       {"/bin/bash", sandbox.KindArgumentTooLong, []string{"X=" + strings.Repeat("x", 200_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(cfg *sandbox.Config) { cfg.Shell = c.shell })
			cmd := f.command(t, sandbox.FullAccess, "true")
			cmd.Env = append(cmd.Env, c.env...)
			_, err := f.Start(t.Context(), cmd)
			if e, ok := errors.AsType[*sandbox.StartError](err); !ok || e.Kind != c.kind {
				t.Errorf("got %v, want %s", err, c.kind)
			}
		})
	}
	f := newFixture(t)
	for path, want := range map[string]string{dir + "/none": "does not exist", plain: "is not a directory"} {
		cmd := f.command(t, sandbox.FullAccess, "true")
		cmd.Workdir = path
		_, err := f.Start(t.Context(), cmd)
		if e, ok := errors.AsType[*sandbox.WorkdirError](err); !ok || e.Reason != want {
			t.Errorf("workdir %s: %v, want %s", path, err, want)
		}
	}
}

// TestNoDescriptorsLeak: starting and failing to start leave no descriptor behind.
func TestNoDescriptorsLeak(t *testing.T) { everyTier(t, testNoDescriptorsLeak) }

func testNoDescriptorsLeak(t *testing.T, f *fixture) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	work := func() {
		for _, mode := range f.modes() {
			if f.Report().Mode(mode).Unavailable == "" {
				f.run(t, f.command(t, mode, "echo x"))
			}
			c := f.command(t, mode, "true")
			c.Workdir = "/nonexistent"
			if _, err := f.Start(t.Context(), c); err == nil {
				t.Error("it started")
			}
		}
	}
	work()
	before := count()
	for range 5 {
		work()
	}
	// A runner's own descriptor goes when the runner is reaped, which nobody waits for.
	for deadline := time.Now().Add(5 * time.Second); count() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors, before %d", count(), before)
		}
	}
}
