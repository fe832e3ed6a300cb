package main

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// TestCasesM is about the sandbox: what each mode allows and refuses, and whether
// a failure is told from a refusal. What depends on how far this host enforces
// a mode is judged by what /v1/info says.
func TestCasesM(t *testing.T) {
	t.Parallel()
	d := start(t, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	d.needsSandbox(t)
	d.inParallel(t, append(casesOfEveryTier(), []namedCase{
		{"M16", caseM16},
		{"M16 after the start", caseM16AfterStart},
		{"M17", caseM17},
		{"M19 roots", caseM19Roots},
		{"M20 unknown mode", caseM20Unknown},
		{"M23 go", caseM23Go},
		{"M25 gone at once", caseM25Orphan},
		{"M25 unix socket", caseM25Unix},
	}...))
}

// casesOfEveryTier are those that must come out right however commands are confined.
func casesOfEveryTier() []namedCase {
	return []namedCase{
		{"M02", caseM02},
		{"M03", caseM03},
		{"M04", caseM04},
		{"M05", caseM05},
		{"M06", caseM06},
		{"M07", caseM07},
		{"M08", caseM08},
		{"M10", caseM10},
		{"M13", caseM13},
		{"M14", caseM14},
		{"M15", caseM15},
		{"M19", caseM19},
		{"M20", caseM20},
		{"M20 task", caseM20Task},
		{"M21", caseM21},
		{"M23", caseM23},
		{"M24", caseM24},
		{"M25", caseM25},
	}
}

// TestCasesMInEveryTier is the same for other users, and where the host lacks namespaces.
func TestCasesMInEveryTier(t *testing.T) {
	t.Parallel()
	inEveryTier(t, func(t *testing.T, d *daemon, _ tierDaemon) { d.inParallel(t, casesOfEveryTier()) })
}

// tierDaemon is a daemon of one user, with namespaces or without.
type tierDaemon struct {
	who   daemonUser
	taken string
	exe   *sharedProgram
}

// start starts it. What lies in d.out is the commands' user's, so that nothing but the sandbox can refuse what is tried there.
func (k tierDaemon) start(t *testing.T, env ...string) *daemon {
	t.Helper()
	d := k.launch(t, env...)
	t.Cleanup(func() { d.stop(t) })
	return d
}

// launch is start without the stop.
func (k tierDaemon) launch(t *testing.T, env ...string) *daemon {
	t.Helper()
	prepare := func(d *daemon) {
		k.who.wrap(t, d.cmd, k.taken, k.exe)
		// Beside a hidden path commands can read, without namespaces, only what bashd can list.
		if err := os.Chmod(filepath.Dir(d.cmd.Dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(d.out, k.who.command, k.who.command); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := launchIn(t, surroundings{prepare: prepare}, append(env, k.who.settings()...)...)
	d.pid = wrapped(t, d.cmd.Process.Pid)
	return d
}

// inEveryTier runs test on a daemon of each kind that this host has.
func inEveryTier(t *testing.T, test func(t *testing.T, d *daemon, kind tierDaemon)) {
	exe := &sharedProgram{}
	t.Cleanup(exe.remove)
	for _, who := range daemonUsers() {
		for tier, taken := range map[string]string{"A": "", who.landed: noNamespaces} {
			t.Run(tier+" "+who.name, func(t *testing.T) {
				t.Parallel()
				if os.Getenv("TEST_ONE_USER") != "" && (tier == "A") != (who.name == "root") {
					t.Skip("one user a tier is enough for a short run")
				}
				if !long && (tier == "A" && who.runAs || tier == "C" && who.name == "root") {
					t.Skip("in the long form only: the other users of the tier have all that is different there")
				}
				if lacks := who.lacksNamespaces(); tier == "A" && lacks != nil {
					t.Skipf("this host has no namespaces for it: %v", lacks)
				}
				kind := tierDaemon{who, taken, exe}
				d := kind.start(t)
				d.needsSandbox(t)
				if got := d.info(t).Sandbox.Tier; got != tier {
					t.Fatalf("tier %s; want %s", got, tier)
				}
				d.sh(t, "true").exited(t, 0) // which makes the workspace
				test(t, d, kind)
			})
		}
	}
}

// tier is how d confines commands.
func (d *daemon) tier(tb testing.TB) string { return d.info(tb).Sandbox.Tier }

// commandUID is whom commands run as: the owner of d.out.
func (d *daemon) commandUID(tb testing.TB) int {
	tb.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(d.out, &st); err != nil {
		tb.Fatal(err)
	}
	return int(st.Uid)
}

// give makes the commands' user the owner of paths.
func (d *daemon) give(tb testing.TB, paths ...string) {
	tb.Helper()
	uid := d.commandUID(tb)
	for _, path := range paths {
		if uid != os.Geteuid() {
			if err := os.Lchown(path, uid, uid); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// outside makes a file of the commands' user outside of what confined commands may write.
func (d *daemon) outside(tb testing.TB, name, text string) string {
	tb.Helper()
	path := d.out + "/" + name
	write(tb, path, text)
	d.give(tb, path)
	return path
}

// place makes a directory of the commands' user in the workspace.
func (d *daemon) place(tb testing.TB, name string) string {
	tb.Helper()
	dir := subdir(tb, d, name)
	d.give(tb, dir)
	return dir
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
		"echo 'Operation not permitted'; exit 1",
		"echo 'Permission denied' >&2; exit 1",
		"echo 'Permission denied (publickey)' >&2; exit 255",
	} {
		d.sh(t, command).notDenied(t, map[bool]int{true: 255, false: 1}[strings.Contains(command, "publickey")])
	}
	// In this mode the path that it prints can be written.
	body := in{"command": "echo 'touch: x: Read-only file system' >&2; exit 1", "sandboxMode": "workspace-write"}
	d.run(t, body).notDenied(t, 1)
	// In this one it cannot, and then a printed line is not told from a true one: documented. Without a file tree of their own commands
	// never meet these words.
	body["sandboxMode"] = "read-only"
	if r := d.run(t, body); d.tier(t) == "A" {
		r.deniedAt(t, d.shared()+"/x")
	} else {
		r.notDenied(t, 1)
	}
}

// caseM04: what is denied is known by the path, in whatever language; where nothing is said, nothing is concluded.
func caseM04(t *testing.T, d *daemon) {
	file := d.out + "/m04"
	// bash tells of a redirection that failed before it carries out the next one.
	told := d.sh(t, "echo x > '"+file+"' 2>/dev/null || exit 9")
	told.exited(t, 9)
	told.deniedAt(t, file)
	d.sh(t, "echo x 2>/dev/null > '"+file+"' || exit 9").notDenied(t, 9)
	d.run(t, in{"command": "echo x > '" + file + "'", "env": in{"LC_ALL": "es_ES.UTF-8"}}).deniedAt(t, file) // English, where it is not installed
	phrases := []string{"Permiso denegado", "Keine Berechtigung"}
	if d.tier(t) == "A" {
		phrases = []string{"Sistema de ficheros de sólo lectura", "Das Dateisystem ist nur lesbar"}
	}
	for _, phrase := range phrases {
		said := fmt.Sprintf("echo x 2>/dev/null > '%s' || { echo 'bash: línea 1: %[1]s: %s' >&2; exit 1; }", file, phrase)
		d.sh(t, said).deniedAt(t, file)
	}
	if exists(file) {
		t.Error("it was written")
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

// caseM13 leads out of the workspace by symbolic links.
func caseM13(t *testing.T, d *daemon) {
	out, ws := d.out+"/m13", d.place(t, "m13")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	d.give(t, out, d.outside(t, "m13/f", "kept"))
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
	d.run(t, body("mv esc/f here")).deniedAt(t, out+"/f") // after it has copied it, where it is on another mount
	d.run(t, body("rm -f here")).exited(t, 0)
	for _, command := range []string{"ln esc/f hl", "ln '" + out + "/f' hl", "cp -l esc/f hl"} {
		if r := d.run(t, body(command)); r.code() == 0 {
			t.Errorf("%s: %s", command, r.raw)
		}
	}
	if r := d.run(t, body("echo x>esc/n; echo x>escf; ln '"+out+"/f' hl")); r.code() == 0 || !r.Sandbox.Denied {
		t.Errorf("all three at once: %s; want a denial", r.raw)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 1 || content(out+"/f") != "kept" || exists(ws+"/hl") {
		t.Errorf("outside: %v (%v), f %q", entries, err, content(out+"/f"))
	}
	// Inside, all of that works.
	d.run(t, body("mkdir a b; echo x>a/f; ln a/f hl2; mv a/f b/f; ln -s b/f l; echo y>>l; rm -r b hl2 l; rmdir a")).notDenied(t, 0)
}

func caseM14(t *testing.T, d *daemon) {
	file, fresh := d.outside(t, "m14", "kept"), d.out+"/m14-new"
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

// caseM15: what Landlock has no right for is refused all the same, or admitted.
func caseM15(t *testing.T, d *daemon) {
	i := d.info(t)
	for mode, report := range map[string]modeInfo{"read-only": i.Sandbox.ReadOnly, "workspace-write": i.Sandbox.WorkspaceWrite} {
		for n, op := range []struct{ gap, command string }{
			{"metadata", "chmod 600 %s"},
			{"metadata", "chown $(id -u):$(id -g) %s"},
			{"metadata", "chmod 600 /proc/self/fd/3 3<%s"},
			{"metadata", `/usr/bin/python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.x", b"y")' %s`},
			{"metadata", `/usr/bin/python3 -c 'import os, sys; f = os.open(sys.argv[1], os.O_RDONLY); os.fchmod(f, 0o600)' %s`},
			{"timestamps", "touch -d 2001-01-01 %s"},
			{"timestamps", "touch -h %s"},
		} {
			file := d.outside(t, fmt.Sprintf("m15-%s-%d", mode, n), "kept")
			before := changeOf(t, file)
			command := fmt.Sprintf(op.command, "'"+file+"'")
			r := d.run(t, in{"command": command, "sandboxMode": mode})
			changed := changeOf(t, file) != before
			switch admitted := slices.Contains(report.Gaps, op.gap); {
			case changed && (!admitted || report.Enforcement == "full"):
				t.Errorf("%s: %s: the file changed, with %+v", mode, command, report)
			case !changed && r.code() == 0:
				t.Errorf("%s: %s: it pretended to succeed: %s", mode, command, r.raw)
			case !changed && op.command == "chmod 600 %s", !changed && strings.HasPrefix(op.command, "touch -d"):
				r.deniedAt(t, file)
			}
			if content(file) != "kept" {
				t.Errorf("%s: %s changed the content", mode, command)
			}
		}
	}
}

// changeOf describes the metadata of a file, with the time of their last change, which no call can set.
func changeOf(tb testing.TB, path string) string {
	tb.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("%o %d:%d %v %v", st.Mode, st.Uid, st.Gid, st.Mtim, st.Ctim)
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
	d := launchIn(t, surroundings{wrapper: withoutLandlock(t)}, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	t.Cleanup(func() { d.stop(t) })
	d.runsNothingConfined(t, "landlock")
	i := d.info(t)
	if i.Sandbox.Tier != "none" || !strings.Contains(i.Sandbox.ReadOnly.Unavailable, "Landlock") || i.Sandbox.ReadOnly.Enforcement != "" {
		t.Errorf("info %+v", i)
	}
	if status, raw := d.request(t, "GET", "/readyz", ""); status != 503 || !strings.Contains(string(raw), "sandbox") {
		t.Errorf("readyz: %d %s; want 503, since the default mode is refused", status, raw)
	}
	d.run(t, in{"command": "echo ok", "sandboxMode": "danger-full-access"}).printed(t, "ok\n", "")
	k := d.task(t, in{"command": "echo ok", "sandboxMode": "danger-full-access"})
	d.waitTask(t, k.ID).exited(t, 0)
}

// withoutLandlock is a strace for whose processes this kernel has no Landlock.
func withoutLandlock(t *testing.T) []string {
	t.Helper()
	needsTool(t, "strace")
	strace := []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=landlock_create_ruleset", "-e", "inject=landlock_create_ruleset:error=ENOSYS"}
	if out, err := osexec.Command(strace[0], append(strace[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("strace cannot inject here: %v %s", err, out)
	}
	return strace
}

// runsNothingConfined checks that a daemon that found no sandbox at its start refuses every
// confined command, for a reason that has why in it, in whatever case.
func (d *daemon) runsNothingConfined(t *testing.T, why string, headers ...string) {
	t.Helper()
	marker := d.out + "/marker"
	for _, refused := range []func(testing.TB, in, int, string, ...string) problem{d.refused, d.refusedTask} {
		for _, mode := range modes[:2] {
			p := refused(t, in{"command": "touch '" + marker + "'; echo ran", "sandboxMode": mode}, 503, "SANDBOX_UNAVAILABLE", headers...)
			if !strings.Contains(strings.ToLower(p.Detail), why) || !strings.Contains(p.Detail, mode) {
				t.Errorf("detail %q; want the mode, and %q", p.Detail, why)
			}
		}
		refused(t, in{"command": "touch '" + marker + "'"}, 503, "SANDBOX_UNAVAILABLE", headers...)
	}
	if list := d.listTasks(t, headers...); len(list) != 0 || exists(marker) {
		t.Errorf("%d tasks; the command ran unconfined: %t", len(list), exists(marker))
	}
}

// caseM16AfterStart takes Landlock away from a daemon that has found it: what is refused by
// then is a runner's failure, which a task has for its end.
func caseM16AfterStart(t *testing.T, _ *daemon) {
	strace := withoutLandlock(t)
	d := start(t, "BASHD_WARM_RUNNERS=0")
	d.sh(t, "echo ok").printed(t, "ok\n", "")
	for _, pid := range append(childrenOf(d.pid), d.pid) {
		strace = append(strace, "-p", fmt.Sprint(pid))
	}
	tracer := osexec.Command(strace[0], strace[1:]...)
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tracer.Wait() }()
	t.Cleanup(func() { // before the daemon's stop
		_ = tracer.Process.Signal(os.Interrupt)
		<-ended
	})
	d.await(t, "the daemon is traced", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Skipf("strace may not trace the daemon here: %v", err)
		default:
		}
		return traced(d.pid)
	})
	marker := d.out + "/marker"
	for _, mode := range modes[:2] {
		body := in{"command": "touch '" + marker + "'; echo ran", "sandboxMode": mode}
		p := d.refused(t, body, 503, "SANDBOX_UNAVAILABLE")
		k := d.task(t, body)
		if k.Status != "running" || k.stamped {
			t.Errorf("%s: started as %s", mode, k.raw)
		}
		end := d.waitTask(t, k.ID)
		if end.Status != "failed" || !end.runnerFailed || end.Sandbox.Denied || end.ExitCode != nil || end.Signal != nil {
			t.Errorf("%s: %s; want it failed, by its runner", mode, end.raw)
		}
		if end.Detail == "" || end.Detail != p.Detail || !strings.Contains(end.Detail, mode) {
			t.Errorf("%s: detail %q; want what the run was answered: %q", mode, end.Detail, p.Detail)
		}
		if got := d.read(t, k.ID); !strings.Contains(got.Delta, end.Detail) || !got.EOF {
			t.Errorf("%s: delta %q, eof %t; want the reason there too", mode, got.Delta, got.EOF)
		}
	}
	if exists(marker) {
		t.Error("the command ran unconfined")
	}
}

// traced reports that each thread of the process has a tracer.
func traced(pid int) bool {
	threads, _ := filepath.Glob(procDir(pid) + "/task/*/status")
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
		return strings.Contains(content(path), "TracerPid:\t0\n")
	})
}

// layersBelow is the environment variable that makes TestBelowLayers what its name says.
const layersBelow = "TEST_LAYERS_BELOW"

// TestBelowLayers runs a program below so many layers of Landlock. It is the child of caseM17.
func TestBelowLayers(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(layersBelow))
	if err != nil {
		t.Skipf("only with %s", layersBelow)
	}
	runtime.LockOSThread() // the domain is a thread's, and so is the execve
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		// A right that nobody here needs, and the one that every layer takes away unless it is given.
		fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: ll.AccessFSMakeChar | ll.AccessFSRefer}, 0)
		if err != nil {
			t.Fatal(err)
		}
		refer := ll.PathBeneathAttr{ParentFd: int(root.Fd()), AllowedAccess: ll.AccessFSRefer}
		if err := ll.LandlockAddPathBeneathRule(fd, &refer, 0); err != nil {
			t.Fatal(err)
		}
		if err := ll.LandlockRestrictSelf(fd, 0); err != nil {
			t.Fatalf("layer %d: %v", i+1, err)
		}
		_ = unix.Close(fd)
	}
	argv := flag.Args()
	t.Fatal(unix.Exec(argv[0], argv, append(os.Environ(), asMain+"=1")))
}

// caseM17: Landlock has 16 layers. Where too few are left for a command, it does not run.
func caseM17(t *testing.T, d *daemon) {
	if i := d.info(t); i.Sandbox.ABI < 2 {
		t.Skipf("the layers of this test need ABI 2; this is %d", i.Sandbox.ABI)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, layers := range []int{16, 15, 14} { // none is left; one; two, and a command needs three
		d := belowLayers(t, self, layers)
		d.runsNothingConfined(t, "landlock", tokenM17)
		if status, raw := d.request(t, "GET", "/readyz", ""); status != 503 || !strings.Contains(string(raw), "sandbox") {
			t.Errorf("readyz: %d %s; want 503, since the default mode is refused", status, raw)
		}
	}
	few := belowLayers(t, self, 13)
	marker := few.out + "/marker"
	r := few.run(t, in{"command": "echo ran; touch '" + marker + "'"}, tokenM17)
	if r.deniedAt(t, marker); r.Stdout.Text != "ran\n" || exists(marker) {
		t.Errorf("with three layers left: %s", r.raw)
	}
}

const tokenM17 = "Authorization: Bearer token-m17"

// belowLayers starts a daemon below so many layers.
func belowLayers(t *testing.T, self string, layers int) *daemon {
	t.Helper()
	wrapper := []string{"env", "-u", asMain, fmt.Sprintf("%s=%d", layersBelow, layers), self, "-test.run=^TestBelowLayers$", "--"}
	// Whoever is below a layer may not inspect who is not. In open mode this daemon would have to take
	// us for one of its commands.
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "m17:%x\n", sha256.Sum256([]byte("token-m17"))), 0o600); err != nil {
		t.Fatal(err)
	}
	d := launchIn(t, surroundings{wrapper: wrapper}, "BASHD_SANDBOX_MAX_MODE=danger-full-access", "BASHD_TOKENS_FILE="+tokens)
	t.Cleanup(func() { d.stop(t) })
	return d
}

// caseM20 is the table of what each mode allows.
func caseM20(t *testing.T, d *daemon) {
	tmp := filepath.Join("/tmp", filepath.Base(filepath.Dir(d.cmd.Dir))+"-m20")
	t.Cleanup(func() { os.Remove(tmp) })
	home := d.out + "/home-m20"
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	d.give(t, home)
	private := d.tier(t) == "A"
	for _, mode := range modes {
		confined, writes := mode != "danger-full-access", mode != "read-only"
		for _, op := range []struct {
			command, creates string
			allowed          bool
		}{
			{"echo x > f-m20", d.shared() + "/f-m20", writes},
			{"echo x > " + tmp, tmp, !confined},
			{"echo x > ~/f-m20", home + "/f-m20", !confined},
			{"cat /etc/passwd", "", true},
			{"echo x > /dev/null", "", true},
			{"f=$(mktemp) && echo x > \"$f\" && rm \"$f\"", "", true},
			{"mkdir /etc/m20 && rmdir /etc/m20", "", !confined && d.commandUID(t) == 0},
		} {
			r := d.run(t, in{"command": op.command, "sandboxMode": mode, "env": in{"HOME": home}})
			// A /tmp of the command's own can be written, and nothing of it is seen outside.
			works := op.allowed || private && op.creates == tmp
			if (r.code() == 0) != works || op.creates != "" && exists(op.creates) != op.allowed {
				t.Errorf("%s: %s: %s; want it allowed: %t", mode, op.command, r.raw, op.allowed)
			}
			if op.creates != "" {
				if !works {
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

// caseM20Task: a task is told of its sandbox when it is over, and of a denial by it.
func caseM20Task(t *testing.T, d *daemon) {
	file := d.out + "/m20-task"
	for _, mode := range modes {
		k := d.task(t, in{"command": "read -r; echo x > '" + file + "'", "sandboxMode": mode, "stdinOpen": true})
		if k.stamped || d.getTask(t, k.ID).stamped || k.Spec["sandboxMode"] != mode {
			t.Errorf("%s: %s; want its mode in the spec, and no verdict yet", mode, k.raw)
		}
		d.goOn(t, k.ID)
		end := d.waitTask(t, k.ID)
		if end.Sandbox.Mode != mode || end.runnerFailed {
			t.Errorf("%s: %s", mode, end.raw)
		}
		if mode != "danger-full-access" {
			end.deniedAt(t, file)
			if end.Sandbox.Enforcement == "" || exists(file) {
				t.Errorf("%s: enforcement %q, written: %t", mode, end.Sandbox.Enforcement, exists(file))
			}
			continue
		}
		end.notDenied(t, 0)
		var own struct{ Sandbox map[string]any }
		if err := json.Unmarshal(end.raw, &own); err != nil || !maps.Equal(own.Sandbox, map[string]any{"mode": mode, "denied": false}) {
			t.Errorf("sandbox %v (%v); want the mode and denied, no more", own.Sandbox, err)
		}
	}
	k := d.task(t, in{"command": "echo x > f-m20-task"}) // in the workspace, where a wider mode would do
	end := d.waitTask(t, k.ID)
	end.deniedAt(t, d.shared()+"/f-m20-task")
	if end.Sandbox.Hint != `sandboxMode "workspace-write" is allowed` {
		t.Errorf("hint %q", end.Sandbox.Hint)
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
			if r.exited(t, 1); r.Stdout.Bytes != 0 {
				t.Errorf("%s: %s can be read", mode, path)
			}
			if d.tier(t) == "C" { // in A it is not there, and in B permissions refuse as well
				r.deniedAt(t, d.state+"/"+path)
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
