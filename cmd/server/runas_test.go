package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/config"
	"bashd/internal/sandbox"
)

func TestLookUp(t *testing.T) {
	for text, want := range map[string]string{
		"nobody": "65534:65534", "65534": "65534:65534", "1:2": "1:2",
		"daemon": "1:1", "4000000": "4000000:4000000", "4000000:7": "4000000:7", "4294967294:4294967294": "4294967294:4294967294",
		"nobody-of-that-name": "there is no user", "0": "is root", "0:1": "is root", "1:0": "group", "root": "is root",
		"4294967296:1": "usable id", "4294967296": "looking up",
	} {
		c, err := lookUp(text)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%d:%d", c.UID, c.GID)
		}
		if err == nil && got != want || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestCommandsUser(t *testing.T) {
	if c, err := commandsUser(""); c != nil || err != nil {
		t.Errorf("without the variable: %v %v", c, err)
	}
	c, err := commandsUser("65534")
	if os.Geteuid() == 0 {
		if err != nil || *c != (sandbox.Credential{UID: 65534, GID: 65534}) {
			t.Errorf("%v %v", c, err)
		}
	} else if err == nil || !strings.HasPrefix(err.Error(), "BASHD_RUN_AS: only root ") {
		t.Errorf("as uid %d: %v %v", os.Geteuid(), c, err)
	}
}

func TestCommandUIDs(t *testing.T) {
	own := uint32(os.Geteuid())
	alone, both := commandUIDs(nil), commandUIDs(&sandbox.Credential{UID: own + 7, GID: 1})
	for uid, want := range map[uint32][2]bool{own: {true, true}, own + 7: {false, true}, own + 1: {false, false}} {
		if got := [2]bool{alone(uid), both(uid)}; got != want {
			t.Errorf("uid %d: %v, want %v", uid, got, want)
		}
	}
}

func needsRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root can run commands as another user")
	}
}

// passable makes a directory that others can pass, as those above it.
func passable(tb testing.TB) string {
	tb.Helper()
	base, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Dir(base), 0o711), os.Chmod(base, 0o711)); err != nil {
		tb.Fatal(err)
	}
	return base
}

