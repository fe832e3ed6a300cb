package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestDegradation takes away from a daemon what it confines with, really and one thing after the other, and looks at what it
// makes of what is left: the tier, what it says of each mode, and whether that is true. What it cannot confine must not run.
//
// The table tells what the daemon has to say; that nothing outside changes but what a gap admits, that nothing is
// refused for long that could run, and that nothing runs as anybody else, holds for every row.
func TestDegradation(t *testing.T) {
	t.Parallel()
	exe := &sharedProgram{}
	t.Cleanup(exe.remove)
	abi, err := strconv.Atoi(tryWithout(t, "", "", "abi")["abi"])
	if err != nil {
		abi = 0 // the errno of a kernel without Landlock
	}
	for turn, who := range daemonUsers() {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			lacks := who.lacksNamespaces()
			for _, row := range append(share(degradations(who, abi), turn), special(who, abi)...) {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					if row.tier == "A" && lacks != nil {
						t.Skipf("this host lacks more than is taken away: %v", lacks)
					}
					row.check(t, who, exe)
				})
			}
		})
	}
}

// daemonUser is whom a daemon runs as, and its commands.
type daemonUser struct {
	name    string
	user    string // for takeawayUser
	runAs   bool   // it is root, and has BASHD_RUN_AS
	command int    // uid of the commands
	landed  string // the tier without namespaces
}

func daemonUsers() []daemonUser {
	if uid := os.Geteuid(); uid != 0 {
		return []daemonUser{{name: "unprivileged", command: uid, landed: "C"}}
	}
	return []daemonUser{
		{name: "root", landed: "C"},
		{name: "root with BASHD_RUN_AS", runAs: true, command: nobody, landed: "B"},
		{name: "unprivileged", user: strconv.Itoa(nobody), command: nobody, landed: "C"},
	}
}

