package exec_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

func ms(n int64) *time.Duration { return new(time.Duration(n) * time.Millisecond) }

func TestResolveFillsAndCaps(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.DefaultMode, s.MaxMode = sandbox.ReadOnly, sandbox.WorkspaceWrite })
	got, err := f.Resolve(alice, exec.Foreground, exec.Request{Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Timeout != time.Minute || got.Mode != sandbox.ReadOnly || got.Owner != alice.Owner || got.Workdir != f.ws+"/aaaa" ||
		got.WorkspaceRoot != got.Workdir || got.StdoutMaxBytes != 64000 || got.StderrMaxBytes != 64000 || got.Encoding != exec.EncodingText {
		t.Errorf("got %+v", got)
	}
	if st, err := os.Stat(got.WorkspaceRoot); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the workspace: %v %v", st, err)
	}
	long, err := f.Resolve(alice, exec.Foreground, exec.Request{Command: "true", Timeout: ms(1 << 40), SandboxMode: sandbox.WorkspaceWrite, StdoutMaxBytes: 5})
	if err != nil || long.Timeout != 10*time.Minute || long.Mode != sandbox.WorkspaceWrite || long.StdoutMaxBytes != 5 || long.StderrMaxBytes != 64000 {
		t.Errorf("got %+v %v", long, err)
	}
}

