package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCasesM is about the sandbox: what each mode allows and refuses, and whether
// a failure is told from a refusal. What depends on how far this host enforces
// a mode is judged by what /v1/info says.
func TestCasesM(t *testing.T) {
	t.Parallel()
	d := start(t, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"M02", caseM02},
		{"M03", caseM03},
		{"M05", caseM05},
		{"M06", caseM06},
		{"M08", caseM08},
		{"M13", caseM13},
		{"M14", caseM14},
		{"M16", caseM16},
		{"M20", caseM20},
		{"M20 unknown mode", caseM20Unknown},
		{"M21", caseM21},
		{"M25", caseM25},
		{"M25 gone at once", caseM25Orphan},
		{"M25 unix socket", caseM25Unix},
	})
}

// deniedAt checks that a run's failure is told to be the sandbox's doing, at that path.
func (r result) deniedAt(tb testing.TB, path string) {
	tb.Helper()
	if r.code() <= 0 || !r.Sandbox.Denied || r.Sandbox.Denial == nil || r.Sandbox.Denial.Path != path || r.Sandbox.Denial.Evidence == "" {
		tb.Errorf("%s; want a failure, denied at %s", r.raw, path)
	}
}

// notDenied checks the exit code, and that the sandbox is not blamed for it.
func (r result) notDenied(tb testing.TB, code int) {
	tb.Helper()
	r.exited(tb, code)
	if r.Sandbox.Denied || r.Sandbox.Denial != nil || r.Sandbox.Hint != "" {
		tb.Errorf("%s; want no denial", r.raw)
	}
}

func caseM02(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "touch s-m02; chmod 644 s-m02; ./s-m02", "sandboxMode": "workspace-write"})
	r.notDenied(t, 126)
	if !strings.Contains(r.Stderr.Text, "Permission denied") {
		t.Errorf("stderr %q: this shows nothing", r.Stderr.Text)
	}
}

func caseM03(t *testing.T, d *daemon) {
	for _, command := range []string{
		"echo 'touch: x: Read-only file system' >&2; exit 1",
		"echo 'Operation not permitted'; exit 1",
		"echo 'Permission denied' >&2; exit 1",
		"echo 'Permission denied (publickey)' >&2; exit 255",
	} {
		d.sh(t, command).notDenied(t, map[bool]int{true: 255, false: 1}[strings.Contains(command, "publickey")])
	}
}

func caseM05(t *testing.T, d *daemon) {
	file := d.out + "/m05"
	r := d.sh(t, fmt.Sprintf("echo x > '%s' 2>/dev/null; echo x > m05; true", file))
	r.notDenied(t, 0)
	if exists(file) || exists(d.shared()+"/m05") {
		t.Error("it was written")
	}
}

func caseM06(t *testing.T, d *daemon) {
	for _, mode := range modes {
		r := d.run(t, in{"command": "echo a >/dev/null; echo b >/dev/stderr; echo c | tee /dev/stderr >/dev/null; cat <(echo d)", "sandboxMode": mode})
		r.notDenied(t, 0)
		r.printed(t, "d\n", "b\nc\n")
	}
}

