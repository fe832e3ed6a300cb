package sandbox_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bashd/internal/sandbox"
)

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		role()
		return
	}
	before := hostSettings()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeProgram()
		if after := hostSettings(); after != before {
			fmt.Printf("the host's settings were\n%s\nand are\n%s\n", before, after)
			code = 1
		}
		os.Exit(code)
	}))
}

// hostSettings are settings of the whole system that a sandbox has to do with and must leave alone: on kernels before 6.14 a namespace's bound on
// process ids is the host's.
func hostSettings() (all string) {
	for _, name := range []string{"pid_max", "threads-max", "core_pattern", "hostname"} {
		b, err := os.ReadFile("/proc/sys/kernel/" + name)
		all += fmt.Sprintln(name, strings.TrimSpace(string(b)), err)
	}
	return all
}

// fixture is a sandbox over a state directory with an owner's own directory in it.
type fixture struct {
	*sandbox.Sandbox
	state, own, temp, ws, out string
	runAs                     *sandbox.Credential
	tier                      string // the one that was asked for
}

// tempEnv names where tempDir makes its directories, for a process that is killed and cannot tidy up.
const tempEnv = "TEST_TEMP_DIR"

// tempDir is a directory that commands can see: not below /tmp, which some have to themselves.
func tempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv(tempEnv), "/var/tmp"), "bashd-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func newFixture(tb testing.TB, change ...func(*sandbox.Config)) *fixture {
	tb.Helper()
	base := tempDir(tb)
	f := &fixture{state: base + "/state", own: base + "/state/own", temp: base + "/state/own/tmp", ws: base + "/ws", out: base + "/out"}
	for _, d := range []string{f.state, f.own, f.temp, f.ws, f.out} {
		if err := os.Mkdir(d, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	cfg := sandbox.Config{Shell: "/bin/bash", Scratch: f.state}
	for _, c := range change {
		c(&cfg)
	}
	f.runAs = cfg.RunAs
	if c := cfg.RunAs; c != nil {
		for _, dir := range []string{base, f.state, f.own} {
			must(tb, os.Chmod(dir, 0o711))
		}
		for _, dir := range []string{f.temp, f.ws, f.out} {
			must(tb, os.Chown(dir, int(c.UID), int(c.GID)))
		}
	}
	sb, err := sandbox.New(context.Background(), cfg)
	must(tb, err)
	f.Sandbox = sb
	tb.Cleanup(func() { f.Close() })
	return f
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// nobody is whom commands run as where they run as another user.
var nobody = sandbox.Credential{UID: 65534, GID: 65534}

// everyTier runs a test for each tier that this host has, by name: the tests that matter hold in each of them.
func everyTier(t *testing.T, test func(t *testing.T, f *fixture), change ...func(*sandbox.Config)) {
	t.Helper()
	for _, tier := range []struct {
		name, tier string
		runAs      *sandbox.Credential
	}{
		{"A", sandbox.TierNamespaces, nil},
		{"A as another user", sandbox.TierNamespaces, &nobody},
		{"B", sandbox.TierUser, &nobody},
		{"C", sandbox.TierLandlock, nil},
	} {
		t.Run(tier.name, func(t *testing.T) {
			if tier.runAs != nil && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			if os.Getenv("TEST_ONE_USER") != "" && tier.runAs != nil {
				t.Skip("one user a tier is enough for a short run")
			}
			f := newFixture(t, append([]func(*sandbox.Config){func(c *sandbox.Config) { c.Tier, c.RunAs = tier.tier, tier.runAs }}, change...)...)
			f.tier = tier.tier
			if why := f.Report().ReadOnly.Unavailable; why != "" {
				t.Skipf("this host has no such tier: %s", why)
			}
			test(t, f)
		})
	}
}

// long is set where there is time for the long forms of the tests: with BASHD_TEST_LONG=1.
var long = os.Getenv("BASHD_TEST_LONG") != ""

// modes are those to try something in. Under full access nothing of a tier is in force but whom it runs commands as, so that
// one tier for each user is enough.
func (f *fixture) modes() []sandbox.Mode {
	if !long && (f.tier == sandbox.TierLandlock || f.tier == sandbox.TierNamespaces && f.runAs != nil) {
		return confinedModes
	}
	return sandbox.Modes()
}

// treesOnce leaves out the one tier of which two users are tried: who a tree belongs to makes no difference where a namespace
// holds it.
func (f *fixture) treesOnce(t *testing.T) {
	t.Helper()
	if !long && f.tier == sandbox.TierNamespaces && f.runAs != nil {
		t.Skip("in the long form only: as in A")
	}
}

// needs skips where the host cannot confine in that mode.
func (f *fixture) needs(tb testing.TB, mode sandbox.Mode) {
	tb.Helper()
	if reason := f.Report().Mode(mode).Unavailable; reason != "" {
		tb.Skipf("this host cannot confine: %s", reason)
	}
}

func (f *fixture) command(tb testing.TB, mode sandbox.Mode, script string) sandbox.Command {
	tb.Helper()
	p, err := f.Policy(mode, f.ws, f.temp, []string{f.own})
	if err != nil {
		tb.Fatal(err)
	}
	return sandbox.Command{
		Policy: p, Script: script, Workdir: f.ws,
		Env: []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + f.tempOf(mode), "OUT=" + f.out, "WS=" + f.ws},
	}
}

// tempOf is the TMPDIR of commands of that mode.
func (f *fixture) tempOf(mode sandbox.Mode) string {
	if f.PrivateTemp(mode) {
		return "/tmp"
	}
	return f.temp
}

type outcome struct {
	stdout, stderr string
	status         syscall.WaitStatus
	survivors      int
}

// run runs a command to its end, with both streams collected.
func (f *fixture) run(tb testing.TB, c sandbox.Command) outcome {
	tb.Helper()
	p, err := f.Start(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return finish(tb, p)
}

// hung is after what time a command is taken to hang: building a program with an empty cache takes half a minute where both
// processors have other work.
const hung = 2 * time.Minute

func finish(tb testing.TB, p *sandbox.Process) outcome {
	tb.Helper()
	stdout, stderr := collect(p.Stdout), collect(p.Stderr)
	select {
	case <-p.Exited():
	case <-time.After(hung):
		p.Kill()
		tb.Error("the command did not end")
	}
	if !p.Alone() {
		p.Kill()
	}
	<-p.Gone()
	ws, ok := p.Status()
	if !ok {
		tb.Error("the runner was lost")
	}
	return outcome{<-stdout, <-stderr, ws, p.Survivors()}
}

// collect reads a stream to its end, closes it and hands over what came.
func collect(f *os.File) <-chan string {
	all := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(f)
		f.Close()
		all <- string(b)
	}()
	return all
}

func TestReportIsHonest(t *testing.T) {
	f := newFixture(t)
	r := f.Report()
	t.Logf("%+v", r)
	if r.ABI == 0 {
		t.Skip("no Landlock here")
	}
}

func TestExitStatus(t *testing.T) { everyTier(t, testExitStatus) }

func testExitStatus(t *testing.T, f *fixture) {
	for _, mode := range f.modes() {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			got := f.run(t, f.command(t, mode, `echo out; echo err >&2; exit 7`))
			if got.stdout != "out\n" || got.stderr != "err\n" || got.status.ExitStatus() != 7 {
				t.Errorf("got %+v", got)
			}
			got = f.run(t, f.command(t, mode, `kill -9 $$`))
			if !got.status.Signaled() || got.status.Signal() != syscall.SIGKILL {
				t.Errorf("got %+v", got)
			}
		})
	}
}