// TestCheckReach: the commands' user must be able to pass to what commands need, and must not be able to replace what the daemon
// relies on.
func TestCheckReach(t *testing.T) {
	needsRoot(t)
	user := sandbox.Credential{UID: nobody, GID: nobody}
	for name, c := range map[string]struct {
		spoil func(base string) error
		want  []string // parts of the error; none: there is none
	}{
		"fine": {func(string) error { return nil }, nil},
		"closed above both": {
			func(base string) error { return os.Chmod(base, 0o700) },
			[]string{"BASHD_STATE_DIR: uid 65534, which commands run as, cannot pass BASE; mend it with: chmod o+x BASE"},
		},
		"closed above the state": {
			func(base string) error { return os.Chmod(base+"/s", 0o700) },
			[]string{"BASHD_STATE_DIR: ", "cannot pass BASE/s;", "chmod o+x BASE/s"},
		},
		"closed above the workspace": {
			func(base string) error { return os.Chmod(base+"/w", 0o750) },
			[]string{"BASHD_WORKSPACE: ", "cannot pass BASE/w;", "chmod o+x BASE/w"},
		},
		"closed workspace": {
			func(base string) error { return os.Chmod(base+"/w/workspace", 0o700) },
			[]string{"BASHD_WORKSPACE: ", "cannot pass BASE/w/workspace;"},
		},
		"open by its group": {func(base string) error {
			return errors.Join(os.Chown(base+"/w", 0, nobody), os.Chmod(base+"/w", 0o710))
		}, nil},
		"closed to its owner": {func(base string) error {
			return errors.Join(os.Chown(base+"/w", nobody, 0), os.Chmod(base+"/w", 0o077))
		}, []string{"BASHD_WORKSPACE: ", "cannot pass BASE/w;"}},
		"closed to its group": {func(base string) error {
			return errors.Join(os.Chown(base+"/w", 0, nobody), os.Chmod(base+"/w", 0o701))
		}, []string{"BASHD_WORKSPACE: ", "cannot pass BASE/w;"}},
		"closed behind a link": {func(base string) error { return errors.Join(relink(base, base+"/real"), os.Chmod(base+"/real", 0o700)) }, []string{"BASHD_STATE_DIR: ", "cannot pass BASE/real;"}},
		"behind a link":        {func(base string) error { return relink(base, base+"/real") }, nil},
		"can be replaced": {
			func(base string) error { return os.Chmod(base+"/s", 0o777) },
			[]string{"BASHD_STATE_DIR: ", "can change BASE/s;", "chown root BASE/s && chmod go-w BASE/s"},
		},
		"sticky is not enough to replace": {func(base string) error { return os.Chmod(base+"/s", 0o777|os.ModeSticky) }, nil},
		"their own can be replaced": {
			func(base string) error {
				return errors.Join(os.Chmod(base+"/s", 0o511), os.Chown(base+"/s", nobody, 0))
			},
			[]string{"BASHD_STATE_DIR: ", "can change BASE/s;"},
		},
		"their own state": {func(base string) error { return os.Chown(base+"/s/state", nobody, 0) }, []string{"BASHD_STATE_DIR: ", "can change BASE/s/state;"}},
		"link can be replaced": {
			func(base string) error { return errors.Join(relink(base, base+"/real"), os.Chmod(base+"/s", 0o777)) },
			[]string{"BASHD_STATE_DIR: ", "can change BASE/s;"},
		},
		"tokens can be written":  {func(base string) error { return os.Chmod(base+"/t/tokens", 0o606) }, []string{"BASHD_TOKENS_FILE: ", "can change BASE/t/tokens;"}},
		"tokens can be replaced": {func(base string) error { return os.Chmod(base+"/t", 0o733) }, []string{"BASHD_TOKENS_FILE: ", "can change BASE/t;"}},
		"tokens out of reach": {func(base string) error {
			return errors.Join(os.Chmod(base+"/t/tokens", 0o606), os.Chmod(base+"/t", 0o700))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			base := passable(t)
			for _, dir := range []string{"/s", "/s/state", "/w", "/w/workspace", "/t"} {
				if err := errors.Join(os.Mkdir(base+dir, 0o700), os.Chmod(base+dir, 0o711)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, base+"/t/tokens", "")
			if err := errors.Join(os.Chmod(base+"/t/tokens", 0o600), c.spoil(base)); err != nil {
				t.Fatal(err)
			}
			cfg := config.Config{StateDir: base + "/s/state", Workspace: base + "/w/workspace", TokensFile: base + "/t/tokens"}
			if err := checkReach(cfg, nil); err != nil {
				t.Errorf("without a user of the commands' own: %v", err)
			}
			err := checkReach(cfg, &user)
			if (err != nil) != (c.want != nil) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			for _, part := range c.want {
				if part = strings.ReplaceAll(part, "BASE", base); !strings.Contains(err.Error(), part) {
					t.Errorf("%v lacks %q", err, part)
				}
			}
		})
	}
	if _, err := os.ReadDir("/root"); err != nil || os.Geteuid() != 0 {
		t.Errorf("this process is not what it was any more: %v", err)
	}
}

// relink moves the state directory to below real, and leaves a link.
func relink(base, real string) error {
	return errors.Join(os.Mkdir(real, 0o700), os.Chmod(real, 0o711), os.Rename(base+"/s/state", real+"/state"), os.Symlink(real+"/state", base+"/s/state"))
}

// TestThreadsKeepTheirUser: the look with another user's eyes is one thread's, which ends.
func TestThreadsKeepTheirUser(t *testing.T) {
	needsRoot(t)
	user := sandbox.Credential{UID: nobody, GID: nobody}
	for range 20 {
		var seen error
		if err := user.Do(func() { _, seen = os.ReadDir("/root") }); err != nil || !os.IsPermission(seen) {
			t.Fatalf("with the eyes of nobody: %v, %v", seen, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		changed := threadsOfOthers(t)
		if len(changed) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads that are another user's have not ended: %q", changed)
		}
	}
}

// threadsOfOthers are the threads of this process that are not root's in every way.
func threadsOfOthers(t *testing.T) (found []string) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal("the threads cannot be listed", err)
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(b)) {
			if name, ids, _ := strings.Cut(line, ":"); name == "Uid" && !slices.Equal(strings.Fields(ids), []string{"0", "0", "0", "0"}) {
				found = append(found, path+" "+line)
			}
		}
	}
	return found
}

// runAsPlace has the directory of a daemon's passable for commands of another user.
func runAsPlace(tb testing.TB) surroundings {
	return surroundings{prepare: func(d *daemon) {
		base := filepath.Dir(d.state)
		if err := errors.Join(os.Chmod(filepath.Dir(base), 0o711), os.Chmod(base, 0o711)); err != nil {
			tb.Fatal(err)
		}
	}}
}

