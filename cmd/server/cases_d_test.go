package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCasesD is about stdin and terminals: a command gets what it was given, or
// nothing, and nothing waits for a human.
func TestCasesD(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{{"D01", caseD01}, {"D04", caseD04}, {"D06", caseD06}, {"D07", caseD07}, {"D08", caseD08}})
}

func caseD01(t *testing.T, d *daemon) {
	for command, want := range map[string]struct {
		code   int
		stdout string
	}{
		"cat; echo rc=$?": {0, "rc=0\n"},
		"grep foo":        {1, ""},
		"read -r x":       {1, ""},
	} {
		r := d.run(t, in{"command": command, "timeoutMs": 20000})
		r.exited(t, want.code)
		r.printed(t, want.stdout, "")
		r.tookLess(t, prompt)
	}
}

func caseD04(t *testing.T, d *daemon) {
	needsTool(t, "od")
	r := d.sh(t, "od -An -c | head -1; echo end")
	r.exited(t, 0)
	r.printed(t, "end\n", "")
	r = d.run(t, in{"command": "od -An -c; echo end", "stdin": "a\x00é"})
	r.exited(t, 0)
	r.printed(t, "   a  \\0 303 251\nend\n", "")
}

// caseD06 also sees that a command may leave its stdin unread, in part or whole.
func caseD06(t *testing.T, d *daemon) {
	const size = 5_000_000
	stdin := strings.Repeat("z", size)
	r := d.run(t, in{"command": "cat", "stdin": stdin, "timeoutMs": 30000})
	r.exited(t, 0)
	r.tookLess(t, 3*5*time.Second)
	if r.Stdout.Bytes != size || !r.Stdout.Truncated {
		t.Errorf("stdout %d bytes, truncated %t; want %d, truncated", r.Stdout.Bytes, r.Stdout.Truncated, size)
	}
	spill, err := os.ReadFile(r.Stdout.SpillPath)
	if err != nil || len(spill) != size || bytes.Count(spill, []byte("z")) != size {
		t.Errorf("the spill file has %d bytes (%v); want %d of z", len(spill), err, size)
	}
	for _, command := range []string{"head -c1", "printf z; exec <&-", "printf z"} {
		r := d.run(t, in{"command": command, "stdin": stdin[:size/10], "timeoutMs": 30000})
		r.exited(t, 0)
		r.printed(t, "z", "")
	}
}

// caseD07 gives the daemon a real terminal: its commands have none all the same.
func caseD07(t *testing.T, _ *daemon) {
	needsTool(t, "script")
	wrapper := filepath.Join(t.TempDir(), "terminal")
	write(t, wrapper, "#!/bin/sh\nSHELL=/bin/sh exec script -qec \"exec $1\" /dev/null </dev/null\n")
	d := launchIn(t, surroundings{wrapper: []string{"/bin/sh", wrapper}})
	t.Cleanup(func() { d.stop(t) })
	if !hasTerminal(t, d.pid) {
		t.Fatal("the daemon has no terminal: this test would show nothing")
	}
	for _, command := range []string{"read -r x </dev/tty; echo rc=$?", "echo x >/dev/tty; echo rc=$?"} {
		r := d.run(t, in{"command": command, "timeoutMs": 10000})
		r.exited(t, 0)
		r.tookLess(t, prompt)
		if r.Stdout.Text != "rc=1\n" || !strings.Contains(r.Stderr.Text, "/dev/tty") {
			t.Errorf("%s: stdout %q, stderr %q; want rc=1 and a word on /dev/tty", command, r.Stdout.Text, r.Stderr.Text)
		}
	}
	if r := d.sh(t, "test -t 0 -o -t 1 -o -t 2"); r.code() != 1 {
		t.Errorf("a standard stream is a terminal: %s", r.raw)
	}
}

// hasTerminal reports that the process has a controlling terminal.
func hasTerminal(tb testing.TB, pid int) bool {
	tb.Helper()
	stat, err := os.ReadFile(filepath.Join(procDir(pid), "stat"))
	if err != nil {
		tb.Fatal(err)
	}
	// state, parent, process group, session, terminal
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 4 && fields[4] != "0"
}

func caseD08(t *testing.T, d *daemon) {
	needsTool(t, "git")
	r := d.run(t, in{
		"command":     "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty",
		"sandboxMode": "workspace-write", "workdir": subdir(t, d, "d08"), "timeoutMs": 20000,
	})
	r.exited(t, 1)
	r.tookLess(t, 3*prompt)
	if s := strings.ToLower(r.Stderr.Text); !strings.Contains(s, "editor") && !strings.Contains(s, "terminal") {
		t.Errorf("stderr %q; want a word about the editor or the terminal", r.Stderr.Text)
	}
}

// subdir makes a directory in the workspace of the ownerless.
func subdir(tb testing.TB, d *daemon, name string) string {
	tb.Helper()
	dir := filepath.Join(d.shared(), name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	return dir
}
