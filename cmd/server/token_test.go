package main

import (
	"bytes"
	"log/slog"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/auth"
	"bashd/internal/config"
)

var apiTokenForm = regexp.MustCompile(`^bashd_[A-Za-z0-9_-]{43}$`)

// makeTestToken runs `bashd token` and returns the token and its line.
func makeTestToken(t *testing.T, args ...string) (token, line string) {
	t.Helper()
	// Whatever the configuration: the server is often not yet configured then.
	code, stdout, stderr := invoke(t, []string{"BASHD_NONSENSE=1"}, append([]string{"token"}, args...)...)
	if code != 0 || strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n") {
		t.Fatalf("token %q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
	}
	for said := range strings.SplitSeq(stderr, "\n") {
		if apiTokenForm.MatchString(said) {
			token = said
		}
	}
	if token == "" || strings.Contains(stdout, token) || strings.Count(stderr, token) != 1 {
		t.Fatalf("token %q: stdout %q, stderr %q; want the token on a line of stderr and nowhere else", args, stdout, stderr)
	}
	return token, stdout
}

// TestTokenAppendsToTheFile: what is printed to stdout is what the file needs, again and again.
func TestTokenAppendsToTheFile(t *testing.T) {
	t.Parallel()
	ci, ciLine := makeTestToken(t, "ci")
	second, secondLine := makeTestToken(t, "ci", "run", "approve")
	prom, promLine := makeTestToken(t, "prom", "metrics")
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "# mine\n"+ciLine+secondLine+promLine)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]struct {
		name  string
		roles []auth.Role
	}{
		ci: {"ci", []auth.Role{auth.RoleRun}}, second: {"ci", []auth.Role{auth.RoleRun, auth.RoleApprove}}, prom: {"prom", []auth.Role{auth.RoleMetrics}},
	} {
		id, ok := tokens.Lookup(token)
		if !ok || id.Name != want.name || len(id.Roles) != len(want.roles) {
			t.Errorf("%+v is read as %+v %v", want, id, ok)
		}
		for _, r := range want.roles {
			if !id.Has(r) {
				t.Errorf("%s lacks %s", want.name, r)
			}
		}
	}
}

func TestTokenWrongUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "needs a name; see bashd token --help"},
		{[]string{""}, "1 to 64"},
		{[]string{"a b"}, "1 to 64"},
		{[]string{"a:b"}, "1 to 64"},
		{[]string{"a\nb"}, "1 to 64"},
		{[]string{strings.Repeat("n", 65)}, "1 to 64"},
		{[]string{"--role", "run"}, "no options"},
		{[]string{"ci", "admin"}, "run, approve, approve-all and metrics"},
		{[]string{"ci", "run,metrics"}, "role 1 is unknown"},
		{[]string{"ci", "run", "--help"}, "role 2 is unknown"},
		{[]string{"ci", "run", "run"}, "twice"},
	} {
		failed(t, nil, append([]string{"token"}, c.args...), c.want)
	}
}

func TestTokenHelp(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"-h", "--help"} {
		code, stdout, stderr := invoke(t, nil, "token", arg)
		if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "usage: bashd token NAME [ROLE…]\n") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", arg, code, stdout, stderr)
		}
		for _, role := range []auth.Role{auth.RoleRun, auth.RoleApprove, auth.RoleApproveAll, auth.RoleMetrics} {
			if !strings.Contains(stdout, "\n       "+string(role)+" ") {
				t.Errorf("%s: the role %s is missing", arg, role)
			}
		}
		if strings.Contains(stdout, "bashd_") {
			t.Errorf("%s: a token was made", arg)
		}
	}
	if _, stdout, _ := invoke(t, nil, "help"); !strings.Contains(stdout, "\n       bashd token NAME [ROLE…]  ") {
		t.Errorf("bashd help lacks it:\n%s", stdout)
	}
}

// TestTokenThatCannotBeWritten: a full disk under the file is told, and by the exit code.
func TestTokenThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := osexec.CommandContext(t.Context(), "/proc/self/exe", "token", "ci")
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{asMain + "=1"}, full, &stderr
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
	cmd = osexec.CommandContext(t.Context(), "/proc/self/exe", "token", "ci")
	var stdout bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{asMain + "=1"}, &stdout, full
	if err := cmd.Run(); err == nil || stdout.Len() > 0 {
		t.Errorf("%v, stdout %q: a line whose token nobody saw", err, stdout.String())
	}
}

// TestReloadOnHangup: SIGHUP reads the file again; one that is broken changes nothing.
func TestReloadOnHangup(t *testing.T) {
	line := func(name string) (token, line string) {
		t.Helper()
		token, line, err := auth.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return token, line + "\n"
	}
	first, firstLine := line("first")
	second, secondLine := line("second")
	path := filepath.Join(t.TempDir(), "tokens")
	replace := func(content string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace(firstLine)
	tokens, err := loadTokens(config.Config{TokensFile: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { signal.Reset(syscall.SIGHUP) })
	log := &logBuffer{}
	stop := reloadOnHangup(tokens, slog.New(slog.NewTextHandler(log, nil)))
	hangup := func(said string) {
		t.Helper()
		before := log.String()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if said := log.String()[len(before):]; strings.HasSuffix(said, "\n") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing happened")
			}
		}
		if got := log.String()[len(before):]; !strings.Contains(got, said) {
			t.Errorf("log: %q; want …%s…", got, said)
		}
	}
	known := func(wantFirst, wantSecond bool) {
		t.Helper()
		_, gotFirst := tokens.Lookup(first)
		_, gotSecond := tokens.Lookup(second)
		if gotFirst != wantFirst || gotSecond != wantSecond {
			t.Errorf("known: %v %v; want %v %v", gotFirst, gotSecond, wantFirst, wantSecond)
		}
	}
	replace(secondLine)
	hangup(`level=INFO msg="tokens read again" tokens=1 removed=1`)
	known(false, true)
	replace(firstLine + "canary")
	hangup(`error="line 2: must be name:hash or name:hash:role,role…" tokens=1`)
	known(false, true)
	replace("")
	hangup("level=WARN")
	known(false, false)
	replace(firstLine + secondLine)
	hangup("tokens=2 removed=0")
	known(true, true)
	stop()
	if strings.Contains(log.String(), "canary") || strings.Contains(log.String(), first) {
		t.Errorf("the log has something of the file: %s", log)
	}
}

func TestLoadTokens(t *testing.T) {
	if tokens, err := loadTokens(config.Config{}); tokens != nil || err != nil {
		t.Errorf("open mode: %v %v", tokens, err)
	}
	reloadOnHangup(nil, slog.New(slog.DiscardHandler))()
	tokens, err := loadTokens(config.Config{TokensFile: filepath.Join(t.TempDir(), "canary")})
	if tokens != nil || err == nil || err.Error() != "BASHD_TOKENS_FILE: no such file or directory" {
		t.Errorf("%v %v", tokens, err)
	}
}