// TestRunAs: commands run as the user that they are told to, also where a life before had them run as root, and a life after has them
// again; a command of that user is one to the API, too.
func TestRunAs(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := launch(t)
	d.needsSandbox(t)
	before := d.run(t, in{"command": "id -u; touch kept; seq 100000", "sandboxMode": "workspace-write"})
	old := d.task(t, in{"command": "echo old"})
	d.waitTask(t, old.ID)
	if !strings.Contains(d.log.String(), "BASHD_RUN_AS") {
		t.Error("root without BASHD_RUN_AS is not warned of")
	}
	d.stop(t)
	again := func(env ...string) {
		state, ws, out := d.state, d.ws, d.out
		passed := runAsPlace(t)
		passed.prepare(&daemon{state: state})
		d = launchIn(t, surroundings{}, append([]string{"BASHD_STATE_DIR=" + state, "BASHD_WORKSPACE=" + ws, "BASHD_SANDBOX_MAX_MODE=danger-full-access"}, env...)...)
		d.state, d.ws, d.out = state, ws, out
	}
	again("BASHD_RUN_AS=65534")
	for _, mode := range modes {
		r := d.run(t, in{"command": "id -u; id -g; id -G; ls kept; tail -n1 '" + before.Stdout.SpillPath + "'", "sandboxMode": mode})
		r.printed(t, "65534\n65534\n65534\nkept\n100000\n", "")
		r = d.run(t, in{"command": "curl -sS -m 5 --noproxy '*' " + d.url + "/v1/info; :", "sandboxMode": mode})
		if strings.Contains(r.Stdout.Text, "version") {
			t.Errorf("%s: a command was served by the API: %s", mode, r.Stdout.Text)
		}
		for _, secret := range []string{"bashd.db", "cursor.key", "lock"} {
			r := d.run(t, in{"command": "cat '" + d.state + "/" + secret + "'", "sandboxMode": mode})
			r.exited(t, 1)
		}
	}
	_, raw := d.request(t, "GET", "/v1/info", "")
	var info struct {
		Sandbox struct {
			RunAs        bool
			ProcessLimit string
		}
	}
	if err := json.Unmarshal(raw, &info); err != nil || !info.Sandbox.RunAs || info.Sandbox.ProcessLimit == "" {
		t.Errorf("%v: %s", err, raw)
	}
	for _, warning := range []string{"running as root", "was mended", "had been changed"} {
		if strings.Contains(d.log.String(), warning) {
			t.Errorf("the log says %q:\n%s", warning, d.log)
		}
	}
	d.printedInAll(t, old.ID, "old\n", "")
	for path, want := range map[string]string{
		"": "drwx--x--x 0:0", "/probe": "drwx--x--x 0:0", "/owners": "drwx--x--x 0:65534", "/trash": "drwx------ 0:0",
		"/bashd.db": "-rw------- 0:0", "/bashd.db-wal": "-rw------- 0:0", "/cursor.key": "-rw------- 0:0", "/lock": "-rw------- 0:0",
		"/../workspace": "drwx--x--- 0:65534", "/../workspace/shared": "drwx------ 65534:65534",
	} {
		d.owned(t, path, want)
	}
	d.stop(t)
	again("BASHD_RUN_AS=65533:65532")
	r := d.sh(t, "id -u; id -g; ls kept; tail -n1 '"+before.Stdout.SpillPath+"'")
	r.printed(t, "65533\n65532\nkept\n100000\n", "")
	d.owned(t, "/owners", "drwx--x--x 0:65532")
	d.owned(t, "/../workspace", "drwx--x--- 0:65532")
	d.owned(t, "/../workspace/shared", "drwx------ 65533:65532")
	d.stop(t)
	again()
	r = d.sh(t, "id -u; ls kept; tail -n1 '"+before.Stdout.SpillPath+"'")
	r.printed(t, "0\nkept\n100000\n", "")
	d.owned(t, "", "drwx------ 0:0")
	d.owned(t, "/../workspace/shared", "drwx------ 0:0")
	if strings.Contains(d.log.String(), "was mended") || strings.Contains(d.log.String(), "had been changed") {
		t.Errorf("the change back is taken for somebody's doing:\n%s", d.log)
	}
	d.stop(t)
}

