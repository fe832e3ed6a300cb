package exec_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// nobody runs commands in these tests: a user that owns nothing here.
var nobody = &sandbox.Credential{UID: 65534, GID: 65534}

// place is where a Manager's commands of another user can get to: its directories, and the sandboxes that hide them.
type place struct{ state, ws string }

func newPlace(t *testing.T) place {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := place{base + "/state", base + "/ws"}
	for _, dir := range []string{p.state, p.ws, p.state + "/probe"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// testing makes its directories for its own user only.
	for _, dir := range []string{filepath.Dir(base), base, p.state, p.ws, p.state + "/probe"} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// sandbox makes one of that tier, whose commands run as c, for as long as the test.
func (p place) sandbox(t *testing.T, tier string, c *sandbox.Credential) *sandbox.Sandbox {
	t.Helper()
	if c != nil && os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	sb, err := sandbox.New(t.Context(), sandbox.Config{Shell: "/bin/bash", Scratch: p.state + "/probe", Hidden: []string{p.state, p.ws}, RunAs: c, Tier: tier})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sb.Close)
	if why := sb.Report().WorkspaceWrite.Unavailable; why != "" {
		t.Skipf("tier %s: %s", tier, why)
	}
	return sb
}

// runAs is a fixture in p whose commands run as c.
func (p place) runAs(t *testing.T, tier string, c *sandbox.Credential, change ...func(*exec.Settings)) *fixture {
	t.Helper()
	sb := p.sandbox(t, tier, c)
	f := newFixture(t, append([]func(*exec.Settings){func(s *exec.Settings) {
		s.StateDir, s.Workspace, s.RunAs, s.Sandbox = p.state, p.ws, c, sb
		s.DefaultMode = sandbox.WorkspaceWrite
	}}, change...)...)
	f.state, f.ws, f.sandbox = p.state, p.ws, sb
	return f
}

// switchTo ends the life and begins one whose commands run as c. The way to the state directory, and its place for the probe, are
// for whoever starts the Manager to open.
func (f *fixture) switchTo(t *testing.T, p place, tier string, c *sandbox.Credential) {
	t.Helper()
	shut(f.Manager)
	if c != nil {
		if err := errors.Join(os.Chmod(p.state, 0o711), os.Chmod(p.state+"/probe", 0o711)); err != nil {
			t.Fatal(err)
		}
	}
	f.settings.RunAs, f.settings.Sandbox = c, p.sandbox(t, tier, c)
	f.sandbox = f.settings.Sandbox
	f.open(t)
}

// wantOwned checks modes and owners, given as in "drwx------ 0:0".
func wantOwned(t *testing.T, want map[string]string) {
	t.Helper()
	for path, want := range want {
		st, err := os.Lstat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		sys := st.Sys().(*syscall.Stat_t)
		if got := fmt.Sprintf("%v %d:%d", st.Mode(), sys.Uid, sys.Gid); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// succeeds runs a command of alice's and returns what it printed.
func (f *fixture) succeeds(t *testing.T, mode sandbox.Mode, command string) string {
	t.Helper()
	run := f.mustRun(t, alice, exec.Request{Command: command, SandboxMode: mode})
	if run.ExitCode == nil || *run.ExitCode != 0 {
		t.Fatalf("%s: %q: exit %v, %q %q", mode, command, run.ExitCode, run.Stdout.Tail, run.Stderr.Tail)
	}
	return string(run.Stdout.Tail)
}

const spilling = "seq 100000"

// TestRunAsOwners: what commands of another user need is theirs, or readable to their group; all else is root's alone.
func TestRunAsOwners(t *testing.T) {
	p := newPlace(t)
	f := p.runAs(t, sandbox.TierUser, nobody)
	if err := os.WriteFile(p.state+"/bashd.db", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run := f.mustRun(t, alice, exec.Request{Command: spilling})
	task := f.finished(t, bob, "echo printed; echo failed >&2")
	id, result := f.inBackground(t, t.Context(), alice, exec.Request{Command: `id -u; echo "$TMPDIR"; touch "$TMPDIR/x" y; sleep 60`})
	temp := p.state + "/owners/aaaa/tmp/" + id
	f.awaitOutput(t, alice, id, "65534\n"+temp+"\n")
	alices, bobs := p.state+"/owners/aaaa", p.state+"/owners/bbbb"
	wantOwned(t, map[string]string{
		p.state + "/owners": "drwx--x--x 0:65534",
		alices:              "drwxr-x--- 0:65534", bobs: "drwxr-x--- 0:65534",
		alices + "/tmp": "drwxr-x--- 0:65534", temp: "drwx------ 65534:65534",
		alices + "/" + run.ID: "drwxr-x--- 0:65534", alices + "/" + run.ID + "/stdout": "-rw-r----- 0:65534",
		bobs + "/" + task.ID: "drwxr-x--- 0:65534", bobs + "/" + task.ID + "/stdout": "-rw-r----- 0:65534", bobs + "/" + task.ID + "/stderr": "-rw-r----- 0:65534",
		p.ws: "drwx--x--x 0:0", p.ws + "/aaaa": "drwx------ 65534:65534", p.ws + "/bbbb": "drwx------ 65534:65534",
	})
	eventually(t, "the top is in order", func() bool {
		st, err := os.Stat(p.state + "/bashd.db")
		return err == nil && st.Mode() == 0o600
	})
	wantOwned(t, map[string]string{p.state: "drwx--x--x 0:0", p.state + "/probe": "drwx--x--x 0:0", p.state + "/trash": "drwx------ 0:0"})
	if _, _, err := f.Kill(t.Context(), alice, exec.Foreground, id, ""); err != nil {
		t.Fatal(err)
	}
	<-result
	if _, err := os.Lstat(temp); !os.IsNotExist(err) {
		t.Errorf("the temporary directory: %v", err)
	}
}

// TestRunAsReach: what a command of another user can read and write of the state directory, in each tier.
func TestRunAsReach(t *testing.T) {
	for _, tier := range []string{sandbox.TierNamespaces, sandbox.TierUser} {
		t.Run(tier, func(t *testing.T) {
			p := newPlace(t)
			f := p.runAs(t, tier, nobody)
			for _, name := range []string{"bashd.db", "cursor.key", "lock"} {
				if err := os.WriteFile(p.state+"/"+name, []byte("canary"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mine := f.mustRun(t, alice, exec.Request{Command: spilling}).Stdout.SpillPath
			bobs := f.mustRun(t, bob, exec.Request{Command: spilling + "; echo precious >file"}).Stdout.SpillPath
			for _, mode := range sandbox.Modes() {
				if got := f.succeeds(t, mode, "tail -n1 '"+mine+"'"); got != "100000\n" {
					t.Errorf("%s: its own output reads %q", mode, got)
				}
				secrets := []string{p.state + "/bashd.db", p.state + "/cursor.key", p.state + "/lock"}
				if mode.Confined() { // full access has no fence between owners
					secrets = append(secrets, bobs, p.ws+"/bbbb/file")
				}
				for _, path := range secrets {
					if got := f.succeeds(t, mode, "cat '"+path+"' || :"); got != "" {
						t.Errorf("%s: %s reads %.20q", mode, path, got)
					}
				}
				if got := f.succeeds(t, mode, "ls '"+p.state+"' '"+p.state+"/owners' '"+p.ws+"' || :"); strings.Contains(got, "bbbb") {
					t.Errorf("%s: other owners' names can be listed: %q", mode, got)
				}
				f.succeeds(t, mode, attackOn(mine, p.state))
				want := map[string]string{mine: "-rw-r----- 0:65534", filepath.Dir(mine): "drwxr-x--- 0:65534", p.state: "drwx--x--x 0:0"}
				wantOwned(t, want)
				if st, err := os.Stat(mine); err != nil || st.Size() != 588895 {
					t.Errorf("%s: the output file: %v %v", mode, st, err)
				}
				for _, path := range []string{p.state + "/new", p.state + "/owners/new", filepath.Dir(mine) + "/new"} {
					if _, err := os.Lstat(path); !os.IsNotExist(err) {
						t.Errorf("%s: %s is there (%v)", mode, path, err)
					}
				}
			}
		})
	}
}

// attackOn tries to harm an output file and to plant others.
func attackOn(file, state string) string {
	dir := filepath.Dir(file)
	return "exec 2>/dev/null; echo x >>'" + file + "'; : >'" + file + "'; rm -f '" + file + "'; chmod 666 '" + file + "' '" + dir + "' '" + state + "'; mv '" + dir + "' '" + dir + "x'; " +
		"touch '" + state + "/new' '" + state + "/owners/new' '" + dir + "/new'; :"
}

// TestRunAsSwitched: a life whose commands run as somebody else than those of the life before finds everything, and so do
// its commands.
func TestRunAsSwitched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	p := newPlace(t)
	f := p.runAs(t, sandbox.TierLandlock, nil)
	task := f.finished(t, alice, spilling+"; mkdir d; touch d/f")
	path, dir := task.Stdout.SpillPath, p.state+"/owners/aaaa"
	other := &sandbox.Credential{UID: 65533, GID: 65532}
	for n, life := range []struct {
		commands                *sandbox.Credential
		id                      string
		owners, dir, file, work string
	}{
		{nil, "0:0", "drwx------", "drwx------", "-rw-------", "drwx------ 0:0"},
		{nobody, "65534:65534", "drwx--x--x", "drwxr-x---", "-rw-r-----", "drwx------ 65534:65534"},
		{other, "65533:65532", "drwx--x--x", "drwxr-x---", "-rw-r-----", "drwx------ 65533:65532"},
		{nil, "0:0", "drwx------", "drwx------", "-rw-------", "drwx------ 0:0"},
		{other, "65533:65532", "drwx--x--x", "drwxr-x---", "-rw-r-----", "drwx------ 65533:65532"},
	} {
		tier := sandbox.TierUser
		if life.commands == nil {
			tier = sandbox.TierLandlock
		}
		if n > 0 {
			f.switchTo(t, p, tier, life.commands)
		}
		for _, mode := range sandbox.Modes()[:2] {
			if got := f.succeeds(t, mode, `echo "$(id -u):$(id -g)"; tail -n1 '`+path+"'; ls d"); got != life.id+"\n100000\nf\n" {
				t.Errorf("life %d, %s: %q", n, mode, got)
			}
		}
		f.succeeds(t, sandbox.WorkspaceWrite, fmt.Sprintf("touch new%d", n))
		if life.commands == nil { // the group may do nothing, and stays what it was
			wantModes(t, map[string]string{p.state + "/owners": life.owners, dir: life.dir, filepath.Dir(path): life.dir, path: life.file})
		} else {
			group := fmt.Sprintf(" 0:%d", life.commands.GID)
			wantOwned(t, map[string]string{p.state + "/owners": life.owners + group, dir: life.dir + group, filepath.Dir(path): life.dir + group, path: life.file + group})
		}
		wantOwned(t, map[string]string{p.ws + "/aaaa": life.work})
		if got, err := f.content(alice, task.ID, exec.Stdout); len(got) != 588895 || err != nil {
			t.Errorf("life %d: %d bytes, %v", n, len(got), err)
		}
	}
}

func wantModes(t *testing.T, want map[string]string) {
	t.Helper()
	for path, want := range want {
		if st, err := os.Lstat(path); err != nil || st.Mode().String() != want {
			t.Errorf("%s: %v (%v), want %s", path, st, err, want)
		}
	}
}

// TestRunAsMended: modes and owners that somebody has changed are mended when they are used.
func TestRunAsMended(t *testing.T) {
	p := newPlace(t)
	f := p.runAs(t, sandbox.TierUser, nobody)
	first := f.finished(t, alice, spilling)
	dir := p.state + "/owners/aaaa"
	for _, path := range []string{dir + "/" + first.ID, dir + "/tmp", dir, p.state + "/owners"} {
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	second := f.mustRun(t, alice, exec.Request{Command: spilling + "; mktemp", SandboxMode: sandbox.ReadOnly})
	if second.ExitCode == nil || *second.ExitCode != 0 {
		t.Errorf("%+v", second)
	}
	if got, err := f.content(alice, first.ID, exec.Stdout); len(got) != 588895 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	wantOwned(t, map[string]string{
		p.state + "/owners": "drwx--x--x 0:65534", dir: "drwxr-x--- 0:65534", dir + "/tmp": "drwxr-x--- 0:65534",
		dir + "/" + first.ID: "drwxr-x--- 0:65534", dir + "/" + second.ID: "drwxr-x--- 0:65534",
	})
	// What is the commands' own they may do what they like with; the next one finds it usable.
	f.succeeds(t, sandbox.FullAccess, "chmod 0 .")
	f.succeeds(t, sandbox.WorkspaceWrite, "touch x")
	// A workspace that was opened to others is somebody's business.
	if err := os.Chown(p.ws+"/aaaa", 65533, 65533); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.ws+"/aaaa", 0o755); err != nil {
		t.Fatal(err)
	}
	f.succeeds(t, sandbox.ReadOnly, "ls x")
	wantOwned(t, map[string]string{p.ws + "/aaaa": "drwxr-xr-x 65533:65533"})
	// A link is none.
	if err := os.RemoveAll(p.ws + "/aaaa"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.ws+"/elsewhere", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", p.ws+"/aaaa"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Run(t.Context(), alice, exec.Request{Command: "true"}); code(err) != exec.CodeStartFailed {
		t.Errorf("a workspace that is a link: %v", err)
	}
	wantOwned(t, map[string]string{p.ws + "/elsewhere": "drwx------ 0:0"})
}

// TestRunAsOneWorkspace: one workspace for all is the operator's, who chose it.
func TestRunAsOneWorkspace(t *testing.T) {
	p := newPlace(t)
	f := p.runAs(t, sandbox.TierUser, nobody, func(s *exec.Settings) { s.WorkspaceShared = true })
	if err := os.Chmod(p.ws, 0o755); err != nil {
		t.Fatal(err)
	}
	f.succeeds(t, sandbox.ReadOnly, "ls; ! touch x 2>/dev/null")
	wantOwned(t, map[string]string{p.ws: "drwxr-xr-x 0:0"})
	if err := os.Chown(p.ws, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	f.succeeds(t, sandbox.FullAccess, "chmod 0 .")
	f.succeeds(t, sandbox.WorkspaceWrite, "touch x")
	wantOwned(t, map[string]string{p.ws: "drwx------ 65534:65534"})
}

// TestRunAsEnvironment: a command is told who it is, and not who the daemon is.
func TestRunAsEnvironment(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct {
		user       *sandbox.Credential
		name, home string
	}{
		{nobody, "nobody", "/"}, // whose home does not exist
		{&sandbox.Credential{UID: 4_000_000, GID: 4_000_000}, "", "/"},
	} {
		f := p.runAs(t, sandbox.TierUser, c.user, func(s *exec.Settings) {
			s.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "USER=root", "LOGNAME=root", "PLAIN=kept"}
		})
		for _, mode := range sandbox.Modes() {
			env := f.env(t, mode, nil)
			_, named := env["USER"]
			if env["USER"] != c.name || env["LOGNAME"] != c.name || named != (c.name != "") || env["HOME"] != c.home || env["PLAIN"] != "kept" {
				t.Errorf("%s: USER %q LOGNAME %q HOME %q", mode, env["USER"], env["LOGNAME"], env["HOME"])
			}
			if env := f.env(t, mode, map[string]string{"HOME": "/x", "USER": "u"}); env["HOME"] != "/x" || env["USER"] != "u" {
				t.Errorf("%s: a request's own HOME and USER are %q, %q", mode, env["HOME"], env["USER"])
			}
		}
		shut(f.Manager)
		if err := os.RemoveAll(p.ws + "/aaaa"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunAsRemovesDeep: what a command of another user leaves is removed, whatever modes it has, and nothing that links in it lead to
// is touched.
func TestRunAsRemovesDeep(t *testing.T) {
	p := newPlace(t)
	f := p.runAs(t, sandbox.TierUser, nobody)
	victim := t.TempDir()
	if err := os.Chmod(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	run := f.mustRun(t, alice, exec.Request{Command: `cd "$TMPDIR" && mkdir -p a/b/c && ln -s '` + victim + `' a/l && ln -s / a/b/l && touch a/b/f && chmod 0 a/b/c a/b/f a/b a .`})
	if run.ExitCode == nil || *run.ExitCode != 0 {
		t.Fatalf("%+v", run)
	}
	for _, dir := range []string{p.state + "/owners/aaaa/tmp", p.state + "/trash"} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
	if st, err := os.Stat(victim); err != nil || st.Mode() != os.ModeDir|0o755 {
		t.Errorf("the directory outside: %v %v", st, err)
	}
}

// TestChmodFollowsNoLink: a command can put a link in the place of a directory that is just being removed.
func TestChmodFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/real", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := exec.ChmodDir(int(in.Fd()), "link", 0o700); err == nil {
		t.Error("a link was followed")
	}
	wantModes(t, map[string]string{dir + "/real": "drwxr-xr-x"})
	if err := exec.ChmodDir(int(in.Fd()), "real", 0o700); err != nil {
		t.Error(err)
	}
	wantModes(t, map[string]string{dir + "/real": "drwx------"})
}
