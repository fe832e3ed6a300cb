package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The cases of group M that are about what programs need: temporary files, shared memory, caches, git, devices.

// caseM07: locks of processes are files in /dev/shm.
func caseM07(t *testing.T, d *daemon) {
	needsTool(t, "/usr/bin/python3")
	r := d.run(t, in{"command": `/usr/bin/python3 -c 'import multiprocessing as m; m.Lock(); print(1)'`, "sandboxMode": "workspace-write"})
	if d.tier(t) == "A" {
		r.exited(t, 0)
		r.printed(t, "1\n", "")
		return
	}
	// Without a /dev/shm of the command's own it must not have the host's: documented.
	if r.exited(t, 1); r.Stdout.Text != "" || !strings.Contains(r.Stderr.Text, "PermissionError") {
		t.Errorf("%s; want it refused", r.raw)
	}
}

// caseM08: where TMPDIR is the command's own, it works, is private, and is gone afterwards.
func caseM08(t *testing.T, d *daemon) {
	for _, mode := range modes {
		tidy := ""
		if mode == "danger-full-access" {
			tidy = `; rm -r "$d"`
		}
		r := d.run(t, in{
			"command":     `f=$(mktemp) && echo $f && d=$(mktemp -d) && : >$d/x && cat <<<"$(seq 1 50000)" | tail -1; [ "$TMPDIR" = "" ] || stat -c %a "$TMPDIR"` + tidy,
			"sandboxMode": mode,
		})
		lines := strings.Split(strings.TrimSpace(r.Stdout.Text), "\n")
		r.exited(t, 0)
		if len(lines) < 2 || lines[1] != "50000" {
			t.Fatalf("%s: %s", mode, r.raw)
		}
		if mode == "danger-full-access" {
			t.Cleanup(func() { os.Remove(lines[0]) })
			if !exists(lines[0]) {
				t.Errorf("%s: %s does not outlive its command", mode, lines[0])
			}
			continue
		}
		if exists(lines[0]) {
			t.Errorf("%s: %s is there after its command", mode, lines[0])
		}
		if d.tier(t) == "A" {
			if !strings.HasPrefix(lines[0], "/tmp/") || len(lines) != 3 || lines[2] != "1777" {
				t.Errorf("%s: temporary files at %s; want a /tmp like any (%s)", mode, lines[0], r.Stdout.Text)
			}
			// And it is nobody else's, not even the next command's.
			d.run(t, in{"command": "ls -A /tmp /dev/shm", "sandboxMode": mode}).printed(t, "/dev/shm:\n\n/tmp:\n", "")
			continue
		}
		if !strings.HasPrefix(lines[0], d.state+"/") || len(lines) != 3 || lines[2] != "700" {
			t.Errorf("%s: temporary files at %s; want the command's own directory of mode 0700 (%s)", mode, lines[0], r.Stdout.Text)
		}
		if exists(filepath.Dir(lines[0])) {
			t.Errorf("%s: %s outlives its command", mode, filepath.Dir(lines[0]))
		}
	}
}

// gitConfig makes git know the committer and nothing of the host.
var gitConfig = in{
	"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
	"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.org",
}

// caseM10: a linked worktree keeps its index with the repository, which is outside; a plain one works.
func caseM10(t *testing.T, d *daemon) {
	needsTool(t, "git")
	ws, repo := d.place(t, "m10"), d.out+"/m10-repo"
	git := func(command, workdir, mode string) result {
		return d.run(t, in{"command": command, "workdir": workdir, "sandboxMode": mode, "env": gitConfig})
	}
	made := git("git init -q '"+repo+"' && git -C '"+repo+"' commit -q --allow-empty -m first && git -C '"+repo+"' worktree add -q '"+ws+"/linked'", ws, "danger-full-access")
	made.exited(t, 0)
	before := content(repo + "/.git/worktrees/linked/index")
	r := git("echo x >f; git add f", ws+"/linked", "workspace-write")
	if r.exited(t, 128); !r.Sandbox.Denied || r.Sandbox.Denial == nil || !strings.HasPrefix(r.Sandbox.Denial.Path, repo+"/.git/") {
		t.Errorf("a linked worktree: %s; want it denied in the repository", r.raw)
	}
	if before != content(repo+"/.git/worktrees/linked/index") || !exists(ws+"/linked/f") {
		t.Error("the repository outside has changed, or the workspace has not")
	}
	git("git init -q plain && cd plain && echo x >f && git add f && git commit -qm first && git log --format=%s", ws, "workspace-write").printed(t, "first\n", "")
	if r := git("echo y >f && git add f", ws+"/plain", "read-only"); r.code() == 0 || content(ws+"/plain/f") != "x\n" {
		t.Errorf("read-only: %s", r.raw)
	}
}

// caseM19: what is to be hidden or readable and does not exist is no obstacle, be it missing from the start or since.
func caseM19(t *testing.T, d *daemon) {
	for _, mode := range modes {
		d.run(t, in{"command": "echo ok", "sandboxMode": mode}).printed(t, "ok\n", "")
	}
	missing := d.shared() + "/no-such-directory"
	p := d.refused(t, in{"command": "echo ok", "workdir": missing, "sandboxMode": "workspace-write"}, 422, "WORKDIR_UNUSABLE")
	if !strings.Contains(p.Detail, missing) || !strings.Contains(p.Detail, "does not exist") {
		t.Errorf("detail %q", p.Detail)
	}
}

