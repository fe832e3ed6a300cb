package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCasesE is about the command itself: it runs as it was written, or is
// refused before anything ran.
func TestCasesE(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"E01", caseE01},
		{"E01 semantics", caseE01Semantics},
		{"E02", caseE02},
		{"E02 all together", caseE02Total},
		{"E03", caseE03},
		{"E05", caseE05},
		{"E07", caseE07},
		{"E08", caseE08},
	})
}

const maxCommand = 1 << 20

// padded puts a comment in front of a command, so that it is size bytes long.
func padded(command string, size int) string {
	return ": '" + strings.Repeat("x", size-len(command)-len(": ''\n")) + "'\n" + command
}

func caseE01(t *testing.T, d *daemon) {
	for _, size := range []int{131070, 131071, 131072, 131073, 300000, maxCommand} {
		r := d.run(t, in{"command": padded("echo ok", size), "timeoutMs": 30000})
		r.exited(t, 0)
		r.printed(t, "ok\n", "")
	}
	for _, size := range []int{maxCommand + 1, 3_000_000} {
		p := d.refused(t, in{"command": padded("echo ok", size)}, 400, "INVALID_ARGUMENT")
		if !strings.Contains(p.Detail, fmt.Sprint(maxCommand)) || len(p.Errors) != 1 || p.Errors[0].Field != "command" {
			t.Errorf("%+v; want the limit and the field named", p)
		}
	}
	d.sh(t, "echo next").printed(t, "next\n", "")
}

// caseE01Semantics: a command that is too long for an argument of execve runs just like
// a short one.
func caseE01Semantics(t *testing.T, d *daemon) {
	for _, command := range []string{
		`printf '%s|' "$0" $# "$-" "${#BASH_SOURCE[@]}" "${BASH_SOURCE[0]}" "$BASH_SUBSHELL" "$SHLVL"`,
		"return 3; echo after=$?",
		"exit 300",
		"echo a\nif then",
		"echo \"abc",
		"cat <<E\nhere\nE",
		"cat; ls /proc/self/fd | wc -l",
		"set -e; false; echo no",
		"kill -TERM $$",
		"echo no newline # and a comment",
		"echo back\\",
	} {
		short := d.run(t, in{"command": command, "stdin": "given\n"})
		long := d.run(t, in{"command": padded(command, 200_000), "stdin": "given\n", "timeoutMs": 30000})
		if long.code() != short.code() || long.signal() != short.signal() || long.Stdout.Text != short.Stdout.Text {
			t.Errorf("%q: long: exit %d %s %q %q\nshort: exit %d %s %q %q", command,
				long.code(), long.signal(), long.Stdout.Text, long.Stderr.Text, short.code(), short.signal(), short.Stdout.Text, short.Stderr.Text)
		}
		if (long.Stderr.Bytes == 0) != (short.Stderr.Bytes == 0) {
			t.Errorf("%q: long: stderr %q, short: %q", command, long.Stderr.Text, short.Stderr.Text)
		}
	}
}

func caseE02(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "echo ${#V}", "env": in{"V": strings.Repeat("v", 131000)}})
	r.exited(t, 0)
	r.printed(t, "131000\n", "")

	p := d.refused(t, in{"command": "echo ${#V}", "env": in{"V": strings.Repeat("v", 140000)}}, 400, "INVALID_ARGUMENT")
	if len(p.Errors) != 1 || p.Errors[0].Field != "env.V" || strings.Contains(fmt.Sprint(p), "vvv") {
		t.Errorf("%.500v; want env.V named, without its value", p)
	}

	many := in{}
	for i := range 5000 {
		many[fmt.Sprintf("MANY_%d", i)] = fmt.Sprint(i)
	}
	r = d.run(t, in{"command": "compgen -e MANY_ | wc -l; echo $MANY_4999", "env": many})
	r.exited(t, 0)
	r.printed(t, "5000\n4999\n", "")
}

// caseE02Total: entries that are each small enough and together too much for execve.
func caseE02Total(t *testing.T, d *daemon) {
	env := in{}
	for i := range 55 {
		env[fmt.Sprintf("V%d", i)] = strings.Repeat("v", 130_000)
	}
	p := d.refused(t, in{"command": "echo ran", "env": env}, 400, "INVALID_ARGUMENT")
	if len(p.Errors) != 1 || p.Errors[0].Field != "env" || strings.Contains(fmt.Sprint(p), "vvv") {
		t.Errorf("%.500v; want env named, without a value", p)
	}
	d.sh(t, "echo next").printed(t, "next\n", "")
}

func caseE03(t *testing.T, d *daemon) {
	marker := filepath.Join(subdir(t, d, "e03"), "ran")
	touch := "touch " + marker
	for field, body := range map[string]in{
		"command": {"command": touch + "\x00; echo b"},
		"env.X":   {"command": touch, "env": in{"X": "a\x00b"}},
		"workdir": {"command": touch, "workdir": "/tmp\x00/x"},
	} {
		all := in{"sandboxMode": "workspace-write"}
		maps.Copy(all, body)
		p := d.refused(t, all, 400, "INVALID_ARGUMENT")
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%+v; want %s named", p, field)
		}
	}
	if exists(marker) {
		t.Error("something ran")
	}
	d.sh(t, "echo alive").printed(t, "alive\n", "")
}

func caseE05(t *testing.T, d *daemon) {
	for command, message := range map[string]string{
		`echo "abc`: "unexpected EOF",
		"if then":   "syntax error",
	} {
		r := d.sh(t, command)
		r.exited(t, 2)
		if r.Stdout.Bytes != 0 || !strings.Contains(r.Stderr.Text, message) {
			t.Errorf("%q: stdout %q, stderr %q; want bash's %q", command, r.Stdout.Text, r.Stderr.Text, message)
		}
	}
	for _, command := range []string{"", "  \n ", "\t", "\r\n"} {
		p := d.refused(t, in{"command": command}, 400, "INVALID_ARGUMENT")
		if len(p.Errors) != 1 || p.Errors[0].Field != "command" {
			t.Errorf("%q: %+v; want command named", command, p)
		}
	}
}

func caseE07(t *testing.T, d *daemon) {
	r := d.sh(t, "echo hi\r\nexit 3\r\n")
	r.exited(t, 2)
	if r.Stdout.Text != "hi\r\n" || !strings.Contains(r.Stderr.Text, "numeric argument required") {
		t.Errorf("stdout %q, stderr %q; want the command passed through as it was", r.Stdout.Text, r.Stderr.Text)
	}
}

func caseE08(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "nosuchcmd_zz", "timeoutMs": 20000})
	r.exited(t, 127)
	r.tookLess(t, prompt)
	if !strings.Contains(r.Stderr.Text, "nosuchcmd_zz") {
		t.Errorf("stderr %q; want the name", r.Stderr.Text)
	}

	began := time.Now()
	k := d.task(t, in{"command": "nosuchcmd_zz"})
	end := d.waitTask(t, k.ID)
	end.exited(t, 127)
	if took := time.Since(began); took > prompt || end.Detail != "" {
		t.Errorf("the end came after %v, with detail %q", took, end.Detail)
	}
	if p := d.read(t, k.ID); !strings.Contains(p.Stderr.Text, "nosuchcmd_zz") || !p.EOF || !strings.HasPrefix(p.Delta, "[stderr]\n") {
		t.Errorf("delta %q, eof %t; want the name, and the end", p.Delta, p.EOF)
	}
}
