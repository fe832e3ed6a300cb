package main

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCasesG is about the environment: what of the daemon's reaches a command,
// and what of a command's stays behind.
func TestCasesG(t *testing.T) {
	t.Parallel()
	d := start(t, "BASHD_SANDBOX_MAX_MODE=danger-full-access", "BASHD_ENV_KEEP=MONKEY,KEYBOARD_LAYOUT",
		"KEYBOARD_LAYOUT=us", "MONKEY=1", "TOKENIZERS_PARALLELISM=false", "KEYMAP=us",
		"OPENAI_API_KEY=canary", "GITHUB_TOKEN=canary", "aws_secret_access_key=canary", "DB_PASSWORD=canary",
		"SSH_PASSPHRASE=canary", "MYSQL_PASSWD=canary", "GCP_CREDENTIALS=canary", "PRIVATE_X=canary", "DSH_SESSION_ID=canary",
		"BASH_FUNC_ls%%=() { echo HIJACK; }", "BASH_ENV=/hijack.sh", "ENV=/hijack.sh", "SHELLOPTS=errexit:xtrace", "BASHOPTS=extdebug",
		"PS4=hijack", "PROMPT_COMMAND=hijack", "LD_PRELOAD=", "PLAIN=kept")
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"G01", caseG01},
		{"G02", caseG02},
		{"G03", caseG03},
		{"G04", caseG04},
		{"G05", caseG05},
		{"G07", caseG07},
		{"G08", caseG08},
		{"G09", caseG09},
		{"G11", caseG11},
		{"G13", caseG13},
		{"G13 restart", caseG13Restart},
	})
}

func caseG01(t *testing.T, d *daemon) {
	r := d.sh(t, "env")
	r.exited(t, 0)
	for _, line := range []string{"MONKEY=1", "KEYBOARD_LAYOUT=us", "PLAIN=kept", "TERM=dumb", "NO_COLOR=1", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"} {
		if !strings.Contains("\n"+r.Stdout.Text, "\n"+line+"\n") {
			t.Errorf("the environment lacks %s", line)
		}
	}
	for _, part := range []string{"canary", "TOKENIZERS", "KEYMAP", "BASHD_"} {
		if strings.Contains(r.Stdout.Text, part) {
			t.Errorf("the environment has %q:\n%s", part, r.Stdout.Text)
		}
	}
}

// caseG02 looks where a command could find the service's own secrets, in the widest mode too.
func caseG02(t *testing.T, d *daemon) {
	const token = "owner-token-g02"
	for _, mode := range modes {
		r := d.run(t, in{"command": "env; cat /proc/$PPID/environ", "sandboxMode": mode}, "X-Owner-Token: "+token)
		for _, secret := range []string{token, "canary", "BASHD_"} {
			if strings.Contains(r.Stdout.Text, secret) {
				t.Errorf("%s: the environment has %q", mode, secret)
			}
		}
	}
	// A confined command cannot read the daemon's environment in /proc either.
	for _, mode := range modes[:2] {
		r := d.run(t, in{"command": fmt.Sprintf("cat /proc/%d/environ", d.pid), "sandboxMode": mode})
		if r.code() == 0 || r.Stdout.Bytes != 0 {
			t.Errorf("%s: the daemon's environment can be read", mode)
		}
	}
}

var modes = []string{"read-only", "workspace-write", "danger-full-access"}

func caseG03(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "echo $MY_TOKEN", "env": in{"MY_TOKEN": "abc"}})
	r.exited(t, 0)
	r.printed(t, "abc\n", "")
	if strings.Contains(string(r.raw), `"abc"`) {
		t.Errorf("the answer repeats a value of env: %s", r.raw)
	}
}

func caseG04(t *testing.T, d *daemon) {
	r := d.sh(t, "ls -d /; type -t ls")
	r.exited(t, 0)
	r.printed(t, "/\nfile\n", "")
}

func caseG05(t *testing.T, d *daemon) {
	hook := filepath.Join(t.TempDir(), "hook.sh")
	write(t, hook, "echo X\n")
	own := start(t, "BASH_ENV="+hook, "ENV="+hook, "SHELLOPTS=errexit:xtrace", "PROMPT_COMMAND=echo X", "PS4=X")
	for _, d := range []*daemon{d, own} {
		r := d.sh(t, "false; echo after")
		r.exited(t, 0)
		r.printed(t, "after\n", "")
	}
}