// caseM19Roots takes away from a daemon what it hides, and the root itself.
func caseM19Roots(t *testing.T, _ *daemon) {
	hidden := t.TempDir() + "/hidden"
	if err := os.Mkdir(hidden, 0o755); err != nil {
		t.Fatal(err)
	}
	d := start(t, "BASHD_HIDE_PATHS=/no/such/path:"+hidden, "BASHD_WORKSPACE_LAYOUT=single")
	ok := func() {
		t.Helper()
		for _, mode := range modes[:2] {
			d.run(t, in{"command": "echo ok", "sandboxMode": mode}).printed(t, "ok\n", "")
		}
	}
	ok()
	if err := os.Remove(hidden); err != nil {
		t.Fatal(err)
	}
	ok()
	if err := os.Remove(d.ws); err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes[:2] {
		status, raw := d.request(t, "POST", "/v1/runs", mustJSON(t, in{"command": "echo ok", "sandboxMode": mode}))
		if made := exists(d.ws); status == 200 && !(made && strings.Contains(string(raw), `"ok\n"`)) || status != 200 && !strings.Contains(string(raw), "the workspace cannot be used: no such file") {
			t.Errorf("%s, without a workspace: %d %s; want it made anew, or an error that says so", mode, status, raw)
		}
	}
}

// caseM23: git rewrites and removes files.
func caseM23(t *testing.T, d *daemon) {
	needsTool(t, "git")
	ws := d.place(t, "m23")
	r := d.run(t, in{
		"command": "git init -q . && echo a >f && git add f && git commit -qm first && echo z >>f && git checkout -q -- f && rm f && git checkout -q -- f && cat f",
		"workdir": ws, "sandboxMode": "workspace-write", "env": gitConfig,
	})
	r.exited(t, 0)
	r.printed(t, "a\n", "")
}

// caseM23Go: a cache outside is refused and told so; one that is granted works.
func caseM23Go(t *testing.T, d *daemon) {
	needsTool(t, "go")
	if testing.Short() || underRace {
		t.Skip("compiling the runtime takes long")
	}
	ws, home := d.place(t, "m23-go"), d.out+"/home-m23"
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	d.give(t, home)
	write(t, ws+"/m.go", "package main\n\nfunc main() { print(\"ran\") }\n")
	body := in{
		"command": "go run m.go", "workdir": ws, "sandboxMode": "workspace-write", "timeoutMs": 600000,
		"env": in{"HOME": home, "GOFLAGS": "-p=1", "GOCACHE": "", "XDG_CACHE_HOME": "", "GOTOOLCHAIN": "local", "GOENV": "off", "GOTELEMETRY": "off"},
	}
	if r := d.run(t, body); r.code() != 1 || !r.Sandbox.Denied || r.Sandbox.Denial == nil || !strings.HasPrefix(r.Sandbox.Denial.Path, home+"/") {
		t.Errorf("a cache in HOME: %s; want it denied there", r.raw)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("HOME has %v (%v)", left, err)
	}
	body["command"] = "GOCACHE=$TMPDIR/cache go run m.go"
	d.run(t, body).exited(t, 0)
}

// caseM24: of the devices commands get the harmless ones. A pseudo-terminal is none of them: documented.
func caseM24(t *testing.T, d *daemon) {
	for _, mode := range modes[:2] {
		run := func(command string) result {
			return d.run(t, in{"command": command, "sandboxMode": mode, "timeoutMs": 20000})
		}
		run("head -c4 /dev/zero | wc -c; head -c4 /dev/full | wc -c; head -c4 /dev/urandom | wc -c; head -c4 /dev/random | wc -c").printed(t, "4\n4\n4\n4\n", "")
		run("echo x >/dev/zero; echo x >/dev/null; cat /dev/null").printed(t, "", "")
		full := run("echo x >/dev/full")
		full.notDenied(t, 1)
		if !strings.Contains(full.Stderr.Text, "No space left on device") {
			t.Errorf("%s: %s", mode, full.raw)
		}
		for _, device := range []string{"/dev/kmsg", "/dev/mem", "/dev/ptmx", "/dev/loop-control"} {
			if r := run(fmt.Sprintf("exec 3<>%s", device)); r.code() == 0 {
				t.Errorf("%s: %s can be opened: %s", mode, device, r.raw)
			}
		}
		if d.tier(t) == "A" {
			names := strings.FieldsSeq(run("ls -A /dev").Stdout.Text)
			for name := range names {
				if !slices.Contains([]string{"fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}, name) {
					t.Errorf("%s: /dev has %s", mode, name)
				}
			}
		}
	}
	needsTool(t, "script")
	r := d.run(t, in{"command": "script -qc 'echo x' /dev/null", "timeoutMs": 20000})
	if r.code() <= 0 || strings.Contains(r.Stdout.Text, "x") {
		t.Errorf("script: %s; want it to fail", r.raw)
	}
}