// owned checks mode and owner of what lies in the state directory.
func (d *daemon) owned(t *testing.T, name, want string) {
	t.Helper()
	st, err := os.Lstat(d.state + name)
	if err != nil {
		t.Error(err)
		return
	}
	sys := st.Sys().(*syscall.Stat_t)
	if got := fmt.Sprintf("%v %d:%d", st.Mode(), sys.Uid, sys.Gid); got != want {
		t.Errorf("%s is %s, want %s", name, got, want)
	}
}

// TestRunAsOneWorkspace: one workspace for all becomes the commands' where it is as bashd makes it.
func TestRunAsOneWorkspace(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := launchIn(t, runAsPlace(t), "BASHD_RUN_AS=65534:65533", "BASHD_WORKSPACE_LAYOUT=single")
	d.needsSandbox(t)
	r := d.run(t, in{"command": "id -u; id -g; touch x; pwd", "sandboxMode": "workspace-write"})
	r.printed(t, "65534\n65533\n"+d.ws+"\n", "")
	d.owned(t, "/../workspace", "drwx------ 65534:65533")
	d.stop(t)
}

// TestRunAsRefused: what makes BASHD_RUN_AS impossible or worthless stops the start with one line.
func TestRunAsRefused(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	base := passable(t)
	env := func(state string, more ...string) []string {
		return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "BASHD_LISTEN=127.0.0.1:0", "BASHD_STATE_DIR=" + state, "BASHD_WORKSPACE=" + base + "/ws"}, more...)
	}
	failed(t, env(base+"/s", "BASHD_RUN_AS=no-such-user"), nil, "BASHD_RUN_AS", "no-such-user")
	failed(t, env(base+"/s", "BASHD_RUN_AS=1:0"), nil, "BASHD_RUN_AS")
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("what was refused has made %v (%v)", entries, err)
	}
	closed := base + "/closed"
	foreign := base + "/foreign"
	if err := errors.Join(os.Mkdir(closed, 0o700), os.Mkdir(foreign, 0o700), os.Chown(foreign, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	failed(t, env(closed+"/a/s", "BASHD_RUN_AS=nobody"), nil, "BASHD_STATE_DIR", "chmod o+x "+closed)
	if st, err := os.Stat(closed + "/a"); err != nil || st.Mode().Perm() != 0o711 {
		t.Errorf("a directory made on the way: %v %v", st, err)
	}
	failed(t, env(foreign, "BASHD_RUN_AS=nobody"), nil, "BASHD_STATE_DIR", "chown -R root:root "+foreign)
	inside := base + "/inside"
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, inside+"/bashd.db", "")
	if err := os.Chown(inside+"/bashd.db", nobody, nobody); err != nil {
		t.Fatal(err)
	}
	failed(t, env(inside, "BASHD_RUN_AS=nobody"), nil, "BASHD_STATE_DIR", inside+"/bashd.db", "chown -R root:root "+inside)
	open := base + "/open"
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o755)); err != nil {
		t.Fatal(err)
	}
	failed(t, env(open, "BASHD_RUN_AS=nobody"), nil, "BASHD_STATE_DIR", "chmod 711 "+open)
}

// TestRunAsWithoutRoot: nobody but root can.
func TestRunAsWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		failed(t, []string{"HOME=" + t.TempDir(), "BASHD_RUN_AS=nobody"}, nil, "BASHD_RUN_AS: only root")
		return
	}
	base := passable(t)
	cmd := surroundings{nobody: true}.command(t, base)
	cmd.Env, cmd.Dir = []string{asMain + "=1", "HOME=" + base, "BASHD_RUN_AS=nobody"}, base
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "bashd: BASHD_RUN_AS: only root") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestMemoryLimitRefused: a limit that nobody would enforce stops the start.
func TestMemoryLimitRefused(t *testing.T) {
	t.Parallel()
	d := start(t)
	_, raw := d.request(t, "GET", "/v1/info", "")
	if strings.Contains(string(raw), `"memoryLimit":true`) {
		t.Skip("this host can limit the memory of commands")
	}
	base := t.TempDir()
	failedLate(t, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + base, "BASHD_LISTEN=127.0.0.1:0", "BASHD_STATE_DIR=" + base + "/state", "BASHD_WORKSPACE=" + base + "/ws",
		"BASHD_MAX_MEMORY_BYTES=1000000000",
	}, "BASHD_MAX_MEMORY_BYTES", "unset")
}
