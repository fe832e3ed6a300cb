package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/sandbox"
	"bashd/internal/sandbox/prober"
)

// probeEnv is an environment whose state directory does not exist.
func probeEnv(t *testing.T, more ...string) (env []string, state string) {
	t.Helper()
	base := passable(t)
	state = base + "/none/state"
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "TMPDIR=" + base, "BASHD_STATE_DIR=" + state, "BASHD_WORKSPACE=" + base + "/none/ws"}, more...), state
}

// probed runs `bashd probe -json`, which must exit with that code.
func probed(t *testing.T, env []string, want int) *probeReport {
	t.Helper()
	r := &probeReport{}
	code, stdout, stderr := invoke(t, env, "probe", "-json")
	if err := json.Unmarshal([]byte(stdout), r); err != nil || code != want || (stderr == "") != (want == 0) {
		t.Fatalf("%v: exit %d, want %d, stdout %.300q, stderr %q", err, code, want, stdout, stderr)
	}
	return r
}

// TestProbeSaysWhatTheServerSays: the report is that of a server with the same configuration, and nothing of it is left.
func TestProbeSaysWhatTheServerSays(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	env, state := probeEnv(t)
	r := probed(t, env, 0)
	i := d.info(t)
	if r.Tier != i.Sandbox.Tier || r.ABI != i.Sandbox.ABI || len(r.Modes) != 2 || r.DefaultMode != sandbox.ReadOnly {
		t.Errorf("the probe says %+v, the server %+v", r, i)
	}
	for n, want := range []modeInfo{i.Sandbox.ReadOnly, i.Sandbox.WorkspaceWrite} {
		if got := r.Modes[n]; got.Enforcement != want.Enforcement || !slices.Equal(got.Gaps, want.Gaps) || got.Unavailable != want.Unavailable {
			t.Errorf("the probe says %+v, the server %+v", got, want)
		}
	}
	r.hasEveryEffect(t)
	base := filepath.Dir(filepath.Dir(state))
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("it has left %v (%v)", left, err)
	}
}

// hasEveryEffect checks that nothing that was tried is left out, and that what happened is told by the words and by the gaps.
func (p *probeReport) hasEveryEffect(t *testing.T) {
	t.Helper()
	want := prober.Effects()
	if len(p.Effects) != len(want) {
		t.Fatalf("%d effects; want %d", len(p.Effects), len(want))
	}
	for i, e := range p.Effects {
		if e.Name != want[i].Name || e.Class != want[i].Class || e.Text == "" || len(e.Modes) != 2 {
			t.Errorf("effect %+v; want %+v in both modes", e, want[i])
		}
		for mode, o := range e.Modes {
			// Where processes are limited in another way than by their user, that limit may be exceeded.
			bad := o.Did && e.Class != prober.ClassProcessLimit
			if e.Class == prober.ClassWorks {
				bad = !o.Did && o.Skipped == ""
			}
			if bad != notable(e, o) && e.Class != prober.ClassProcessLimit || o.ClosedBy == "" {
				t.Errorf("%s, %s: %+v", mode, e.Name, o)
			}
			if class := string(e.Class); o.Did && slices.Contains(fileGaps, class) && !slices.Contains(p.mode(mode).Gaps, class) {
				t.Errorf("%s: %s happened, and the gaps are %q", mode, e.Text, p.mode(mode).Gaps)
			}
		}
	}
	if !slices.ContainsFunc(classes, func(c struct {
		class prober.Class
		text  string
	},
	) bool {
		return c.class == prober.ClassWorks
	}) {
		t.Error("what must work is not printed")
	}
	for _, e := range want {
		if p.classText(e.Class) == "" {
			t.Errorf("class %s is not printed", e.Class)
		}
	}
}

func (p *probeReport) classText(c prober.Class) string {
	for _, known := range classes {
		if known.class == c {
			return known.text
		}
	}
	return ""
}

func (p *probeReport) mode(m sandbox.Mode) probedMode {
	for _, known := range p.Modes {
		if known.Mode == m {
			return known
		}
	}
	return probedMode{}
}

