package exec_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// env runs a command that prints its environment, NUL-separated, under mode.
func (f *fixture) env(t *testing.T, mode sandbox.Mode, request map[string]string) map[string]string {
	t.Helper()
	run := f.mustRun(t, alice, exec.Request{Command: `env -0`, SandboxMode: mode, Env: request})
	if run.ExitCode == nil || *run.ExitCode != 0 {
		t.Fatalf("got %+v", run)
	}
	env := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(run.Stdout.Tail), "\x00"), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := env[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		env[name] = value
	}
	return env
}

// daemonEnv is an environment with everything in it that must not reach a command.
var daemonEnv = []string{
	"PATH=" + os.Getenv("PATH"), "HOME=/home/daemon", "PLAIN=kept", "EMPTY=",
	"OPENAI_API_KEY=s", "GITHUB_TOKEN=s", "aws_secret_access_key=s", "DbPassword=s", "PGPASSFILE_PASSWD=s",
	"SSH_PASSPHRASE=s", "GOOGLE_APPLICATION_CREDENTIALS=s", "PRIVATE_THING=s",
	"MYSQL_PWD=s", "MY_PASS=s", "NPM_CONFIG__AUTH=s", "COOKIE=s", "JWT=s", "SLACK_WEBHOOK=s", "SSH_AUTH_SOCK=/s",
	"DATABASE_URL=postgres://u:s@h/d", "HTTP_PROXY=http://u:s@proxy:1", "HTTPS_PROXY=http://proxy:1", "GIT_AUTHOR_NAME=a",
	"MONKEY=1", "KEYBOARD_LAYOUT=us", "TOKENIZERS_PARALLELISM=false",
	"BASHD_LISTEN=x", "DSH_OLD=x", "DSH_TASK_ID=x",
	"BASH_ENV=/nonexistent/x", "ENV=/nonexistent/x", "SHELLOPTS=errexit:xtrace", "BASHOPTS=extglob", "PS4=x", "PROMPT_COMMAND=x",
	"BASH_FUNC_ls%%=() { echo HIJACK; }", "LD_PRELOAD=/nonexistent.so", "LD_AUDIT=x", "LD_LIBRARY_PATH=/nonexistent",
	"PWD=/elsewhere", "OLDPWD=/elsewhere", "SHLVL=7", "TERM=xterm", "PAGER=less",
}

func TestEnvironmentIsScrubbed(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) {
		s.Environ = daemonEnv
		s.EnvKeep = []string{"MONKEY", "KEYBOARD_LAYOUT"}
		s.ManagedEnv = []exec.ManagedVar{{Name: "DSH_X", Value: "operator"}}
	})
	for _, mode := range sandbox.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			if why := f.sandbox.Report().Mode(mode).Unavailable; why != "" {
				t.Skip(why)
			}
			got := f.env(t, mode, nil)
			taskID := got["DSH_TASK_ID"]
			for _, own := range []string{"_", "SHLVL", "DSH_TASK_ID", "TMPDIR"} {
				delete(got, own)
			}
			want := map[string]string{
				"PATH": os.Getenv("PATH"), "HOME": "/home/daemon", "LANG": "C.UTF-8", "LC_MESSAGES": "C.UTF-8", "PLAIN": "kept", "EMPTY": "", "HTTPS_PROXY": "http://proxy:1", "GIT_AUTHOR_NAME": "a",
				"MONKEY": "1", "KEYBOARD_LAYOUT": "us",
				"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
				"DSH_SHELL": "1", "DSH_HOME": "/dsh", "DSH_X": "operator", "PWD": f.ws + "/aaaa",
			}
			if !maps.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", sorted(got), sorted(want))
			}
			if !strings.HasPrefix(taskID, "bash-") {
				t.Errorf("DSH_TASK_ID is %q", taskID)
			}
		})
	}
}

func sorted(m map[string]string) (s []string) {
	for k, v := range m {
		s = append(s, k+"="+v)
	}
	slices.Sort(s)
	return s
}

// TestEnvironmentOrder: later sources win: the request over the inherited and the terminal
// facts, managed facts over the request.
func TestEnvironmentOrder(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) {
		s.Environ = daemonEnv
		s.ManagedEnv = []exec.ManagedVar{{Name: "DSH_X", Value: "operator"}}
	})
	got := f.env(t, sandbox.FullAccess, map[string]string{
		"PLAIN": "mine", "TERM": "vt100", "MY_TOKEN": "abc", "DSH_X": "mine", "DSH_SHELL": "0", "DSH_TASK_ID": "mine", "DSH_MINE": "ok",
		"LC_ALL": "C", "WITH_EQUALS": "a=b=c", "WITH_NEWLINE": "a\nB=c",
	})
	for name, want := range map[string]string{
		"PLAIN": "mine", "TERM": "vt100", "MY_TOKEN": "abc", "DSH_X": "operator", "DSH_SHELL": "1", "DSH_MINE": "ok",
		"LC_ALL": "C", "WITH_EQUALS": "a=b=c", "WITH_NEWLINE": "a\nB=c",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if got["DSH_TASK_ID"] == "mine" {
		t.Error("a request displaced DSH_TASK_ID")
	}
	if _, ok := got["LC_MESSAGES"]; ok {
		t.Error("LC_MESSAGES was set although the request chose a language")
	}
	if _, ok := got["B"]; ok {
		t.Error("a value became a variable")
	}
}

// TestEnvironmentFromNothing: a daemon without an environment still gives commands a
// working one.
func TestEnvironmentFromNothing(t *testing.T) {
	f := newFixture(t, func(s *exec.Settings) { s.Environ = nil })
	got := f.env(t, sandbox.FullAccess, nil)
	if got["PATH"] == "" || got["HOME"] == "" || got["LANG"] != "C.UTF-8" {
		t.Errorf("got %q", sorted(got))
	}
}
