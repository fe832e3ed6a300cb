package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCasesI is about owners: what is one's is not there for another.
func TestCasesI(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"I01", caseI01},
		{"I01 tasks", caseI01Tasks},
		{"I01 files", caseI01Files},
		{"I02", caseI02},
		{"I03", caseI03},
		{"I03 tasks", caseI03Tasks},
		{"I04", caseI04},
	})
}

// caseI01 looks at a run of A's through B's and nobody's eyes, while it runs and after.
func caseI01(t *testing.T, d *daemon) {
	const a = "X-Owner-Token: owner-a"
	run := d.begin(t, in{
		"command":     "until [ -e go-i01 ]; do sleep 0.05; done; seq 1 50000; echo s",
		"sandboxMode": "workspace-write", "timeoutMs": 50000,
	}, a)
	d.invisible(t, run.id)
	workspace, _ := d.get(t, run.id, a).Spec["workspaceRoot"].(string)
	write(t, filepath.Join(workspace, "go-i01"), "")
	r := run.wait(t)
	r.exited(t, 0)
	if !strings.HasSuffix(r.Stdout.Text, "50000\ns\n") || r.Stdout.URL == "" {
		t.Errorf("A's run was disturbed: %.300s", r.raw)
	}
	d.invisible(t, run.id)
	if status, raw := d.request(t, "GET", r.Stdout.URL, "", a); status != 200 || int64(len(raw)) != r.Stdout.Bytes {
		t.Errorf("A's own stream: %d, %d bytes", status, len(raw))
	}
	if got := d.get(t, run.id, a); got.Stdout.Text != r.Stdout.Text || got.Status != "completed" {
		t.Errorf("A's own run reads differently now: %.300s", got.raw)
	}
}

// invisible checks that to B and to nobody id is answered exactly as an id that
// never was.
func (d *daemon) invisible(t *testing.T, id string) {
	t.Helper()
	unknown := "bash-" + strings.Repeat("a", 26)
	for _, headers := range [][]string{nil, {"X-Owner-Token: owner-b"}, {"Authorization: Bearer owner-b"}, {"X-Owner-Token: owner-A"}} {
		headers = append(headers, "X-Request-Id: same")
		for _, op := range [][2]string{{"GET", ""}, {"POST", "/kill"}, {"GET", "/streams/stdout"}, {"GET", "/streams/stderr"}} {
			status, raw := d.request(t, op[0], "/v1/runs/"+id+op[1], "", headers...)
			status2, raw2 := d.request(t, op[0], "/v1/runs/"+unknown+op[1], "", headers...)
			raw = bytes.ReplaceAll(raw, []byte(id), []byte(unknown))
			if status != 404 || status2 != 404 || !bytes.Equal(raw, raw2) {
				t.Errorf("%q: %v: %d %s; an unknown id: %d %s", headers, op, status, raw, status2, raw2)
			}
		}
		for _, r := range d.list(t, headers...) {
			if r.ID == id {
				t.Errorf("%q: it is in the list", headers)
			}
		}
	}
}

// caseI01Tasks looks at a task of A's through others' eyes, while it runs and after. They also try to
// write to it, to end it, to take what A has not read, and to delete it.
func caseI01Tasks(t *testing.T, d *daemon) {
	const a = "X-Owner-Token: owner-a"
	k := d.task(t, in{"command": "echo s1; read x; echo s2 $x", "stdinOpen": true}, a)
	d.othersOf(t, k.ID, a, nil, []string{"X-Owner-Token: owner-b"}, []string{"Authorization: Bearer owner-b"}, []string{"X-Owner-Token: owner-A"})
}

// othersOf lets the others do what they can to the task of that id, which waits for a line; own is its owner's identity.
func (d *daemon) othersOf(t *testing.T, id, own string, others ...[]string) {
	t.Helper()
	d.printedSoFar(t, id, "s1\n", own)
	cursor := d.output(t, id, "", 0, own).NextCursor
	for _, headers := range others {
		d.noTask(t, id, cursor, headers)
	}
	d.writeStdin(t, id, in{"data": "of A's\n", "close": true}, own)
	over := d.waitTask(t, id, own)
	over.exited(t, 0)
	for _, headers := range others {
		d.noTask(t, id, cursor, headers)
	}
	d.read(t, id, own).delivered(t, "s1\ns2 of A's\n", "")
	if again := d.getTask(t, id, own); string(again.raw) != string(over.raw) {
		t.Errorf("A's task was %s and is now %s", over.raw, again.raw)
	}
	if raw := d.stream(t, id, "stdout", own); string(raw) != "s1\ns2 of A's\n" {
		t.Errorf("A's own stream: %q", raw)
	}
	d.deleteTask(t, id, own)
}