// TestProbeForPeople: what is printed has a line for each class, and with -v one for each effect.
func TestProbeForPeople(t *testing.T) {
	t.Parallel()
	env, _ := probeEnv(t)
	code, short, stderr := invoke(t, env, "probe")
	if code == exitNotEnforced {
		t.Skipf("this host cannot confine commands: %s", stderr)
	}
	verboseCode, long, _ := invoke(t, env, "probe", "-v")
	if code != 0 || verboseCode != 0 || stderr != "" {
		t.Fatalf("exit %d and %d, stderr %q", code, verboseCode, stderr)
	}
	for _, part := range []string{"tier ", "Landlock ABI", "commands run as", "trees are killed", "read-only (the default): ", "workspace-write: ", "bashd probe -v"} {
		if !strings.Contains(short, part) {
			t.Errorf("%q is missing in:\n%s", part, short)
		}
	}
	for _, c := range classes {
		if n := strings.Count(short, "\n  "+c.text+" "); n != 2 {
			t.Errorf("class %s has %d lines; want one in each mode", c.class, n)
		}
	}
	for _, e := range prober.Effects() {
		if !strings.Contains(long, "\n  "+e.Text+" ") {
			t.Errorf("-v has no line for %q", e.Text)
		}
	}
}

// TestProbeWithoutMechanisms takes away what confines: then the probe says so, by its exit code too.
func TestProbeWithoutMechanisms(t *testing.T) {
	t.Parallel()
	if probed := tryWithout(t, "", "", "abi")["abi"]; strings.Trim(probed, "0123456789") != "" {
		t.Skipf("this host has no Landlock: %s", probed)
	}
	exe := &sharedProgram{}
	t.Cleanup(exe.remove)
	for _, who := range daemonUsers() {
		t.Run(who.name, func(t *testing.T) {
			code, r, last := who.probe(t, "landlock_create_ruleset=ENOSYS", exe)
			if code != exitNotEnforced || r.Tier != "none" || len(r.Effects) != 0 || !strings.Contains(last, "read-only, would be refused here: ") || !strings.Contains(last, "Landlock") {
				t.Errorf("without Landlock: exit %d, %+v, %q", code, r, last)
			}
			if code, r, last = who.probe(t, "landlock_create_ruleset=ENOSYS", exe, "BASHD_SANDBOX_MODE=danger-full-access", "BASHD_SANDBOX_MAX_MODE=danger-full-access"); code != 0 || r.refusal() != "" {
				t.Errorf("with full access as the default: exit %d, %q", code, last)
			}
			code, r, last = who.probe(t, noNamespaces, exe)
			if code != 0 || r.Tier != who.landed || len(r.Stronger) == 0 || !strings.HasPrefix(r.Stronger[0], "tier A: ") || last != "" {
				t.Errorf("without namespaces: exit %d, tier %s, stronger %q, %q", code, r.Tier, r.Stronger, last)
			}
			if who.runAs != r.RunAs || int(r.UID) != who.command {
				t.Errorf("commands run as %d: %t; want %d", r.UID, r.RunAs, who.command)
			}
			r.hasEveryEffect(t)
		})
	}
}

