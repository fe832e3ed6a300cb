package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// work is what people do all day, and must be able to.
type work struct {
	name, needs string // the program without which it is skipped; empty: none
	readOnly    bool   // it writes nothing but temporary files
	private     bool   // it needs /tmp and /dev/shm
	script      string
}

var works = []work{
	{"git", "git", false, false, `git init -q repo && cd repo && git config user.email a@example.org && git config user.name A
		echo x >f; git add f; git commit -qm one; echo y >>f; git commit -qam two
		git checkout -qb side HEAD^; git log --oneline | grep -q one; git gc -q; git status --short`},
	{"git reads", "git", true, false, `cd given && git status --short && git log --oneline | grep -q given && git diff HEAD --stat && git grep -q content`},
	{"go build", "go", false, false, `mkdir -p prog && cd prog && printf 'module x\n' >go.mod
		printf 'package main\nfunc main() { println("built") }\n' >main.go
		go build -o x . && ./x 2>&1 | grep -qx built`},
	{"python venv", "python3", false, false, `python3 -m venv --without-pip env && env/bin/python -c 'import sys
assert sys.prefix.endswith("env")' `},
	{"python reads", "python3", true, false, `python3 -c 'import json, tempfile, subprocess
with tempfile.NamedTemporaryFile("w+") as f: json.dump([1], f); f.seek(0); assert json.load(f) == [1]
with tempfile.TemporaryDirectory() as d: subprocess.run(["sh", "-c", "echo x >" + d + "/x"], check=True)'`},
	{"multiprocessing", "python3", true, true, `python3 -c 'import multiprocessing as m
if __name__ == "__main__":
    with m.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
    from multiprocessing import shared_memory as s
    b = s.SharedMemory(create=True, size=4096); b.buf[0] = 7; b.close(); b.unlink()'`},
	{"hard-coded /tmp", "", true, true, `echo x >/tmp/bashd-test-mine && test "$(cat /tmp/bashd-test-mine)" = x && mkdir /tmp/d && : >/dev/shm/bashd-test-mine && test -k /tmp`},
	{"node", "node", true, false, `node -e 'const fs = require("fs"), os = require("os"), d = fs.mkdtempSync(os.tmpdir() + "/x"); fs.writeFileSync(d + "/f", "x")
		fs.rmSync(d, {recursive: true})
		require("child_process").execFileSync("true"); new (require("worker_threads").Worker)("", {eval: true})'`},
	{"node writes", "node", false, false, `node -e 'const fs = require("fs"); fs.writeFileSync("n.js", "console.log(1)"); fs.chmodSync("n.js", 0o755); fs.renameSync("n.js", "m.js")
		fs.utimesSync("m.js", 1, 1)' && test "$(node m.js)" = 1`},
	{"make", "make", false, false, `mkdir -p m && cd m && printf 'all: a b c\n%%:\n\tsleep 0.01; echo $@ >$@\n' >Makefile && make -j2 >/dev/null && cat a b c >/dev/null`},
	{"cc", "cc", false, false, `printf 'int main(void) { return 0; }\n' >c.c && cc -o c c.c && ./c`},
	{"sqlite", "sqlite3", false, false, `sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1)
		; select * from t' | tail -1 | grep -qx 1 && sqlite3 db vacuum`},
	{"sqlite reads", "sqlite3", true, false, `test "$(sqlite3 'file:given/db?mode=ro' 'select x from t order by x desc')" = 7 && test "$(sqlite3 :memory: 'select 1')" = 1`},
	{"tar", "tar", false, false, `mkdir -p t/d && echo x >t/d/f && ln -sf f t/d/s && chmod 750 t/d && touch -d 2001-01-01 t/d/f
		tar czf t.tgz t && rm -r t && tar xzf t.tgz && test "$(stat -c %a t/d)" = 750 && test "$(stat -c %Y t/d/f)" = "$(date -d 2001-01-01 +%s)"`},
	{"tar reads", "tar", true, false, `tar cf - given | tar tf - >/dev/null && tar czf "$TMPDIR/x.tgz" given && tar xzf "$TMPDIR/x.tgz" -O given/f | grep -qx content`},
	// With nothing but the filter to keep metadata, read-only refuses its changes for temporary files, too.
	{"tar extracts", "tar", true, true, `tar czf "$TMPDIR/x.tgz" given && tar xzf "$TMPDIR/x.tgz" -C "$TMPDIR" && cp -p given/f "$TMPDIR" && chmod 700 "$TMPDIR/f"`},
	{"cp -p", "", false, false, `echo x >one && chmod 640 one && touch -d 2001-01-01 one && cp -p one two
		test "$(stat -c '%a %Y' one)" = "$(stat -c '%a %Y' two)" && cp -a given copy && mv copy moved && rm -r moved`},
	{"install", "install", false, false, `install -d i/bin && install -m 755 /bin/true i/bin/true && i/bin/true && ln i/bin/true i/hard && mkfifo i/p && rm -r i`},
	{"mktemp", "", true, false, `f=$(mktemp) && d=$(mktemp -d) && echo x >"$f" && mv "$f" "$d" && rm -r "$d"`},
	{"here-document", "", true, false, "wc -c <<E | grep -qx 200001\n" + strings.Repeat("x", 200_000) + "\nE\n"},
	{"process substitution", "", true, false, `diff <(echo a) <(echo a) && echo b > >(cat >/dev/null)`},
	{"streams", "", true, false, `echo a >/dev/stderr && echo b >/dev/stdout && echo c >/dev/fd/1 && cat /dev/stdin </dev/null && echo d | tee /dev/stderr >/dev/null`},
	{"listing", "", true, false, `ls / >/dev/null && ls -l /dev/null /etc/passwd >/dev/null && df . >/dev/null && ps ax >/dev/null && id >/dev/null`},
	{"sort", "", true, false, `seq 100000 | sort -R -S 1M | sort -n -S 1M --parallel=2 | tail -1 | grep -qx 100000`},
	{"jobs", "", true, false, `set -m; sleep 3999 & kill -STOP %1 && kill -CONT %1 && kill %1; wait %1 2>/dev/null || true
		coproc cat; echo x >&"${COPROC[1]}"; read -r l <&"${COPROC[0]}"; test $l = x; code=0; timeout 0.05 sleep 9 || code=$?; test $code = 124`},
	{"strace", "strace", true, false, `strace -f -o "$TMPDIR/trace" true && grep -q exit_group "$TMPDIR/trace"`},
	{"limits", "", true, false, `nice -n 2 true && (ulimit -n 50; true) && taskset -c 0 true && ionice -c3 true`},
}