// caseM08: where TMPDIR is the command's own, it works, is private, and is gone afterwards.
func caseM08(t *testing.T, d *daemon) {
	for _, mode := range modes {
		r := d.run(t, in{
			"command":     `f=$(mktemp) && echo $f && d=$(mktemp -d) && : >$d/x && cat <<<"$(seq 1 50000)" | tail -1; [ "$TMPDIR" = "" ] || stat -c %a "$TMPDIR"`,
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
		if !strings.HasPrefix(lines[0], d.state+"/") || len(lines) != 3 || lines[2] != "700" {
			t.Errorf("%s: temporary files at %s; want the command's own directory of mode 0700 (%s)", mode, lines[0], r.Stdout.Text)
		}
		if exists(lines[0]) || exists(filepath.Dir(lines[0])) {
			t.Errorf("%s: %s outlives its command", mode, filepath.Dir(lines[0]))
		}
	}
}

// caseM13 leads out of the workspace by symbolic links.
func caseM13(t *testing.T, d *daemon) {
	out, ws := d.out+"/m13", subdir(t, d, "m13")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, out+"/f", "kept")
	for link, target := range map[string]string{"esc": out, "escf": out + "/f"} {
		if err := os.Symlink(target, ws+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	body := func(command string) in {
		return in{"command": command, "workdir": ws, "sandboxMode": "workspace-write"}
	}
	d.run(t, body("echo x>esc/n")).deniedAt(t, out+"/n")
	d.run(t, body("echo x>escf")).deniedAt(t, out+"/f")
	d.run(t, body("rm esc/f")).deniedAt(t, out+"/f")
	d.run(t, body("mv esc/f here")).deniedAt(t, out+"/f")
	for _, command := range []string{"ln esc/f hl", "ln '" + out + "/f' hl", "cp -l esc/f hl"} {
		if r := d.run(t, body(command)); r.code() == 0 {
			t.Errorf("%s: %s", command, r.raw)
		}
	}
	if r := d.run(t, body("echo x>esc/n; echo x>escf; ln '"+out+"/f' hl")); r.code() == 0 || !r.Sandbox.Denied {
		t.Errorf("all three at once: %s; want a denial", r.raw)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 1 || content(out+"/f") != "kept" || exists(ws+"/hl") || exists(ws+"/here") {
		t.Errorf("outside: %v (%v), f %q", entries, err, content(out+"/f"))
	}
	// Inside, all of that works.
	d.run(t, body("mkdir a b; echo x>a/f; ln a/f hl2; mv a/f b/f; ln -s b/f l; echo y>>l; rm -r b hl2 l; rmdir a")).notDenied(t, 0)
}

func caseM14(t *testing.T, d *daemon) {
	file, fresh := d.out+"/m14", d.out+"/m14-new"
	write(t, file, "kept")
	for _, mode := range modes[:2] {
		d.run(t, in{"command": ": > '" + file + "'", "sandboxMode": mode}).deniedAt(t, file)
		d.run(t, in{"command": "> '" + fresh + "'", "sandboxMode": mode}).deniedAt(t, fresh)
		d.run(t, in{"command": "echo x >> '" + file + "'", "sandboxMode": mode}).deniedAt(t, file)
		if d.gap(t, mode, "truncate") {
			continue // said to be missing, and then that is no promise
		}
		d.run(t, in{"command": "truncate -s0 '" + file + "'", "sandboxMode": mode}).deniedAt(t, file)
	}
	if content(file) != "kept" || exists(fresh) {
		t.Errorf("f is %q, new exists: %t", content(file), exists(fresh))
	}
}

// gap reports that /v1/info admits a gap in a confined mode.
func (d *daemon) gap(tb testing.TB, mode, name string) bool {
	tb.Helper()
	i := d.info(tb)
	report := map[string]modeInfo{"read-only": i.Sandbox.ReadOnly, "workspace-write": i.Sandbox.WorkspaceWrite}[mode]
	return report.Enforcement != "full" && slices.Contains(report.Gaps, name)
}

// caseM16 takes Landlock away from the daemon: no confined command runs then.
func caseM16(t *testing.T, _ *daemon) {
	needsTool(t, "strace")
	wrapper := []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=landlock_create_ruleset", "-e", "inject=landlock_create_ruleset:error=ENOSYS"}
	if out, err := osexec.Command(wrapper[0], append(wrapper[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("strace cannot inject here: %v %s", err, out)
	}
	d := launchIn(t, surroundings{wrapper: wrapper}, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	t.Cleanup(func() { d.stop(t) })
	for _, mode := range modes[:2] {
		p := d.refused(t, in{"command": "touch '" + d.out + "/marker'; echo ran", "sandboxMode": mode}, 503, "SANDBOX_UNAVAILABLE")
		if !strings.Contains(p.Detail, "Landlock") || !strings.Contains(p.Detail, mode) {
			t.Errorf("detail %q; want the mode and the missing feature", p.Detail)
		}
	}
	d.refused(t, in{"command": "touch '" + d.out + "/marker'"}, 503, "SANDBOX_UNAVAILABLE")
	if exists(d.out + "/marker") {
		t.Error("the command ran unconfined")
	}
	i := d.info(t)
	if i.Sandbox.Tier != "none" || !strings.Contains(i.Sandbox.ReadOnly.Unavailable, "Landlock") || i.Sandbox.ReadOnly.Enforcement != "" {
		t.Errorf("info %+v", i)
	}
	if status, raw := d.request(t, "GET", "/readyz", ""); status != 503 || !strings.Contains(string(raw), "sandbox") {
		t.Errorf("readyz: %d %s; want 503, since the default mode is refused", status, raw)
	}
	d.run(t, in{"command": "echo ok", "sandboxMode": "danger-full-access"}).printed(t, "ok\n", "")
}

// caseM20 is the table of what each mode allows.
func caseM20(t *testing.T, d *daemon) {
	tmp := filepath.Join("/tmp", filepath.Base(filepath.Dir(d.cmd.Dir))+"-m20")
	t.Cleanup(func() { os.Remove(tmp) })
	for _, mode := range modes {
		confined, writes := mode != "danger-full-access", mode != "read-only"
		for _, op := range []struct {
			command, creates string
			allowed          bool
		}{
			{"echo x > f-m20", d.shared() + "/f-m20", writes},
			{"echo x > " + tmp, tmp, !confined},
			{"echo x > ~/f-m20", d.cmd.Dir + "/f-m20", !confined},
			{"cat /etc/passwd", "", true},
			{"echo x > /dev/null", "", true},
			{"echo x > \"$(mktemp)\"", "", true},
			{"mkdir /etc/m20 && rmdir /etc/m20", "", !confined && os.Geteuid() == 0},
		} {
			r := d.run(t, in{"command": op.command, "sandboxMode": mode})
			if (r.code() == 0) != op.allowed || op.creates != "" && exists(op.creates) != op.allowed {
				t.Errorf("%s: %s: %s; want it allowed: %t", mode, op.command, r.raw, op.allowed)
			}
			if op.creates != "" {
				if !op.allowed {
					r.deniedAt(t, op.creates)
				}
				os.Remove(op.creates)
			}
			if r.Sandbox.Mode != mode || r.Spec["sandboxMode"] != mode {
				t.Errorf("told as mode %s, %v; want %s", r.Sandbox.Mode, r.Spec["sandboxMode"], mode)
			}
		}
	}
}

func caseM20Unknown(t *testing.T, d *daemon) {
	file := d.out + "/m20"
	for _, mode := range []any{"Read-Only", "READ-ONLY", "full", "none", "", " read-only", "read-only\n", "danger_full_access", nil, 0, []string{"read-only"}} {
		p := d.refused(t, in{"command": "touch '" + file + "'", "sandboxMode": mode}, 400, "INVALID_ARGUMENT")
		if len(p.Errors) != 1 || p.Errors[0].Field != "sandboxMode" {
			t.Errorf("%v: %+v; want sandboxMode named", mode, p)
		}
	}
	narrow := start(t)
	p := narrow.refused(t, in{"command": "touch '" + file + "'", "sandboxMode": "danger-full-access"}, 403, "MODE_NOT_ALLOWED")
	if !strings.Contains(p.Detail, "workspace-write") {
		t.Errorf("detail %q; want the widest mode that is allowed", p.Detail)
	}
	if exists(file) {
		t.Error("something ran")
	}
}

func caseM21(t *testing.T, d *daemon) {
	file := d.out + "/m21"
	d.sh(t, fmt.Sprintf("echo x > '%s' && cat '%[1]s'", file)).deniedAt(t, file)
	d.sh(t, "test -e '"+file+"'").notDenied(t, 1)
	r := d.sh(t, "echo x > f-m21 && cat f-m21") // in the workspace, where a wider mode would do
	r.deniedAt(t, d.shared()+"/f-m21")
	if r.Sandbox.Hint != `sandboxMode "workspace-write" is allowed` {
		t.Errorf("hint %q", r.Sandbox.Hint)
	}
}

// callAPI is a command that asks the API for a run in the widest mode, with
// nothing but bash.
func callAPI(addr, marker string) string {
	host, port, _ := net.SplitHostPort(addr)
	body := fmt.Sprintf(`{"command":"touch %s","sandboxMode":"danger-full-access"}`, marker)
	return fmt.Sprintf(`exec 3<>/dev/tcp/%s/%s; printf 'POST /v1/runs HTTP/1.1\r\nHost: %[1]s:%[2]s\r\nConnection: close\r\n`+
		`Content-Type: application/json\r\nContent-Length: %[3]d\r\n\r\n%%s' '%[4]s' >&3`, host, port, len(body), body)
}

// caseM25: a command is not a caller, and finds no secret of the service either.
func caseM25(t *testing.T, d *daemon) {
	for i, mode := range modes {
		marker := fmt.Sprintf("%s/m25-%d", d.out, i)
		for _, command := range []string{callAPI(d.addr, marker) + "; cat <&3", "(" + callAPI(d.addr, marker) + "; setsid cat <&3) | cat"} {
			r := d.run(t, in{"command": command, "sandboxMode": mode, "timeoutMs": 30000})
			if !strings.HasPrefix(r.Stdout.Text, "HTTP/1.1 403 ") || !strings.Contains(r.Stdout.Text, `"FORBIDDEN"`) {
				t.Errorf("%s: the command was answered %s; want 403", mode, r.raw)
			}
		}
		if exists(marker) {
			t.Errorf("%s: it escaped", mode)
		}
	}
	for _, mode := range modes[:2] {
		for _, path := range []string{"cursor.key", "lock"} {
			r := d.run(t, in{"command": "cat '" + d.state + "/" + path + "'", "sandboxMode": mode})
			r.deniedAt(t, d.state+"/"+path)
			if r.Stdout.Bytes != 0 {
				t.Errorf("%s: %s can be read", mode, path)
			}
		}
	}
}

// caseM25Orphan: nor is one that is gone when its request is looked at.
func caseM25Orphan(t *testing.T, _ *daemon) {
	d := start(t, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	marker := d.out + "/m25"
	const n = 5
	for range n {
		d.run(t, in{"command": callAPI(d.addr, marker) + "; exec 3<&-; kill -9 $$"})
	}
	d.await(t, "every request was refused", func() bool {
		_, raw := d.request(t, "GET", "/metrics", "")
		return strings.Contains(string(raw), fmt.Sprintf(`bashd_rejections_total{code="FORBIDDEN"} %d`, n))
	})
	if exists(marker) || len(d.list(t)) != n {
		t.Errorf("it escaped: %v", d.list(t))
	}
}

// caseM25Unix is the same by a unix socket.
func caseM25Unix(t *testing.T, _ *daemon) {
	needsTool(t, "curl")
	dir, err := os.MkdirTemp("", "bashd") // t.TempDir's paths can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := dir + "/s"
	d := launchIn(t, surroundings{}, "BASHD_LISTEN=unix:"+socket, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	t.Cleanup(func() { d.stop(t) })
	curl := func(command, mode string) string {
		return fmt.Sprintf(`curl -sS -m 20 --unix-socket %s http://localhost/v1/runs -H 'Content-Type: application/json' -d '%s'`,
			socket, strings.TrimSpace(mustJSON(t, in{"command": command, "sandboxMode": mode})))
	}
	for i, mode := range modes {
		marker := fmt.Sprintf("%s/m25-%d", d.out, i)
		script := filepath.Join(dir, fmt.Sprintf("call-%d", i))
		write(t, script, curl("touch "+marker, "danger-full-access"))
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := osexec.Command("sh", "-c", curl("sh "+script, mode)).CombinedOutput()
		var r result
		if err != nil || json.Unmarshal(out, &r) != nil {
			t.Fatalf("%s: %v %s", mode, err, out)
		}
		if !strings.Contains(r.Stdout.Text, `"FORBIDDEN"`) || exists(marker) {
			t.Errorf("%s: the command was answered %s; want 403", mode, out)
		}
	}
}