// probe runs `bashd probe -json` as that user, without what is taken, and returns what it printed, and the last line on stderr.
func (who daemonUser) probe(t *testing.T, taken string, exe *sharedProgram, env ...string) (code int, r *probeReport, last string) {
	t.Helper()
	r = &probeReport{}
	base := passable(t)
	cmd := osexec.CommandContext(t.Context(), "env")
	cmd.Dir = base
	cmd.Env = slices.Concat([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + base}, who.settings(), env)
	who.wrap(t, cmd, taken, exe)
	cmd.Args = append(cmd.Args, "probe", "-json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if json.Unmarshal(out, r) != nil {
		t.Fatalf("%v: %.300q %s", err, out, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	return cmd.ProcessState.ExitCode(), r, lines[len(lines)-1]
}

// TestProbeWrongUse: what is not a finding about the host has an exit code of its own.
func TestProbeWrongUse(t *testing.T) {
	t.Parallel()
	good, state := probeEnv(t)
	for _, c := range []struct {
		env, args []string
		part      string
	}{
		{nil, []string{"-x"}, "-x"},
		{nil, []string{"all"}, `"all"`},
		{nil, []string{"-json=maybe"}, "json"},
		{[]string{"BASHD_NONSENSE=1"}, nil, "BASHD_NONSENSE"},
		{[]string{"BASHD_RUN_AS=no-such-user"}, nil, "BASHD_RUN_AS"},
	} {
		code, stdout, stderr := invoke(t, slices.Concat(good, c.env), append([]string{"probe"}, c.args...)...)
		if code != exitNotProbed || stdout != "" || !strings.HasPrefix(stderr, "bashd: probe: ") || !strings.Contains(stderr, c.part) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q with %q: exit %d, stdout %q, stderr %q", c.args, c.env, code, stdout, stderr)
		}
	}
	if code, stdout, _ := invoke(t, []string{"BASHD_NONSENSE=1"}, "probe", "--help"); code != 0 || stdout != probeUsage {
		t.Errorf("--help: exit %d, %q", code, stdout)
	}
	if _, help, _ := invoke(t, nil, "help"); !strings.Contains(help, "\n       bashd probe ") {
		t.Errorf("help does not name the probe:\n%.800s", help)
	}
	if exists(filepath.Dir(state)) {
		t.Error("the state directory was made")
	}
}

// TestProbeBesideAServer: the probe needs nothing that a running server has, and changes nothing of it.
func TestProbeBesideAServer(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	before := statesOf(t, d.state)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(d.state), "BASHD_STATE_DIR=" + d.state, "BASHD_WORKSPACE=" + d.ws}
	probed(t, env, 0).hasEveryEffect(t)
	if after := statesOf(t, d.state); !maps.Equal(after, before) {
		t.Errorf("the state directory was %v and is %v", before, after)
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

// statesOf describes what is in dir, but for what a server changes by itself.
func statesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !strings.Contains(path, "bashd.db") {
			var st syscall.Stat_t
			err = syscall.Lstat(path, &st)
			all[path] = fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestProbeInterrupted: a signal is no finding either, and leaves nothing behind.
func TestProbeInterrupted(t *testing.T) {
	t.Parallel()
	env, state := probeEnv(t)
	base := filepath.Dir(filepath.Dir(state))
	cmd := osexec.CommandContext(t.Context(), "/proc/self/exe", "probe")
	cmd.Env, cmd.Dir = append([]string{asMain + "=1"}, env...), base
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if found, _ := filepath.Glob(base + "/bashd-probe-*"); len(found) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the probe has not begun")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	// It may have been over by then.
	if exit, ok := errors.AsType[*osexec.ExitError](err); err != nil && (!ok || exit.ExitCode() != exitNotProbed) {
		t.Errorf("%v; want exit %d, or an end before the signal", err, exitNotProbed)
	}
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("it has left %v", left)
	}
}

// TestProbeScratch: what a command finds another directory in the place of is no place to try things in.
func TestProbeScratch(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"/tmp", "/dev/shm", "/proc", "relative", "/nonexistent"} {
		if dir, err := scratchIn(parent, nil); err == nil {
			os.Remove(dir)
			t.Errorf("%s: %s was made there", parent, dir)
		}
	}
	if os.Geteuid() != 0 {
		return // whom commands run as is only root's to say
	}
	closed := t.TempDir() // testing makes the one above for its own user only
	if dir, err := scratchIn(closed, &sandbox.Credential{UID: nobody, GID: nobody}); err == nil || !strings.Contains(err.Error(), "cannot pass") {
		t.Errorf("%s, %v; want a directory refused that the commands' user cannot pass", dir, err)
	}
	if left, _ := os.ReadDir(closed); len(left) > 0 {
		t.Errorf("it has left %v", left)
	}
	open := passable(t)
	dir, err := scratchIn(open, &sandbox.Credential{UID: nobody, GID: nobody})
	if err != nil || filepath.Dir(dir) != open {
		t.Errorf("%s, %v", dir, err)
	}
	os.Remove(dir)
}