// TestPromise9Work: what writes nowhere but where it may works as it does without a sandbox, for a user who is not root.
func TestPromise9Work(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("building programs takes its time")
	}
	cache := workCache(t)
	everyTier(t, func(t *testing.T, f *fixture) {
		if f.owner().UID == 0 {
			t.Skip("commands run as root here, to whom other rules apply")
		}
		f.giveWork(t)
		moveTree(t, cache, f.ws+"/.cache")
		f.grant(t, f.ws)
		defer moveTree(t, f.ws+"/.cache", cache)
		for _, mode := range confinedModes {
			for _, w := range works {
				if mode == sandbox.ReadOnly && !w.readOnly || w.private && !f.PrivateTemp(mode) {
					continue
				}
				t.Run(string(mode)+"/"+w.name, func(t *testing.T) { testWork(t, f, mode, w) })
			}
		}
	})
}

// workCache is a cache of go's that goes from tier to tier, and from root to nobody: the first build takes a while.
func workCache(t *testing.T) string {
	t.Helper()
	dir := filepath.Dir(ownProgram(t)) + "/work"
	if err := os.Mkdir(dir, 0o755); err == nil {
		must(t, os.Mkdir(dir+"/cache", 0o755))
		if os.Geteuid() == 0 {
			must(t, os.Chown(dir, int(nobody.UID), int(nobody.GID)))
			must(t, os.Chown(dir+"/cache", int(nobody.UID), int(nobody.GID)))
		}
	}
	return dir + "/cache"
}

// giveWork puts a repository and a database into the workspace.
func (f *fixture) giveWork(t *testing.T) {
	t.Helper()
	script := `mkdir given; cd given; echo content >f
		command -v git >/dev/null && git init -q . && git add f && git -c user.email=a@example.org -c user.name=A commit -qm given
		command -v sqlite3 >/dev/null && sqlite3 db 'create table t(x); insert into t values(7)'; true`
	c := f.command(t, sandbox.FullAccess, script)
	c.Env = append(c.Env, "HOME="+f.ws)
	if got := f.run(t, c); got.status.ExitStatus() != 0 {
		t.Fatalf("got %+v", got)
	}
}