// caseG07 starts the daemon with an empty environment.
func caseG07(t *testing.T, _ *daemon) {
	d := launchIn(t, surroundings{bare: true}, "BASHD_DSH_HOME=/nonexistent")
	t.Cleanup(func() { d.stop(t) })
	r := d.sh(t, "printf 'h\u00e9llo\\n'; X=é; echo ${#X}; ls -d / >/dev/null && cd && echo home")
	r.exited(t, 0)
	r.printed(t, "héllo\n1\nhome\n", "")
}

func caseG08(t *testing.T, d *daemon) {
	marker := filepath.Join(subdir(t, d, "g08"), "ran")
	for _, env := range []any{
		in{"A=B": "c"},
		in{"": "c"},
		in{"X": 5},
		in{"X": nil},
		in{"1A": "x"},
		in{"A B": "x"},
		in{"É": "x"},
		in{"BASH_FUNC_ls%%": "() { echo x; }"},
		"X=y",
		[]string{"X=y"},
	} {
		d.refused(t, in{"command": "touch " + marker, "env": env, "sandboxMode": "workspace-write"}, 400, "INVALID_ARGUMENT")
	}
	if exists(marker) {
		t.Error("something ran")
	}
	r := d.run(t, in{"command": `echo "[$PATH]"`, "env": in{"PATH": ""}})
	r.exited(t, 0)
	r.printed(t, "[]\n", "")
	r = d.run(t, in{"command": `printf %s "$X"`, "env": in{"X": "a=b\nY=c"}})
	r.printed(t, "a=b\nY=c", "")
	// Managed facts stay what they are, whatever the request says.
	r = d.run(t, in{"command": "echo $DSH_SHELL", "env": in{"DSH_SHELL": "forged"}})
	r.printed(t, "1\n", "")
}

// caseG09: runs and tasks of every mode have one and the same environment.
func caseG09(t *testing.T, d *daemon) {
	var first map[string]string
	for range 3 {
		for _, mode := range modes {
			r := d.run(t, in{"command": "env -0", "sandboxMode": mode})
			r.exited(t, 0)
			k := d.task(t, in{"command": "env -0", "sandboxMode": mode})
			d.waitTask(t, k.ID).exited(t, 0)
			for id, printed := range map[string]string{r.ID: r.Stdout.Text, k.ID: d.read(t, k.ID).Stdout.Text} {
				got := environmentOf(t, id, printed)
				if first == nil {
					first = got
				}
				if !maps.Equal(first, got) {
					t.Errorf("%s: the environment is another:\n%v\n%v", mode, got, first)
				}
			}
		}
	}
}

// environmentOf is what env -0 printed, without that which is each command's own.
func environmentOf(t *testing.T, id, printed string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for entry := range strings.SplitSeq(printed, "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		got[name] = value
	}
	if got["DSH_TASK_ID"] != id || got["DSH_SHELL"] != "1" {
		t.Errorf("DSH_TASK_ID=%s DSH_SHELL=%s of %s", got["DSH_TASK_ID"], got["DSH_SHELL"], id)
	}
	for _, name := range []string{"PWD", "SHLVL", "_", "TMPDIR", "DSH_TASK_ID"} {
		delete(got, name)
	}
	return got
}