func TestResolveRefuses(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.DefaultMode, s.MaxMode = sandbox.ReadOnly, sandbox.WorkspaceWrite })
	file := filepath.Join(f.ws, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := f.Resolve(alice, exec.Foreground, exec.Request{Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(f.state, filepath.Join(root.WorkspaceRoot, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r     exec.Request
		code  exec.Code
		field string // or a part of the message
	}{
		"empty":            {exec.Request{}, exec.CodeInvalidArgument, "command"},
		"blank":            {exec.Request{Command: " \n\t "}, exec.CodeInvalidArgument, "command"},
		"long command":     {exec.Request{Command: strings.Repeat("x", exec.MaxCommandBytes+1)}, exec.CodeInvalidArgument, "command"},
		"NUL in command":   {exec.Request{Command: "a\x00b"}, exec.CodeInvalidArgument, "command"},
		"NUL in workdir":   {exec.Request{Command: "true", Workdir: "/\x00"}, exec.CodeInvalidArgument, "workdir"},
		"timeout 0":        {exec.Request{Command: "true", Timeout: ms(0)}, exec.CodeInvalidArgument, "timeoutMs"},
		"timeout negative": {exec.Request{Command: "true", Timeout: ms(-1)}, exec.CodeInvalidArgument, "timeoutMs"},
		"stdout too large": {exec.Request{Command: "true", StdoutMaxBytes: exec.MaxStdoutBytes + 1}, exec.CodeInvalidArgument, "stdoutMaxBytes"},
		"odd mode":         {exec.Request{Command: "true", SandboxMode: "Read-Only"}, exec.CodeInvalidArgument, "sandboxMode"},
		"odd encoding":     {exec.Request{Command: "true", Encoding: "hex"}, exec.CodeInvalidArgument, "outputEncoding"},
		"env name":         {exec.Request{Command: "true", Env: map[string]string{"A=B": "c"}}, exec.CodeInvalidArgument, "env.A=B"},
		"env empty name":   {exec.Request{Command: "true", Env: map[string]string{"": "c"}}, exec.CodeInvalidArgument, "env."},
		"env digit":        {exec.Request{Command: "true", Env: map[string]string{"1A": "c"}}, exec.CodeInvalidArgument, "env.1A"},
		"env NUL":          {exec.Request{Command: "true", Env: map[string]string{"A": "c\x00"}}, exec.CodeInvalidArgument, "env.A"},
		"env long":         {exec.Request{Command: "true", Env: map[string]string{"A": strings.Repeat("x", exec.MaxEnvEntry-1)}}, exec.CodeInvalidArgument, "env.A"},
		"wide mode":        {exec.Request{Command: "true", SandboxMode: sandbox.FullAccess}, exec.CodeModeNotAllowed, `"workspace-write"`},
		"missing workdir":  {exec.Request{Command: "true", Workdir: "/nonexistent/x"}, exec.CodeWorkdirUnusable, "does not exist"},
		"file as workdir":  {exec.Request{Command: "true", Workdir: "/etc/passwd"}, exec.CodeWorkdirUnusable, "not a directory"},
		"below a file":     {exec.Request{Command: "true", Workdir: "/etc/passwd/x"}, exec.CodeWorkdirUnusable, "not a directory"},
		// Of what is hidden nothing is told.
		"hidden: a file":  {exec.Request{Command: "true", Workdir: file}, exec.CodeWorkdirUnusable, "hidden"},
		"hidden: nothing": {exec.Request{Command: "true", Workdir: f.ws + "/none"}, exec.CodeWorkdirUnusable, "hidden"},
		"by a descriptor": {exec.Request{Command: "true", Workdir: "/proc/self/cwd"}, exec.CodeWorkdirUnusable, "/proc/self/cwd"},
		"hidden: state":   {exec.Request{Command: "true", Workdir: f.state}, exec.CodeWorkdirUnusable, "hidden"},
		"hidden: others":  {exec.Request{Command: "true", Workdir: f.ws}, exec.CodeWorkdirUnusable, "hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Resolve(alice, exec.Foreground, c.r)
			e, ok := errors.AsType[*exec.Error](err)
			if !ok || e.Code != c.code {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			if c.code == exec.CodeInvalidArgument {
				if len(e.Fields) != 1 || e.Fields[0].Field != c.field {
					t.Errorf("fields %+v, want one for %s", e.Fields, c.field)
				}
			} else if !strings.Contains(e.Message, c.field) {
				t.Errorf("message %q, want %q in it", e.Message, c.field)
			}
		})
	}
}

// TestResolveNeverTellsAnEnvValue: what is wrong with a variable is told without its value.
func TestResolveNeverTellsAnEnvValue(t *testing.T) {
	f := newFixture(t)
	for _, env := range []map[string]string{{"1A": "canary"}, {"A": "canary\x00"}, {"A": strings.Repeat("canary", 30000)}} {
		if _, err := f.Resolve(alice, exec.Foreground, exec.Request{Command: "true", Env: env}); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("got %.300v", err)
		}
	}
}

// TestWorkdirSpelling: a command is where the caller said, under the name that the
// caller gave; a relative path starts in the workspace, and ".." after a link is where chdir lands.
func TestWorkdirSpelling(t *testing.T) {
	f := newFixture(t)
	ws := f.mustRun(t, alice, exec.Request{Command: "true"}).Spec.WorkspaceRoot
	for _, d := range []string{"/real/below", "/a b é\n"} {
		if err := os.MkdirAll(ws+d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("real/below", ws+"/link"); err != nil {
		t.Fatal(err)
	}
	for workdir, want := range map[string]string{
		"":               ws,
		"real":           ws + "/real",
		"./real/../real": ws + "/real",
		"link/..":        ws + "/real",
		"a b é\n":        ws + "/a b é\n",
		ws + "/link":     ws + "/link",
		ws + "/link/..":  ws + "/real",
		ws + "/a b é\n":  ws + "/a b é\n",
		"/":              "/",
	} {
		run := f.mustRun(t, alice, exec.Request{Command: `printf %s "$PWD"; cd . && [ "$(pwd -P)" = "$(realpath "$PWD")" ]`, Workdir: workdir})
		if got := string(run.Stdout.Tail); got != want || run.Spec.Workdir != want || *run.ExitCode != 0 {
			t.Errorf("workdir %q: $PWD %q, spec %q, exit code %d, want %q", workdir, got, run.Spec.Workdir, *run.ExitCode, want)
		}
	}
}
