package main

import (
	"bytes"
	"encoding/json"
	"net/http"
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
	d.inParallel(t, []namedCase{
		{"D01", caseD01},
		{"D02", caseD02},
		{"D04", caseD04},
		{"D06", caseD06},
		{"D07", caseD07},
		{"D08", caseD08},
		{"stdin", caseStdin},
		{"stdin bytes", caseStdinBytes},
		{"stdin much", caseStdinMuch},
		{"stdin unread", caseStdinUnread},
		{"stdin refused", caseStdinRefused},
	})
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

// caseD02: a task's stdin is no more open than a run's.
func caseD02(t *testing.T, d *daemon) {
	began := time.Now()
	k := d.task(t, in{"command": "wc -c; read -r x; echo rc=$?"})
	d.waitTask(t, k.ID).exited(t, 0)
	if took := time.Since(began); took > prompt {
		t.Errorf("it took %v", took)
	}
	d.printedInAll(t, k.ID, "0\nrc=1\n", "")

	k = d.task(t, in{"command": "wc -c; read -r x; echo rc=$?", "stdin": "12345"})
	d.waitTask(t, k.ID).exited(t, 0)
	d.printedInAll(t, k.ID, "5\nrc=1\n", "")
}

func caseD04(t *testing.T, d *daemon) {
	needsTool(t, "od")
	r := d.sh(t, "od -An -c | head -1; echo end")
	r.exited(t, 0)
	r.printed(t, "end\n", "")
	r = d.run(t, in{"command": "od -An -c; echo end", "stdin": "a\x00é"})
	r.exited(t, 0)
	r.printed(t, "   a  \\0 303 251\nend\n", "")

	k := d.task(t, in{"command": "od -An -c | head -1; echo end"})
	d.waitTask(t, k.ID).exited(t, 0)
	d.printedInAll(t, k.ID, "end\n", "")
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

// caseStdin talks with a task: what the request gave comes first, then what is written, then the end.
func caseStdin(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": `while read -r line; do echo "got $line"; done; echo end`, "stdin": "one\n", "stdinOpen": true})
	d.printedSoFar(t, k.ID, "got one\n")
	if n := d.writeStdin(t, k.ID, in{"data": "two\nthr"}); n != len("two\nthr") {
		t.Errorf("%d bytes were taken", n)
	}
	d.printedSoFar(t, k.ID, "got one\ngot two\n")
	d.writeStdin(t, k.ID, in{"dataBase64": "ZWUK"}) // ee\n
	d.printedSoFar(t, k.ID, "got one\ngot two\ngot three\n")
	d.writeStdin(t, k.ID, in{"data": "four\n", "close": true})
	d.waitTask(t, k.ID).exited(t, 0)
	d.printedInAll(t, k.ID, "got one\ngot two\ngot three\ngot four\nend\n", "")

	k = d.task(t, in{"command": "cat; echo rc=$?", "stdinOpen": true})
	if n := d.writeStdin(t, k.ID, in{"close": true}); n != 0 {
		t.Errorf("%d bytes of nothing were taken", n)
	}
	d.waitTask(t, k.ID).exited(t, 0)
	d.printedInAll(t, k.ID, "rc=0\n", "")
}

// caseStdinBytes: every byte arrives as it was sent.
func caseStdinBytes(t *testing.T, d *daemon) {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	k := d.task(t, in{"command": "cat", "stdinOpen": true})
	d.writeStdin(t, k.ID, in{"dataBase64": all[:]})
	d.writeStdin(t, k.ID, in{"data": "\x00é😀", "close": true})
	d.waitTask(t, k.ID).exited(t, 0)
	if got := d.stream(t, k.ID, "stdout"); string(got) != string(all[:])+"\x00é😀" {
		t.Errorf("got %q", got)
	}
}

// caseStdinMuch is more than a pipe holds, read slowly.
func caseStdinMuch(t *testing.T, d *daemon) {
	const part, parts = 1_000_000, 3
	k := d.task(t, in{"command": "sleep 1; wc -c", "stdin": strings.Repeat("z", part), "stdinOpen": true})
	for i := range parts {
		body := in{"data": strings.Repeat("y", part)}
		if i == parts-1 {
			body["close"] = true
		}
		if n := d.writeStdin(t, k.ID, body); n != part {
			t.Errorf("%d bytes were taken; want %d", n, part)
		}
	}
	d.waitTask(t, k.ID).exited(t, 0)
	d.printedInAll(t, k.ID, "4000000\n", "")
}

// caseStdinUnread: a command that does not read holds up neither the daemon nor its own end.
func caseStdinUnread(t *testing.T, d *daemon) {
	const size = 1_000_000
	// read -t 0 tells that there is something, and leaves it there.
	k := d.task(t, in{"command": "until read -t 0; do sleep 0.05; done; echo up; sleep 6105", "stdinOpen": true})
	written := make(chan answered, 1)
	go func() {
		written <- d.exchange(t, "POST", "/v1/tasks/"+k.ID+"/stdin", in{"data": strings.Repeat("z", size)})
	}()
	d.printedSoFar(t, k.ID, "up\n")
	began := time.Now()
	d.killTask(t, k.ID)
	d.waitTask(t, k.ID).died(t, "SIGTERM")
	if took := time.Since(began); took > prompt {
		t.Errorf("the kill took %v", took)
	}
	// What the pipe took is told; nobody says that it was read.
	var answer struct{ Written int }
	a := <-written
	if err := json.Unmarshal(a.raw, &answer); err != nil || a.resp.StatusCode != http.StatusOK || answer.Written <= 0 || answer.Written >= size {
		t.Errorf("%d %s; want a part of it written", a.resp.StatusCode, a.raw)
	}

	// One that closes its stdin is no failure either, of the command or of the daemon.
	k = d.task(t, in{"command": "exec <&-; echo closed; sleep 6105", "stdinOpen": true})
	d.printedSoFar(t, k.ID, "closed\n")
	d.ask(t, "POST", "/v1/tasks/"+k.ID+"/stdin", in{"data": "x"}, http.StatusConflict, nil)
	if at := d.getTask(t, k.ID); at.Status != "running" {
		t.Errorf("%s", at.raw)
	}
	d.killTask(t, k.ID)
	d.waitTask(t, k.ID).died(t, "SIGTERM")
}

func caseStdinRefused(t *testing.T, d *daemon) {
	write := func(id string, body in, status int, code string) {
		t.Helper()
		var p problem
		d.ask(t, "POST", "/v1/tasks/"+id+"/stdin", body, status, &p)
		if p.Code != code {
			t.Errorf("%v: code %s; want %s", body, p.Code, code)
		}
	}
	shut := d.task(t, in{"command": "sleep 6106"})
	write(shut.ID, in{"data": "x"}, http.StatusConflict, "CONFLICT")
	write(shut.ID, in{"close": true}, http.StatusConflict, "CONFLICT")
	d.killTask(t, shut.ID)

	k := d.task(t, in{"command": "cat", "stdinOpen": true})
	for _, body := range []in{{}, {"data": "x", "dataBase64": "eA=="}, {"dataBase64": "?"}, {"data": 5}, {"close": false}, {"text": "x"}} {
		write(k.ID, body, http.StatusBadRequest, "INVALID_ARGUMENT")
	}
	d.writeStdin(t, k.ID, in{"data": "only\n"})
	d.printedSoFar(t, k.ID, "only\n") // none of the others
	d.writeStdin(t, k.ID, in{"close": true})
	d.waitTask(t, k.ID)
	write(k.ID, in{"data": "x"}, http.StatusConflict, "CONFLICT")

	k = d.task(t, in{"command": "sleep 6106", "stdinOpen": true})
	d.writeStdin(t, k.ID, in{"close": true})
	write(k.ID, in{"data": "x"}, http.StatusConflict, "CONFLICT")
	d.killTask(t, k.ID)
	d.waitTask(t, k.ID).died(t, "SIGTERM")

	write("bash-aaaaaaaaaaaaaaaaaaaaaaaaaa", in{"data": "x"}, http.StatusNotFound, "NOT_FOUND")
	if p := d.refused(t, in{"command": "cat", "stdinOpen": true}, http.StatusBadRequest, "INVALID_ARGUMENT"); len(p.Errors) != 1 || p.Errors[0].Field != "stdinOpen" {
		t.Errorf("%+v; want stdinOpen named", p)
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