// noTask checks that to that caller id is answered exactly as an id that never was, whatever
// is asked, and is in no list.
func (d *daemon) noTask(t *testing.T, id, cursor string, caller []string) {
	t.Helper()
	unknown := "bash-" + strings.Repeat("a", 26)
	headers := append(slices.Clone(caller), "X-Request-Id: same")
	for _, op := range [][3]string{
		{"GET", ""},
		{"GET", "/output"},
		{"GET", "/output?waitMs=50&cursor=" + url.QueryEscape(cursor)},
		{"POST", "/read"},
		{"GET", "/wait?timeoutMs=50"},
		{"POST", "/stdin", `{"data":"of B's\n","close":true}`},
		{"POST", "/kill"},
		{"POST", "/kill", `{"reason":"envy"}`},
		{"GET", "/streams/stdout"},
		{"GET", "/streams/stderr"},
		{"DELETE", ""},
	} {
		status, raw := d.request(t, op[0], "/v1/tasks/"+id+op[1], op[2], headers...)
		status2, raw2 := d.request(t, op[0], "/v1/tasks/"+unknown+op[1], op[2], headers...)
		raw = bytes.ReplaceAll(raw, []byte(id), []byte(unknown))
		if status != 404 || status2 != 404 || !bytes.Equal(raw, raw2) {
			t.Errorf("%q: %v: %d %s; an unknown id: %d %s", caller, op, status, raw, status2, raw2)
		}
	}
	for _, filter := range []string{"", "&status=running", "&status=completed"} {
		if _, raw := d.request(t, "GET", "/v1/tasks?limit=200"+filter, "", headers...); bytes.Contains(raw, []byte(id)) {
			t.Errorf("%q: it is in the list", caller)
		}
	}
}

// unseen reports that a command was refused a hidden file, or did not find it.
func unseen(r result) bool {
	return strings.Contains(r.Stderr.Text, "Permission denied") || strings.Contains(r.Stderr.Text, "No such file or directory")
}

// caseI01Files: neither can one owner's command read another's files.
func caseI01Files(t *testing.T, d *daemon) {
	const a, b = "X-Owner-Token: files-a", "X-Owner-Token: files-b"
	r := d.run(t, in{"command": "echo secret >note; seq 1 50000; pwd >&2", "sandboxMode": "workspace-write"}, a)
	r.exited(t, 0)
	note := strings.TrimSpace(r.Stderr.Text) + "/note"
	for _, path := range []string{note, r.Stdout.SpillPath} {
		read := in{"command": fmt.Sprintf("cat '%s' | tail -c 100", path), "env": in{"LC_ALL": "C"}}
		if own := d.run(t, read, a); own.Stdout.Bytes == 0 {
			t.Errorf("A cannot read its own %s: %s", path, own.raw)
		}
		for _, headers := range [][]string{{b}, nil} {
			for _, mode := range modes[:2] {
				read["sandboxMode"] = mode
				if got := d.run(t, read, headers...); got.Stdout.Bytes != 0 || !unseen(got) {
					t.Errorf("%q reads A's %s: %s", headers, path, got.raw)
				}
			}
		}
	}
	if got := d.refused(t, in{"command": "cat note", "workdir": filepath.Dir(note)}, 422, "WORKDIR_UNUSABLE", b); !strings.Contains(got.Detail, "hidden") {
		t.Errorf("A's workspace as B's workdir: %q", got.Detail)
	}
}

