package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"bashd/internal/sandbox"
)

// Item 8: whatever a command does with the machine, the daemon answers meanwhile.

// soon is how long a small command may take while another does its worst.
const soon = 5 * time.Second

// answersMeanwhile runs a small command in each mode and wants it to end soon.
func answersMeanwhile(t *testing.T, f *fixture) {
	t.Helper()
	for _, mode := range f.modes() {
		if f.Report().Mode(mode).Unavailable != "" {
			continue
		}
		start := time.Now()
		if got := f.run(t, f.command(t, mode, `echo here`)); got.stdout != "here\n" {
			t.Errorf("%s: got %+v", mode, got)
		}
		if took := time.Since(start); took > soon {
			t.Errorf("%s: a small command took %v", mode, took)
		}
	}
}

// Limits of the commands of item 8.
const (
	loadProcesses = 64
	loadBytes     = 16 << 20 // of a file, and of /tmp and /dev/shm where they are private
)

// TestPromise8Load: a fork bomb, output that nobody reads, a full temporary directory.
func TestPromise8Load(t *testing.T) {
	everyTier(t, func(t *testing.T, f *fixture) {
		for _, mode := range f.modes() {
			t.Run("unread/"+string(mode), func(t *testing.T) { testUnread(t, f, mode) })
		}
		for _, mode := range confinedModes {
			t.Run("full temp/"+string(mode), func(t *testing.T) { testFullTemp(t, f, mode) })
			t.Run("fork bomb/"+string(mode), func(t *testing.T) { testForkBomb(t, f, mode) })
		}
	}, func(c *sandbox.Config) {
		c.TempBytes, c.Limits = loadBytes, sandbox.Limits{FileBytes: loadBytes, Processes: loadProcesses}
	})
}

// processBound is how many processes a command can have at most. Where nothing bounds them, it checks that the report says
// so, and skips.
func processBound(t *testing.T, f *fixture, mode sandbox.Mode) int {
	t.Helper()
	how := f.Report().Processes
	told := f.tells(mode, sandbox.GapProcessLimit)
	if vague := how == sandbox.ProcessesUnlimited || how == sandbox.ProcessesUser; vague != told {
		t.Errorf("processes are limited by %q, and the gaps are %v", how, f.Report().Mode(mode).Gaps)
	}
	switch how {
	case sandbox.ProcessesUnlimited:
		t.Skip("nothing limits the processes of root here, and the report says so: a fork bomb would take the machine")
	case sandbox.ProcessesUser:
		return loadProcesses + systemThreads(t)
	case sandbox.ProcessesPidNS:
		return loadProcesses + 300
	case sandbox.ProcessesUserNS:
		return loadProcesses + 8 // which are kept for the runner's threads
	}
	return loadProcesses
}

// testForkBomb: processes are bounded, their runner outlives them, and nothing of them is left.
func testForkBomb(t *testing.T, f *fixture, mode sandbox.Mode) {
	f.needs(t, mode)
	bound := processBound(t, f, mode)
	c := f.command(t, mode, `echo up; bomb() { bomb | bomb & }; bomb 2>/dev/null; while :; do sleep 0.1 2>/dev/null; done`)
	alive := mark(t, &c)
	p := startAndAwait(t, f, c, "up\n")
	most := 0
	for range 5 {
		most = max(most, len(alive()))
		time.Sleep(20 * time.Millisecond)
	}
	answersMeanwhile(t, f)
	most = max(most, len(alive()))
	if most > bound || most < 2 {
		t.Errorf("there were %d processes, at most %d are allowed", most, bound)
	}
	p.Kill()
	awaitGone(t, p, 10*time.Second)
	if _, ok := p.Status(); !ok {
		t.Error("the runner did not survive the bomb")
	}
	if left := alive(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// systemThreads is about how many threads there are on this machine.
func systemThreads(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	must(t, err)
	var running, threads int
	_, err = fmt.Sscanf(strings.Fields(string(b))[3], "%d/%d", &running, &threads)
	must(t, err)
	return threads + 200 // other tests come and go
}

// TestPromise8Memory: what a command takes of memory is bounded, where the host lets it be.
func TestPromise8Memory(t *testing.T) {
	if !inProcess(t, nil, nil) {
		return // with control groups the process may have to move into one of its own
	}
	const bomb = `echo up; x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`
	probe, err := sandbox.New(t.Context(), sandbox.Config{
		Shell: "/bin/bash", Scratch: tempDir(t), Groups: true, Limits: sandbox.Limits{MemoryBytes: 128 << 20},
	})
	if errors.Is(err, sandbox.ErrNoMemoryLimit) {
		t.Logf("memory cannot be limited as a whole here (%v): by process then", err)
		everyTier(t, func(t *testing.T, f *fixture) {
			if f.Report().Memory {
				t.Error("the report says that it can")
			}
			testMemoryBomb(t, f, `ulimit -v 60000; `+bomb, false)
		})
		return
	}
	must(t, err)
	probe.Close()
	everyTier(t, func(t *testing.T, f *fixture) {
		if !f.Report().Memory {
			t.Error("the report does not say that memory is limited")
		}
		testMemoryBomb(t, f, bomb, true)
	}, func(c *sandbox.Config) { c.Groups, c.Limits = true, sandbox.Limits{MemoryBytes: 128 << 20} })
}

func testMemoryBomb(t *testing.T, f *fixture, script string, killed bool) {
	for _, mode := range f.modes() {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			p := startAndAwait(t, f, f.command(t, mode, script), "up\n")
			answersMeanwhile(t, f)
			awaitGone(t, p, 20*time.Second)
			status, ok := p.Status()
			if !ok || status.Signaled() != killed && status.Signal() != syscall.SIGSEGV || !killed && status.ExitStatus() == 0 {
				t.Errorf("status %v %v", status, ok)
			}
		})
	}
}

// testUnread: output that nobody reads holds up its command, and nobody else.
func testUnread(t *testing.T, f *fixture, mode sandbox.Mode) {
	f.needs(t, mode)
	p := startAndAwait(t, f, f.command(t, mode, `echo up; yes; yes >&2`), "up\n")
	answersMeanwhile(t, f)
	p.Kill()
	awaitGone(t, p, 5*time.Second)
}

// testFullTemp: a command that fills its temporary directory fills nobody else's, and not the host's.
func testFullTemp(t *testing.T, f *fixture, mode sandbox.Mode) {
	f.needs(t, mode)
	c := f.command(t, mode, `for dir in "$TMPDIR" /dev/shm; do
			head -c 100000000 /dev/zero >"$dir/bashd-test-big" && echo "no limit in $dir"
		done 2>/dev/null
		total=0; for dir in "$TMPDIR" /dev/shm; do total=$((total + $(stat -c %s "$dir/bashd-test-big" 2>/dev/null || echo 0))); done
		test $total -le $LIMIT || echo "$total bytes"; echo up; sleep 3999; true`)
	c.Env = append(c.Env, fmt.Sprintf("LIMIT=%d", loadBytes))
	p := startAndAwait(t, f, c, "up\n")
	answersMeanwhile(t, f)
	small := f.command(t, mode, `head -c 1000000 /dev/zero >"$TMPDIR/mine" && rm "$TMPDIR/mine" && echo there is room`)
	if got := f.run(t, small); got.stdout != "there is room\n" {
		t.Errorf("got %+v", got)
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		if os.Remove(dir+"/bashd-test-big") == nil {
			t.Errorf("it filled the host's %s", dir)
		}
	}
	p.Kill()
	awaitGone(t, p, 5*time.Second)
}
