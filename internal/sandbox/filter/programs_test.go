package filter_test

import (
	"os/exec"
	"strings"
	"testing"
)

// program is an ordinary one. It runs without a filter first: what does not work then says nothing about the filter.
type program struct {
	name    string
	needs   string // programs
	script  string
	want    string // its output
	changes bool   // it changes metadata, and so does not work under the stricter filter
}

var programs = []program{
	{"pipeline", "seq sort", `seq 3000 | sort -rn | head -1; cat <(echo sub); cat <<<here; echo err >/dev/stderr`, "3000\nsub\nhere\nerr\n", false},
	{"jobs", "sleep", `for i in 1 2 3; do (exit $i) & done; wait; sleep 30 & kill $!; wait $!; echo $?`, "143\n", false},
	{"own limits", "nice", `ulimit -n 50; ulimit -n; nice -n 2 true && echo nice`, "50\nnice\n", false},
	{"taskset", "taskset", `taskset -c 0 true && echo ran`, "ran\n", false},
	{"ionice", "ionice", `ionice -c3 true && echo ran`, "ran\n", false},
	{"mktemp", "mktemp", `f=$(mktemp) && echo x >"$f" && cat "$f"; rm "$f"`, "x\n", false},
	{"lsattr", "lsattr", `lsattr -d . >/dev/null && echo ran`, "ran\n", false},
	{"git", "git", `export GIT_CONFIG_GLOBAL=/dev/null; git init -q -b main r && cd r && echo x >f && git add f && git -c user.name=n -c user.email=e commit -qm m &&
		git clone -q . ../s && git -C ../s log --format=%s`, "m\n", true},
	{"python", "python3", `python3 -c '
import subprocess, threading, sqlite3, tempfile, shutil
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
print(subprocess.check_output("echo shell | cat", shell=True, text=True).strip())
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
with tempfile.NamedTemporaryFile() as f, sqlite3.connect(f.name) as db: print(db.execute("select 1+1").fetchone())
open("a", "w").close(); shutil.copyfile("a", "b")'`, "child\nshell\nthread\n(2,)\n", false},
	{"multiprocessing", "python3", `python3 -c '
import multiprocessing as m
for kind in "fork", "spawn":
    c = m.get_context(kind); q = c.SimpleQueue(); p = c.Process(target=q.put, args=(kind,)); p.start(); print(q.get()); p.join()'`, "fork\nspawn\n", false},
	// Without a home it starts no process that counts, which would write there after its end.
	{"go", "go", `env -u HOME -u XDG_CONFIG_HOME go version >/dev/null && echo ran`, "ran\n", false},
	{"gcc", "gcc", `echo 'int main(void){return 7;}' >a.c && gcc -o a a.c && ./a; echo $?`, "7\n", true},
	{"tar", "tar", `mkdir d && echo x >d/f && ln -s f d/l && tar cf - d | (mkdir o && tar xf - -C o) && cat o/d/l`, "x\n", true},
	{"cp -a", "cp", `mkdir d && echo x >d/f && touch -d 2001-01-01 d/f && chmod 640 d/f && cp -a d e && stat -c '%a %Y' e/f`, "", true},
	{"make", "make", "printf 'all: a b\\na b:\\n\\t@echo $@ >$@\\n' >Makefile; make -sj2 && cat a b", "a\nb\n", false},
	{"node", "node", `node -e '
const fs = require("fs"), cp = require("child_process");
console.log(cp.execSync("echo child").toString().trim());
fs.promises.writeFile("f", "x").then(() => fs.promises.readFile("f", "utf8")).then(console.log)'`, "child\nx\n", false},
	{"strace", "strace", `strace -f -e trace=execve -o log sh -c 'true; /bin/echo traced' && grep -c '"/bin/echo", "traced"\|\["/bin/echo", "traced"\]' log`, "traced\n1\n", false},
	{"gdb", "gdb", `gdb -nx -batch -ex 'set startup-with-shell off' -ex 'catch syscall exit_group' -ex run -ex kill "$(command -v sleep)" --args "$(command -v sleep)" 0 2>&1 |
		grep -o 'Catchpoint 1 (call to syscall exit_group)'`, "Catchpoint 1 (call to syscall exit_group)\n", false},
}

// TestOrdinaryPrograms work under the filter as without it.
func TestOrdinaryPrograms(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			for _, need := range append(strings.Fields(p.needs), "bash") {
				if _, err := exec.LookPath(need); err != nil {
					t.Skipf("needs %s", need)
				}
			}
			run := func(which string) (string, error) {
				return output(t, command(t, t.TempDir(), roleExec, which, "bash", "-c", p.script))
			}
			free, err := run(without)
			if err != nil || p.want != "" && free != p.want {
				t.Skipf("it does not work without a filter: %v: %s", err, free)
			}
			filters := []string{metadata, readOnly}
			if p.changes {
				filters = filters[:1]
			}
			for _, which := range filters {
				if got, err := run(which); err != nil || got != free {
					t.Errorf("%s: %v: %q, and %q without a filter", which, err, got, free)
				}
			}
		})
	}
}

// TestRefusedPrograms fail, and leave what they were used on as it was.
func TestRefusedPrograms(t *testing.T) {
	for name, p := range map[string]struct{ script, which string }{
		"unshare":       {`unshare -Ur true`, metadata},
		"chmod set-ID":  {`touch f; chmod u+s f`, metadata},
		"chmod":         {`chmod 777 .`, readOnly},
		"touch":         {`touch -d 2001-01-01 .`, readOnly},
		"install":       {`echo >f; install -m 4755 f g`, metadata},
		"setpriority":   {`renice -n 19 -p $$`, metadata},
		"prlimit":       {`prlimit --pid $$ --nofile=10:10`, metadata},
		"taskset":       {`taskset -cp 0 $$`, metadata},
		"chattr":        {`touch f; chattr +d f`, metadata},
		"setfattr":      {`touch f; setfattr -n user.a -v b f`, readOnly},
		"mkfifo device": {`mknod n c 1 3`, metadata},
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Fields(p.script[strings.LastIndex(p.script, ";")+1:])
			if _, err := exec.LookPath(words[0]); err != nil {
				t.Skipf("needs %s", words[0])
			}
			script := p.script + " 2>&1"
			if out, err := output(t, command(t, t.TempDir(), roleExec, without, "bash", "-c", script)); err != nil {
				t.Skipf("it does not work without a filter: %v: %s", err, out)
			}
			if out, err := output(t, command(t, t.TempDir(), roleExec, p.which, "bash", "-c", script)); err == nil {
				t.Errorf("it works: %s", out)
			}
		})
	}
}