func caseI02(t *testing.T, d *daemon) {
	marker := filepath.Join(subdir(t, d, "i02"), "ran")
	body := in{"command": "touch " + marker, "sandboxMode": "workspace-write"}
	for _, header := range []string{
		"Authorization: ", "Authorization: Bearer", "Authorization: Bearer ", "Authorization: Basic YTpi", "Authorization: token",
		"Authorization: Bearer a b", "Authorization: Bearer " + strings.Repeat("a", 257), "Authorization: Bearer t\u00f6ken",
		"X-Owner-Token: ", "X-Owner-Token: a b", "X-Owner-Token: " + strings.Repeat("a", 257), "X-Owner-Token: t\u00f6ken",
	} {
		d.refusedTask(t, body, 400, "INVALID_ARGUMENT", header)
		p := d.refused(t, body, 400, "INVALID_ARGUMENT", header)
		if name, _, _ := strings.Cut(header, ":"); len(p.Errors) != 1 || p.Errors[0].Field != name || strings.Contains(p.Detail, "aaa") {
			t.Errorf("%.40s: %+v; want the header named, and no token", header, p)
		}
	}
	// One that is fine does not make up for one that is not.
	d.refused(t, body, 400, "INVALID_ARGUMENT", "X-Owner-Token: fine", "Authorization: Bearer ")
	for _, name := range []string{"Authorization: Bearer", "X-Owner-Token:"} {
		c := d.dial(t)
		c.post(t, body, name+" a", name+" b")
		if resp, raw := c.answer(t); resp.StatusCode != 400 {
			t.Errorf("%s twice: %d %s; want 400", name, resp.StatusCode, raw)
		}
		c = d.dial(t)
		c.post(t, body, name+" "+strings.Repeat("a", 128<<10))
		if resp, raw := c.answer(t); resp.StatusCode != 431 {
			t.Errorf("%s of 128 KiB: %d %s; want 431", name, resp.StatusCode, raw)
		}
	}
	if exists(marker) {
		t.Error("something ran")
	}
	longest := "X-Owner-Token: " + strings.Repeat("a", 256)
	d.get(t, d.run(t, in{"command": "true"}, longest).ID, longest)
	d.get(t, d.run(t, in{"command": "true"}).ID, longest) // nobody's is everybody's
}

func caseI03(t *testing.T, d *daemon) {
	ids := make([]string, times(200))
	for i := range ids {
		r, err := d.quick(in{"command": ":"})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = r.ID
	}
	unguessable(t, ids)
}

func caseI03Tasks(t *testing.T, _ *daemon) {
	n := times(200)
	d := start(t, fmt.Sprintf("BASHD_MAX_TASKS_PER_OWNER=%d", n))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = d.task(t, in{"command": ":"}).ID
	}
	unguessable(t, ids)
}

// unguessable sees that ids, in the order in which they were given, neither sort by time nor share anything.
func unguessable(t *testing.T, ids []string) {
	t.Helper()
	n := len(ids)
	form := regexp.MustCompile(`^bash-[a-z2-7]{26}$`)
	rising := 0
	for i, id := range ids {
		if !form.MatchString(id) {
			t.Fatalf("id %q", id)
		}
		if i > 0 && ids[i-1] < id {
			rising++
		}
	}
	if rising < n/4 || rising > n*3/4 { // five standard deviations of 40 ids, ten of 200
		t.Errorf("%d of %d ids sort behind the one before", rising, n-1)
	}
	for at := len("bash-"); at < len(ids[0]); at++ {
		seen := map[byte]bool{}
		for _, id := range ids {
			seen[id[at]] = true
		}
		if want := min(20, n/4); at < len(ids[0])-1 && len(seen) < want { // of 32; the last has 3 bits
			t.Errorf("character %d takes %d values only", at, len(seen))
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != n {
		t.Error("an id came twice")
	}
}

// caseI04 looks at all command lines of the host while a run holds secrets, from
// outside and with the eyes of another command.
func caseI04(t *testing.T, d *daemon) {
	const owner = "X-Owner-Token: i04-owner-token"
	run := d.begin(t, in{
		"command": "sleep 6204", "stdin": "i04-stdin", "env": in{"V": "i04-value"}, "sandboxMode": "workspace-write", "timeoutMs": 50000,
	}, owner)
	var lines []string
	d.await(t, "the command runs", func() bool {
		lines = processes(func(p proc) bool { return p.cmdline != "" })
		return slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, "sleep 6204") })
	})
	seen := d.run(t, in{"command": `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '`, "stdoutMaxBytes": 8 << 20})
	for name, text := range map[string]string{"outside": strings.Join(lines, "\n"), "inside": seen.Stdout.Text} {
		for _, secret := range []string{"i04-owner", "i04-stdin", "i04-value"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: a command line has %s", name, secret)
			}
		}
	}
	if status, raw := d.request(t, "POST", "/v1/runs/"+run.id+"/kill", "", owner); status != 202 {
		t.Errorf("kill: %d %s", status, raw)
	}
	if r := run.wait(t); r.Status != "killed" || r.Cause != "kill" {
		t.Errorf("%s", r.raw)
	}
}