// caseG11 looks for secrets in all that the daemon keeps and says.
func caseG11(t *testing.T, _ *daemon) {
	d := start(t, "SERVICE_SECRET=secret-of-the-service", "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	headers := [][]string{nil, {"X-Owner-Token: secret-owner"}, {"Authorization: Bearer secret-bearer"}}
	for i := range 21 {
		body := in{"command": "seq 1 20000", "sandboxMode": modes[i%3], "stdin": "secret-stdin", "env": in{"V": "secret-value"}}
		if i%5 == 0 {
			body["command"] = "exit 3"
		}
		d.run(t, body, headers[i%len(headers)]...)
		body["stdinOpen"] = true
		k := d.task(t, body, append(headers[i%len(headers)], fmt.Sprintf("Idempotency-Key: g11-%d", i))...)
		if i%5 != 0 { // the others may be over by now
			d.request(t, "POST", "/v1/tasks/"+k.ID+"/stdin", `{"data":"secret-stdin","close":true}`, headers[i%len(headers)]...)
		}
		d.waitTask(t, k.ID, headers[i%len(headers)]...)
	}
	d.task(t, in{"command": "sleep 6011", "stdin": "secret-stdin", "env": in{"V": "secret-value"}}, headers[1]...) // still there at the end
	d.request(t, "POST", "/v1/runs", `{"command":"x","env":{"V":5,"W":"secret-value"},"stdin":["secret-stdin"]}`, "X-Owner-Token: secret-owner")
	d.request(t, "GET", "/v1/runs", "", "X-Owner-Token: secret-owner\u00e9")
	d.request(t, "GET", "/v1/runs/secret-owner", "", "Authorization: Basic secret-bearer")
	needles := []string{"secret-owner", "secret-bearer", "secret-stdin", "secret-value", "secret-of-the-service"}
	for _, s := range needles {
		// A path is no secret; the one that was made of one above is left out.
		if strings.Contains(strings.ReplaceAll(d.log.String(), "/v1/runs/secret-owner", ""), s) {
			t.Errorf("the log has %q", s)
		}
	}
	files := 0
	err := filepath.WalkDir(d.state, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		if mode := st.Mode().Perm(); e.IsDir() && mode != 0o700 || !e.IsDir() && mode != 0o600 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
		if e.Type().IsRegular() {
			files++
			for _, s := range needles {
				if strings.Contains(content(path), s) || strings.Contains(path, s) {
					t.Errorf("%s has %q", path, s)
				}
			}
		}
		return nil
	})
	if err != nil || files < 30 {
		t.Errorf("%d files looked at (%v); want the output and the records among them", files, err)
	}
}

// caseG13: a command inherits no descriptor but its three.
func caseG13(t *testing.T, d *daemon) {
	short := "ls -l /proc/$$/fd; true" // true, lest bash becomes ls, which has the directory open
	for _, mode := range modes {
		for _, command := range []string{short, padded(short, 200_000)} {
			r := d.run(t, in{"command": command, "sandboxMode": mode, "stdin": "x"})
			r.exited(t, 0)
			hasThreePipes(t, mode, r.Stdout.Text)
			k := d.task(t, in{"command": command, "sandboxMode": mode, "stdinOpen": true})
			d.waitTask(t, k.ID).exited(t, 0)
			hasThreePipes(t, mode, d.read(t, k.ID).Stdout.Text)
		}
	}
}

// hasThreePipes checks a listing of a command's descriptors.
func hasThreePipes(t *testing.T, mode, listing string) {
	t.Helper()
	var fds []string
	for line := range strings.Lines(listing) {
		link, target, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if !ok {
			continue // the total
		}
		fds = append(fds, link[strings.LastIndexByte(link, ' ')+1:])
		if !strings.HasPrefix(target, "pipe:") {
			t.Errorf("%s: a descriptor is %s", mode, target)
		}
	}
	if !slices.Equal(fds, []string{"0", "1", "2"}) {
		t.Errorf("%s: descriptors %q; want 0 1 2\n%s", mode, fds, listing)
	}
}

// caseG13Restart kills the daemon under a running command: the port is free at once.
func caseG13Restart(t *testing.T, _ *daemon) {
	d := launch(t)
	d.begin(t, in{"command": "sleep 6013 & sleep 6013"})
	k := d.task(t, in{"command": "echo up; sleep 6013"})
	d.printedSoFar(t, k.ID, "up\n")
	d.crash(t)
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	l.Close()
	d.awaitNoProcess(t, 3*time.Second)
	again := d.restart(t, "BASHD_LISTEN="+d.addr)
	again.sh(t, "echo ok").printed(t, "ok\n", "")
	if at := again.getTask(t, k.ID); at.Status != "failed" {
		t.Errorf("%s; want it failed", at.raw)
	}
}

func procDir(pid int) string { return fmt.Sprintf("/proc/%d", pid) }