// lacksNamespaces tries, without bashd, what the best tier needs of the host.
func (who daemonUser) lacksNamespaces() error {
	args := []string{"-m", "-p", "-i", "--fork", "--mount-proc", "true"}
	var sys syscall.SysProcAttr
	if os.Geteuid() != 0 || who.user != "" {
		args = append([]string{"-U", "-r"}, args...)
	}
	if who.user != "" {
		sys.Credential = &syscall.Credential{Uid: uint32(who.command), Gid: uint32(who.command)}
	}
	cmd := osexec.Command("unshare", args...)
	cmd.SysProcAttr = &sys
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// degradation is a row of the table.
type degradation struct {
	name, taken string
	tier        string // empty: any
	abi         int    // that it says it has; 0 where it has none or cannot use it
	readOnly    modeWant
	workspace   modeWant
	why         string // in the reason of what is refused, in lower case
	noFull      bool   // full access is refused too
	noStart     string // it does not start, and says this; empty: it does
}

// modeWant is what is to be said of a mode.
type modeWant struct {
	enforcement []string // any of these; "" for a mode that is refused
	gaps, not   []string // among the gaps, and not among them
}

// The gaps that speak of files outside: with one of them nothing is full.
var fileGaps = []string{"metadata", "timestamps", "truncate"}

// inNamespaces is the best there is, with Landlock of that ABI.
func inNamespaces(name, taken string, abi int) degradation {
	not := append([]string{"cleanup", "command-lines", "hidden-names", "hidden-sockets", "scheduling"}, fileGaps...)
	m := modeWant{enforcement: []string{"full"}, not: append(slices.Clip(not), "signals")}
	if abi < 6 {
		// Of the processes outside only the runner is there to be signalled, where it has the command's user.
		m = modeWant{enforcement: []string{"full"}, gaps: []string{"abstract-sockets"}, not: not}
	}
	return degradation{name: name, taken: taken, tier: "A", abi: abi, readOnly: m, workspace: m}
}

// withoutNamespaces is what is left without them.
func withoutNamespaces(who daemonUser, name, taken string, abi int) degradation {
	d := degradation{name: name, taken: taken, tier: who.landed, abi: abi}
	gaps, not := []string{"command-lines", "hidden-names", "hidden-sockets"}, []string{"abstract-sockets", "cleanup", "signals"}
	if abi < 6 {
		gaps, not = append(gaps, "abstract-sockets", "signals"), nil
	}
	d.readOnly = modeWant{[]string{"full"}, gaps, append([]string{"metadata", "timestamps"}, not...)}
	d.workspace = modeWant{[]string{"partial"}, append([]string{"metadata", "timestamps"}, gaps...), not}
	if abi >= 3 {
		d.readOnly.not, d.workspace.not = append(d.readOnly.not, "truncate"), append(slices.Clip(not), "truncate")
		return d
	}
	if who.landed == "C" {
		d.tier = "C-"
	}
	d.readOnly.enforcement = []string{"partial"}
	d.readOnly.gaps, d.workspace.gaps = append(slices.Clip(gaps), "truncate"), append(d.workspace.gaps, "truncate")
	return d
}

// nothingLeft confines nothing, and says why.
func nothingLeft(name, taken, why string) degradation {
	no := modeWant{enforcement: []string{""}}
	return degradation{name: name, taken: taken, tier: "none", readOnly: no, workspace: no, why: why}
}

// anything may be said, as long as it is true: the kernel lies.
func anything(name, taken string) degradation {
	m := modeWant{enforcement: []string{"full", "partial", ""}}
	return degradation{name: name, taken: taken, readOnly: m, workspace: m}
}

// What a container without namespaces refuses, and what AppArmor does to a process that has made some.
const (
	noNamespaces = "clone:new=EPERM,unshare=EPERM"
	noMounts     = "mount=EACCES,mount_setattr=EACCES,move_mount=EACCES"
)

// degradations are the rows of the table that are common to all users, as they are for one, on a kernel with Landlock of that ABI.
func degradations(who daemonUser, abi int) []degradation {
	const noPidfds = "pidfd_open=ENOSYS,pidfd_send_signal=ENOSYS"
	const noLandlock = "landlock_create_ruleset=ENOSYS,landlock_add_rule=ENOSYS,landlock_restrict_self=ENOSYS"
	if abi == 0 {
		return []degradation{nothingLeft("nothing", "", "landlock")}
	}
	rows := []degradation{
		inNamespaces("nothing", "", abi),
		nothingLeft("Landlock", noLandlock, "landlock"),
		nothingLeft("Landlock and namespaces", noLandlock+","+noNamespaces, "landlock"),
		nothingLeft("Landlock, not enabled at boot", "landlock_create_ruleset=ENOTSUP", "landlock"), // EOPNOTSUPP, by its other name
		nothingLeft("entering Landlock", "landlock_restrict_self=EPERM", "landlock"),
		nothingLeft("what Landlock does, not what it says, and namespaces", "landlock_restrict_self=OK,"+noNamespaces, ""),
		anything("what Landlock does, not what it says", "landlock_restrict_self=OK"),
		anything("what mount_setattr does, not what it says", "mount_setattr=OK"),
		nothingLeft("loading a system call filter", "seccomp:filter=EINVAL,prctl:seccomp=EINVAL", "seccomp"),
		nothingLeft("no_new_privs", "prctl:no-new-privs=EINVAL", "privs"),
		nothingLeft("close_range", "close_range=ENOSYS", "descriptors"),
		inNamespaces("the bounding set", "prctl:capbset=EPERM", abi),
		inNamespaces("pidfds", noPidfds, abi),
		withoutNamespaces(who, "pidfds, namespaces and Landlock newer than ABI 5",
			fmt.Sprintf("%s,%s,landlock:abi=%d", noPidfds, noNamespaces, min(abi, 5)), min(abi, 5)),
	}
	for _, without := range []struct{ name, taken string }{
		{"namespaces", noNamespaces},
		{"namespaces, as on an older kernel", "clone:new=EINVAL,unshare=EINVAL"},
		{"pid namespaces", "clone:newpid=ENOSPC,unshare:newpid=ENOSPC"},
		{"mounts", noMounts},
		{"mounts, with EPERM", "mount=EPERM,mount_setattr=EPERM,move_mount=EPERM,open_tree=EPERM,fsopen=EPERM,fsmount=EPERM"},
		{"mount_setattr", "mount_setattr=ENOSYS"},
		{"open_tree", "open_tree=ENOSYS"},
		{"mounting /proc", "fsopen:proc=EPERM,mount:proc=EPERM"},
	} {
		rows = append(rows, withoutNamespaces(who, without.name, without.taken, abi))
	}
	for _, older := range []int{1, 2, 3, 5, 6} {
		if older > abi {
			continue
		}
		taken := fmt.Sprintf("landlock:abi=%d", older)
		rows = append(rows, inNamespaces(fmt.Sprintf("Landlock newer than ABI %d", older), taken, older),
			withoutNamespaces(who, fmt.Sprintf("namespaces and Landlock newer than ABI %d", older), taken+","+noNamespaces, older))
	}
	return rows
}

// share is what one of the users tries of the rows that are common to them: the first ones, and its turn of the others; in
// the long form all.
func share(rows []degradation, turn int) (mine []degradation) {
	for i, row := range rows {
		if long || i < 3 || i%len(daemonUsers()) == turn {
			mine = append(mine, row)
		}
	}
	return mine
}

// special are rows in which a daemon of that user is different from the others, or in which two answers are right.
func special(who daemonUser, abi int) []degradation {
	if abi == 0 {
		return nil // without Landlock nothing else matters
	}
	neverFull := func(d degradation) degradation {
		for _, m := range []*modeWant{&d.readOnly, &d.workspace} {
			*m = modeWant{enforcement: []string{"partial", ""}, gaps: []string{"scheduling"}}
		}
		d.why = "seccomp"
		return d
	}
	rows := []degradation{
		neverFull(inNamespaces("seccomp", "seccomp=EINVAL,prctl:seccomp=EINVAL", abi)),
		neverFull(withoutNamespaces(who, "seccomp and namespaces", "seccomp=EINVAL,prctl:seccomp=EINVAL,"+noNamespaces, abi)),
	}
	if user := withoutNamespaces(who, "user namespaces", "clone:newuser=EPERM,unshare:newuser=EPERM", abi); who.command == 0 || who.runAs {
		rows = append(rows, inNamespaces(user.name, user.taken, abi)) // root needs none
	} else {
		rows = append(rows, user)
	}
	if who.runAs {
		for _, row := range []degradation{
			nothingLeft("setresuid", "setresuid=EPERM", "user"), nothingLeft("setresgid", "setresgid=EPERM", "user"),
			// Some containers make believe that their root may become anybody.
			nothingLeft("what setresuid does, not what it says", "setresuid=OK,setresgid=OK,setgroups=OK", ""),
		} {
			row.noFull = true // never as root
			rows = append(rows, row)
		}
		return append(rows, degradation{name: "setgroups", taken: "setgroups=EPERM", noStart: "setting groups"},
			degradation{name: "dropping capabilities", taken: "capset=EPERM", noStart: "dropping capabilities"})
	}
	rows = append(rows, nothingLeft("dropping capabilities", "capset=EPERM", "capabilities"))
	if who.user == "" { // else the test could not become that user
		rows = append(rows, inNamespaces("setuid", "setuid=EPERM,setresuid=EPERM,setgid=EPERM,setresgid=EPERM", abi))
	}
	return rows
}

// sharedProgram is a copy of this binary that any user may run, one for all rows: it is large.
type sharedProgram struct {
	once sync.Once
	dir  string
}

func (p *sharedProgram) path(t *testing.T) string {
	t.Helper()
	p.once.Do(func() {
		dir, err := os.MkdirTemp("/var/tmp", "bashd-degradation-")
		if err != nil {
			t.Fatal(err)
		}
		p.dir = dir
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		copyOfSelf(t, dir)
	})
	if p.dir == "" {
		t.Fatal("there is no program to start")
	}
	return p.dir + "/bashd"
}

func (p *sharedProgram) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// startWithout starts a daemon from which that was taken away.
func (who daemonUser) startWithout(t *testing.T, taken string, exe *sharedProgram, env ...string) *daemon {
	t.Helper()
	d := launchIn(t, surroundings{prepare: func(d *daemon) { who.wrap(t, d.cmd, taken, exe) }}, append(env, who.settings()...)...)
	d.pid = wrapped(t, d.cmd.Process.Pid)
	t.Cleanup(func() { d.stop(t) })
	return d
}

func (who daemonUser) settings() []string {
	env := []string{"BASHD_SANDBOX_MAX_MODE=danger-full-access"}
	if who.runAs {
		env = append(env, fmt.Sprintf("BASHD_RUN_AS=%d:%[1]d", who.command))
	}
	return env
}

// wrap makes a command that starts a daemon, in a directory of its own, one that starts it as that user without what is taken.
func (who daemonUser) wrap(t *testing.T, cmd *osexec.Cmd, taken string, exe *sharedProgram) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := osexec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = self
	cmd.Args = []string{self, "-test.run=^TestTakeaway$", "--", program, asMain + "=1", exe.path(t)}
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, asMain+"=") })
	cmd.Env = append(cmd.Env, takeaway+"="+taken, takeawayUser+"="+who.user, "GORACE=atexit_sleep_ms=0")
	if who.user == "" && !who.runAs {
		return
	}
	// testing makes the directory above for its own user only.
	err = os.Chmod(filepath.Dir(cmd.Dir), 0o711)
	if who.user != "" {
		err = errors.Join(err, os.Chown(cmd.Dir, who.command, who.command))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// noStart sees that a daemon from which that was taken away says why it does not start, in its last line.
func (who daemonUser) noStart(t *testing.T, taken string, exe *sharedProgram, parts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := osexec.CommandContext(ctx, "env")
	cmd.Dir = t.TempDir()
	cmd.Env = append(who.settings(), "PATH="+os.Getenv("PATH"), "HOME="+cmd.Dir, "BASHD_LISTEN=127.0.0.1:0")
	who.wrap(t, cmd, taken, exe)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(last, "bashd: ") {
		t.Errorf("%v\n%s\nwant exit 1 and the reason in the last line", err, out)
	}
	for _, part := range parts {
		if !strings.Contains(last, part) {
			t.Errorf("%q lacks %q", last, part)
		}
	}
}

// check starts a daemon and compares what it says with the row, and what it does with what it says.
func (row degradation) check(t *testing.T, who daemonUser, exe *sharedProgram) {
	if row.noStart != "" {
		who.noStart(t, row.taken, exe, row.noStart, "BASHD_RUN_AS")
		return
	}
	out := newOutside(t, who.command)
	d := who.startWithout(t, row.taken, exe, "BASHD_HIDE_PATHS="+out.dir+"/hidden")
	d.out = out.dir
	i := d.info(t)
	if refused := i.Sandbox.ReadOnly.Unavailable != ""; refused != (i.Sandbox.Tier == "none") {
		t.Errorf("tier %s, and read-only is refused: %t", i.Sandbox.Tier, refused)
	} else if !refused && row.tier != "" && i.Sandbox.Tier != row.tier {
		t.Errorf("tier %s; want %s", i.Sandbox.Tier, row.tier)
	}
	if i.Sandbox.ABI != row.abi && row.abi != 0 {
		t.Errorf("ABI %d; want %d", i.Sandbox.ABI, row.abi)
	}
	row.readOnly.check(t, "read-only", i.Sandbox.ReadOnly)
	row.workspace.check(t, "workspace-write", i.Sandbox.WorkspaceWrite)
	ready := 200
	if i.Sandbox.ReadOnly.Unavailable != "" {
		ready = 503
		d.runsNothingConfined(t, row.why)
	} else {
		d.keepsItsWord(t, who, out, "read-only", i.Sandbox.ReadOnly)
		d.keepsItsWord(t, who, out, "workspace-write", i.Sandbox.WorkspaceWrite)
	}
	if status, raw := d.request(t, "GET", "/readyz", ""); status != ready {
		t.Errorf("readyz: %d %s; want %d", status, raw, ready)
	}
	d.fullAccess(t, who, row.noFull)
}

func (w modeWant) check(t *testing.T, mode string, got modeInfo) {
	t.Helper()
	if !slices.Contains(w.enforcement, got.Enforcement) || (got.Enforcement == "") != (got.Unavailable != "") {
		t.Errorf("%s: %+v; want the enforcement %q", mode, got, w.enforcement)
	}
	if got.Unavailable != "" {
		return
	}
	missing := slices.DeleteFunc(slices.Clone(w.gaps), func(gap string) bool { return slices.Contains(got.Gaps, gap) })
	wrong := slices.DeleteFunc(slices.Clone(w.not), func(gap string) bool { return !slices.Contains(got.Gaps, gap) })
	if len(missing)+len(wrong) > 0 {
		t.Errorf("%s: gaps %q; want %q, and no %q", mode, got.Gaps, missing, wrong)
	}
	if got.Enforcement == "full" && slices.ContainsFunc(got.Gaps, func(gap string) bool { return slices.Contains(fileGaps, gap) }) {
		t.Errorf("%s is full with gaps %q", mode, got.Gaps)
	}
}

// outside is a directory out of the reach of confined commands, although all in it belongs to their user.
type outside struct {
	dir    string
	victim int // a process of their user
}

// newOutside lies beside /tmp, which commands may have for their own.
func newOutside(t *testing.T, uid int) *outside {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bashd-outside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{"hidden", "empty"} {
		if err := os.Mkdir(dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"written", "removed", "moved", "linked", "metadata", "timestamps", "truncate", "hidden/canary"} {
		write(t, dir+"/"+f, "kept, and a canary\n")
	}
	victim := osexec.Command("sleep", "600")
	if os.Geteuid() == 0 {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, uid, uid))
		})
		if err != nil {
			t.Fatal(err)
		}
		victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = victim.Process.Kill()
		_ = victim.Wait()
	})
	return &outside{dir, victim.Process.Pid}
}