// moveTree moves a directory on or off a file system of its own.
func moveTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("mv", "-T", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func testWork(t *testing.T, f *fixture, mode sandbox.Mode, w work) {
	f.needs(t, mode)
	c := f.command(t, mode, "set -e -o pipefail; trap 'echo failed in line $LINENO >&2' ERR\n"+w.script)
	c.Env = append(
		c.Env, "HOME="+f.ws, "USER=nobody", "LC_ALL=C.UTF-8", "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local",
		"GOCACHE="+f.ws+"/.cache", "GOTELEMETRY=off", "GOENV=off", "GOPROXY=off",
	)
	if w.needs != "" {
		has := c
		has.Script = "command -v " + w.needs
		if got := f.run(t, has); got.status.ExitStatus() != 0 {
			t.Skipf("needs %s", w.needs)
		}
	}
	if got := f.run(t, c); got.status.ExitStatus() != 0 {
		t.Errorf("got %+v", got)
	}
	for _, shared := range []string{"/tmp/bashd-test-mine", "/dev/shm/bashd-test-mine"} {
		if os.Remove(shared) == nil {
			t.Errorf("%s of the host was written", shared)
		}
	}
}

// TestPromise10Parallel: commands of both modes on one root at the same time do what each of them may, and no more; and the
// daemon is none the less for it.
func TestPromise10Parallel(t *testing.T) {
	if !inProcess(t, nil, nil) {
		return // other tests confine threads of their process
	}
	everyTier(t, func(t *testing.T, f *fixture) {
		for _, mode := range confinedModes {
			f.needs(t, mode)
		}
		must(t, os.WriteFile(f.ws+"/kept", []byte("kept\n"), 0o644))
		must(t, os.WriteFile(f.out+"/kept", []byte("kept\n"), 0o644))
		f.grant(t, f.ws)
		f.grant(t, f.out)
		before := facts(t, f.out)
		var all sync.WaitGroup
		for i := range 6 {
			for range 4 {
				mode := confinedModes[i%2]
				all.Go(func() { testParallel(t, f, mode) })
			}
		}
		all.Wait()
		unchanged(t, before, facts(t, f.out))
		entries, err := os.ReadDir(f.ws)
		must(t, err)
		written := 0
		for _, e := range entries {
			switch {
			case strings.HasPrefix(e.Name(), "by-workspace-write"):
				written++
			case e.Name() != "kept":
				t.Errorf("%s was written", e.Name())
			}
		}
		if written != 12 {
			t.Errorf("%d files were written, want 12", written)
		}
		daemonIsWhole(t, f)
	}, func(c *sandbox.Config) { c.Warm = 2 })
}

func testParallel(t *testing.T, f *fixture, mode sandbox.Mode) {
	c := f.command(t, mode, `for i in 1 2 3 4 5; do cat "$WS/kept"; echo x >>"$OUT/kept" && echo wrote outside; done 2>/dev/null
		f=$(mktemp "$WS/by-$MODE-XXXXXX") 2>/dev/null && echo made; echo x >"$TMPDIR/mine-$BASHPID" && echo temp; true`)
	c.Env = append(c.Env, "MODE="+string(mode))
	p, err := f.Start(t.Context(), c)
	if err != nil {
		t.Error(err)
		return
	}
	want := strings.Repeat("kept\n", 5) + "temp\n"
	if mode == sandbox.WorkspaceWrite {
		want = strings.Repeat("kept\n", 5) + "made\ntemp\n"
	}
	if got := finish(t, p); got.stdout != want {
		t.Errorf("%s: got %+v", mode, got)
	}
}

// daemonIsWhole checks that no thread of this process has been confined: none has no_new_privs or a filter, and on each of
// them files can be written, changed and removed in all the places that commands were kept from.
func daemonIsWhole(t *testing.T, f *fixture) {
	t.Helper()
	f.Close() // a thread waits for each runner, and would not be tried
	for _, tid := range threadsOf(os.Getpid()) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
		if err != nil {
			continue // it has ended
		}
		for _, want := range []string{"NoNewPrivs:\t0\n", "Seccomp:\t0\n"} {
			if inherited := threadsStartWith(want); inherited && !strings.Contains(string(b), want) {
				t.Errorf("thread %d: no %q in\n%s", tid, want, b)
			}
		}
	}
	threads := threadsOf(os.Getpid())
	reached := make(chan int, 2*len(threads))
	var together, all sync.WaitGroup
	together.Add(2 * len(threads))
	for i := range 2 * len(threads) {
		all.Go(func() {
			// All at once, each on a thread that no other can have meanwhile.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			together.Done()
			together.Wait()
			reached <- unix.Gettid()
			for _, dir := range []string{f.out, f.ws, f.state, f.own, filepath.Dir(f.ws), os.TempDir()} {
				path := fmt.Sprintf("%s/bashd-test-whole-%d-%d", dir, os.Getpid(), i)
				if err := touch(path); err != nil {
					t.Errorf("on thread %d: %v", unix.Gettid(), err)
				}
			}
			if err := unix.Kill(os.Getppid(), 0); err != nil && err != unix.EPERM {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(reached)
	var tids []int
	for tid := range reached {
		tids = append(tids, tid)
	}
	seen := 0
	for _, tid := range threads {
		if slices.Contains(tids, tid) {
			seen++
		}
	}
	// The rest are the runtime's own, which run no code of this program.
	if seen < len(threads)-4 {
		t.Errorf("only %d of %d threads were tried", seen, len(threads))
	}
}

// threadsStartWith reports that this process was started with that line in its status: a test run itself may be confined.
func threadsStartWith(line string) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", os.Getppid()))
	return strings.Contains(string(b), line)
}

// touch makes, changes and removes a file.
func touch(path string) error {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o640); err != nil {
		return err
	}
	if err := os.Truncate(path, 0); err != nil {
		return err
	}
	return os.Remove(path)
}
