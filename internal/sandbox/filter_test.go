package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// TestOthersCannotBeLimited: neither the limits nor the priority of the daemon, of the command's
// own runner or of a sibling can be changed. A processor limit of nothing would be a kill.
func TestOthersCannotBeLimited(t *testing.T) {
	for _, tool := range []string{"prlimit", "renice", "taskset", "chrt", "ionice"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	f := newFixture(t)
	f.needs(t, sandbox.ReadOnly)
	sibling := startAndAwait(t, f, f.command(t, sandbox.ReadOnly, `echo up; sleep 3999`), "up\n")
	var before unix.Rlimit
	if err := unix.Prlimit(os.Getpid(), unix.RLIMIT_CPU, nil, &before); err != nil {
		t.Fatal(err)
	}
	c := f.command(t, sandbox.ReadOnly, `
		for pid in $DAEMON $SIBLING $PPID; do
			prlimit --pid $pid --cpu=100000:100000 && echo limited $pid
			renice -n 10 -p $pid && echo reniced $pid
			taskset -cp 0 $pid && echo pinned $pid
			chrt -i -p 0 $pid && echo scheduled $pid
			ionice -c3 -p $pid && echo io $pid
		done >"$TMPDIR/out" 2>/dev/null
		renice -n 10 -g $$ >/dev/null 2>&1 && echo group
		renice -n 10 -u $UID >/dev/null 2>&1 && echo user
		grep -E '^(limited|reniced|pinned|scheduled|io) ' "$TMPDIR/out"; rm "$TMPDIR/out"; echo end`)
	c.Env = append(c.Env, fmt.Sprintf("DAEMON=%d", os.Getpid()), fmt.Sprintf("SIBLING=%d", shellOf(t, sibling)))
	if got := f.run(t, c); got.stdout != "end\n" {
		t.Errorf("got %+v", got)
	}
	var after unix.Rlimit
	if err := unix.Prlimit(os.Getpid(), unix.RLIMIT_CPU, nil, &after); err != nil || after != before {
		t.Errorf("the limit was %v and is %v (%v)", before, after, err)
	}
	for _, g := range f.Report().ReadOnly.Gaps {
		if g == sandbox.GapScheduling {
			t.Error("the report has the gap all the same")
		}
	}
}

// TestOwnLimitsWork: what a program does to itself, or to one that it becomes, is not refused.
func TestOwnLimitsWork(t *testing.T) {
	f := newFixture(t)
	f.needs(t, sandbox.ReadOnly)
	got := f.run(t, f.command(t, sandbox.ReadOnly, `ulimit -n 50; ulimit -n; nice -n 2 true && echo nice
		if command -v taskset >/dev/null; then taskset -c 0 true; fi && echo taskset
		if command -v ionice >/dev/null; then ionice -c3 true; fi && echo ionice
		if command -v prlimit >/dev/null; then prlimit --pid $$ --nofile >/dev/null; fi && echo asked`))
	if got.stdout != "50\nnice\ntaskset\nionice\nasked\n" {
		t.Errorf("got %+v", got)
	}
}

// TestNoFilter: where the kernel takes no filter the gap is told, and no runner serves twice.
func TestNoFilter(t *testing.T) {
	if !underFilter(t, unix.ENOSYS, unix.SYS_SECCOMP) {
		return
	}
	f := newFixture(t, func(c *sandbox.Config) { c.Warm = 2 })
	f.needs(t, sandbox.ReadOnly)
	if gaps := strings.Join(f.Report().ReadOnly.Gaps, " "); !strings.Contains(gaps, sandbox.GapScheduling) {
		t.Errorf("gaps: %s", gaps)
	}
	runners := map[string]bool{}
	for range 4 {
		runners[f.run(t, f.command(t, sandbox.ReadOnly, `echo $PPID $(readlink /proc/self/ns/pid)`)).stdout] = true
	}
	if len(runners) != 4 {
		t.Errorf("4 commands had %d runners", len(runners))
	}
}

// TestRunnersAreReused only by the commands of one owner and mode, and never after full access.
func TestRunnersAreReused(t *testing.T) {
	f := newFixture(t, func(c *sandbox.Config) { c.Warm = 2 })
	f.needs(t, sandbox.ReadOnly)
	runner := func(mode sandbox.Mode) string {
		return f.run(t, f.command(t, mode, `echo $PPID $(readlink /proc/self/ns/pid)`)).stdout
	}
	// It is ready again a moment after its command is gone; until then another serves.
	first, reused := runner(sandbox.ReadOnly), false
	for range 20 {
		reused = reused || runner(sandbox.ReadOnly) == first
		time.Sleep(5 * time.Millisecond)
	}
	if !reused {
		t.Error("20 more commands never had the runner of the first")
	}
	if other := runner(sandbox.WorkspaceWrite); other == first {
		t.Error("another mode had the same runner")
	}
	if free := runner(sandbox.FullAccess); free == runner(sandbox.FullAccess) {
		t.Error("two commands with full access had the same runner")
	}
}

// TestNoSetID: no command makes a file that runs as its owner or group, by whichever call.
func TestNoSetID(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	f := newFixture(t)
	f.needs(t, sandbox.WorkspaceWrite)
	const script = `
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
SUID, SGID = 0o4755, 0o2755
def try_(name, do):
    for mode in SUID, SGID:
        try: do(mode)
        except OSError as e:
            if e.errno != 1: print(name, oct(mode), e)
        else: print(name, oct(mode), "went through")
def raw(number, *args):
    if libc.syscall(number, *args) < 0: raise OSError(ctypes.get_errno(), "")
open("file", "w").close()
fd = os.open("file", os.O_RDWR)
at = os.open(".", os.O_RDONLY)
try_("chmod", lambda m: os.chmod("file", m))
try_("fchmod", lambda m: os.fchmod(fd, m))
try_("fchmodat", lambda m: os.chmod("file", m, dir_fd=at))
try_("open", lambda m: os.close(os.open("made%o" % m, os.O_CREAT | os.O_WRONLY, m)))
try_("openat", lambda m: os.close(os.open("made%o" % m, os.O_CREAT | os.O_WRONLY, m, dir_fd=at)))
try_("tmpfile", lambda m: os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, m)))
try_("mknod", lambda m: os.mknod("made%o" % m, 0o100000 | m))
if platform.machine() == "x86_64":
    try_("chmod itself", lambda m: raw(90, b"file", m))
    try_("creat itself", lambda m: raw(85, b"made", m))
    try_("open itself", lambda m: raw(2, b"made", os.O_CREAT, m))
for name, number in ("openat2", 437), ("io_uring_setup", 425):
    try: raw(number, 0, 0, 0, 0)
    except OSError as e:
        if e.errno != 38: print(name, e)
os.chmod("file", 0o700); os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755)); os.mkdir("dir", 0o755)
os.close(os.open(".", os.O_RDONLY, 0o7777)) # nothing is made, so the mode is nothing
set = [n for n in os.listdir(".") if os.stat(n).st_mode & 0o6000]
print("set:", set)`
	c := f.command(t, sandbox.WorkspaceWrite, "exec python3 -c \"$SCRIPT\"")
	c.Env = append(c.Env, "SCRIPT="+script)
	if got := f.run(t, c); got.stdout != "set: []\n" || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
}