// state describes everything in it, metadata included.
func (o *outside) state(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	err := filepath.WalkDir(o.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		state[strings.TrimPrefix(path, o.dir)] = fmt.Sprintf("%o %d:%d %d links, %d bytes, %d.%09d, %q",
			st.Mode, st.Uid, st.Gid, st.Nlink, st.Size, st.Mtim.Sec, st.Mtim.Nsec, content(path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// attack is a command that does to each thing outside what its name says, and then what every command may.
const attack = `cd "$OUT" || exit 99
echo x >written; echo x >new; rm removed; mv moved moved-away; rmdir empty; mkdir dir; ln -s x symlink
ln linked "$OLDPWD/hard"; mv moved "$OLDPWD/"
chmod 600 metadata; touch -d 2001-01-01 timestamps; truncate -s 0 truncate
cat hidden/canary; echo x >hidden/canary
kill -0 "$VICTIM" && echo signalled
cd - >/dev/null; (setsid sleep "$LONG" >/dev/null 2>&1 &)
echo x >"$TMPDIR/temp" && cat "$TMPDIR/temp" && echo x >inside
id -u`

// keepsItsWord attacks what is outside, and sees that only that has changed which the report admits.
func (d *daemon) keepsItsWord(t *testing.T, who daemonUser, out *outside, mode string, report modeInfo) {
	t.Helper()
	if report.Unavailable != "" {
		return
	}
	long := fmt.Sprintf("6%d", 1000+out.victim%1000)
	before := out.state(t)
	r := d.run(t, in{
		"command": attack, "sandboxMode": mode, "timeoutMs": 30000,
		"env": in{"OUT": out.dir, "VICTIM": strconv.Itoa(out.victim), "LONG": long},
	})
	r.exited(t, 0)
	d.noneAlive(t, "sleep "+long)
	if r.Sandbox.Enforcement != report.Enforcement || !slices.Equal(r.Sandbox.Gaps, report.Gaps) {
		t.Errorf("%s: a run says %s %q, /v1/info %+v", mode, r.Sandbox.Enforcement, r.Sandbox.Gaps, report)
	}
	after := out.state(t)
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	for path := range paths {
		gap := strings.TrimPrefix(path, "/")
		if before[path] != after[path] && !(slices.Contains(fileGaps, gap) && slices.Contains(report.Gaps, gap)) {
			t.Errorf("%s: %s was %q and is %q, with gaps %q", mode, path, before[path], after[path], report.Gaps)
		}
	}
	if strings.Contains(r.Stdout.Text, "canary") {
		t.Errorf("%s: what is hidden can be read: %s", mode, r.raw)
	}
	if strings.Contains(r.Stdout.Text, "signalled") && !slices.Contains(report.Gaps, "signals") {
		t.Errorf("%s: a process outside can be signalled, with gaps %q", mode, report.Gaps)
	}
	want := fmt.Sprintf("x\n%d\n", who.command)
	if !strings.HasSuffix(r.Stdout.Text, want) {
		t.Errorf("%s: stdout %q; want its own files to work and the user: %q", mode, r.Stdout.Text, want)
	}
	if wrote, linked := exists(d.shared()+"/inside"), exists(d.shared()+"/hard"); wrote != (mode == "workspace-write") || linked {
		t.Errorf("%s: the workspace was written: %t, and has a link out: %t", mode, wrote, linked)
	}
}

// fullAccess sees that what is not confined runs, as nobody but the user that it is meant for, or not at all.
func (d *daemon) fullAccess(t *testing.T, who daemonUser, refused bool) {
	t.Helper()
	file := d.out + "/free"
	body := in{"command": "echo x >" + file + "; id -u; id -G", "sandboxMode": "danger-full-access"}
	if refused {
		if status, raw := d.request(t, "POST", "/v1/runs", mustJSON(t, body)); status != 503 || exists(file) {
			t.Errorf("full access: %d %s, the command ran: %t; want it refused", status, raw, exists(file))
		}
		return
	}
	d.run(t, body).printed(t, fmt.Sprintf("%d\n%[1]d\n", who.command), "")
	var st syscall.Stat_t
	if err := syscall.Lstat(file, &st); err != nil || int(st.Uid) != who.command {
		t.Errorf("full access: a file of user %d (%v); want %d", st.Uid, err, who.command)
	}
}
