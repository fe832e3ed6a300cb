package main

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crashSeed repeats a run of TestCrashes: what the clients do and when the daemon is killed. What meets
// what is up to the scheduler all the same.
var crashSeed = flag.Uint64("crash.seed", 0, "the seed of TestCrashes; 0: a new one")

// TestCrashes kills the daemon with SIGKILL at random moments under load, again and again on the same state
// directory, and holds each next daemon to all that its predecessors have told their clients.
func TestCrashes(t *testing.T) {
	lives := 15
	if long {
		lives = 50
	}
	if testing.Short() {
		lives = 8
	}
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -crash.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := newCrashes(t, seed)
	for life := range lives {
		c.load(t, int64(1+rnd.IntN(100)), time.Duration(rnd.IntN(20_000))*time.Microsecond)
		if life%5 == 4 {
			c.crashAtStart(t, time.Duration(rnd.IntN(200))*time.Millisecond)
		}
		if life%5 == 0 {
			c.plantOutput(t)
		}
		c.resurrect(t)
		c.check(t)
		if t.Failed() {
			t.Fatalf("life %d did not keep what those before had promised", life+2)
		}
	}
	c.checkAll(t)
	c.tried(t, lives)
}

// crashes is a sequence of daemons on one state directory, and the clients that see them come and go.
type crashes struct {
	d       *daemon // nil while none lives
	last    *daemon
	clients []*crashClient
	named   map[string]bool // directories of output of which a record was found
}

var crashEnv = []string{"BASHD_MAX_TASKS_PER_OWNER=20", "BASHD_LOG_LEVEL=info"}

func newCrashes(t *testing.T, seed uint64) *crashes {
	t.Helper()
	c := &crashes{named: map[string]bool{}}
	c.d = launch(t, crashEnv...)
	c.last = c.d
	t.Cleanup(func() {
		if c.d != nil {
			c.d.stop(t)
		}
	})
	c.d.needsSandbox(t)
	for i := range 4 {
		var identity []string // the first one is nobody
		if i > 0 {
			identity = []string{fmt.Sprintf("X-Owner-Token: crash-%d", i)}
		}
		c.clients = append(c.clients, newCrashClient(t, c.d, fmt.Sprintf("c%d", i), identity, rand.New(rand.NewPCG(seed, uint64(i+1)))))
	}
	return c
}

// load has all clients do what they do until the daemon is killed: at a random moment after so many answers, so
// that a slow machine does not see less than a quick one.
func (c *crashes) load(t *testing.T, answers int64, after time.Duration) {
	t.Helper()
	var killed atomic.Bool
	var wg sync.WaitGroup
	for _, client := range c.clients {
		answers += client.answers.Load()
		wg.Go(func() {
			for !killed.Load() {
				client.step(t, &killed)
			}
		})
	}
	c.d.await(t, "there were enough answers", func() bool {
		var n int64
		for _, client := range c.clients {
			n += client.answers.Load()
		}
		return n >= answers
	})
	time.Sleep(after)
	killed.Store(true)
	d := c.d
	c.d = nil
	d.crash(t)
	wg.Wait()
	d.awaitNoProcess(t, slack(time.Second))
	if d.checkLog(t); t.Failed() {
		t.Logf("log of the killed daemon:\n%s", tail(d.log.String(), 100_000))
	}
}

// slack is how long something may take that is to take that long on a machine with nothing else to do.
func slack(d time.Duration) time.Duration {
	if underRace {
		return 3 * d
	}
	return d
}

// crashAtStart kills a daemon that is just starting: what it was recovering must be recovered by the next one.
func (c *crashes) crashAtStart(t *testing.T, after time.Duration) {
	t.Helper()
	cmd := osexec.Command("/proc/self/exe")
	cmd.Env, cmd.Dir = c.last.cmd.Env, c.last.cmd.Dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Errorf("a daemon on the state of a killed one ended by itself: %v", err)
	}
	_ = cmd.Wait()
	c.last.awaitNoProcess(t, slack(time.Second))
}

// plantOutput leaves output that no record names, as of a run whose record a full disk did not take.
func (c *crashes) plantOutput(t *testing.T) {
	t.Helper()
	dir := c.last.state + "/owners/shared/bash-" + strings.Repeat("z", 26)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/stdout", "whose is this?")
	old := time.Now().Add(-48 * time.Hour) // longer than the retention
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
}

// resurrect starts the next daemon.
func (c *crashes) resurrect(t *testing.T) {
	t.Helper()
	d := c.last.relaunch(t, crashEnv...)
	c.d, c.last = d, d
	for _, client := range c.clients {
		client.d = d
	}
}

// each calls f for all clients at the same time.
func (c *crashes) each(f func(*crashClient)) {
	var wg sync.WaitGroup
	for _, client := range c.clients {
		wg.Go(func() { f(client) })
	}
	wg.Wait()
}

// check looks at what the last life left, and at some of what is older.
func (c *crashes) check(t *testing.T) {
	t.Helper()
	c.noStrayTemp(t)
	c.each(func(client *crashClient) { client.check(t) })
	c.noStrayOutput(t)
}

// checkAll looks at everything once more.
func (c *crashes) checkAll(t *testing.T) {
	t.Helper()
	c.each(func(client *crashClient) { client.checkOld(t, len(client.tasks)+len(client.runs)) })
	clear(c.named)
	c.noStrayOutput(t)
}

// noStrayTemp checks that no temporary directory of a command of the former life is left, and that
// the state directory holds what it is to hold.
func (c *crashes) noStrayTemp(t *testing.T) {
	t.Helper()
	known := []string{"bashd.db", "bashd.db-shm", "bashd.db-wal", "cursor.key", "lock", "owners", "probe", "trash"}
	entries, _ := filepath.Glob(c.d.state + "/*")
	for _, path := range entries {
		if !slices.Contains(known, filepath.Base(path)) {
			t.Errorf("stray: %s", path)
		}
	}
	if left, _ := filepath.Glob(c.d.state + "/owners/*/tmp/*"); len(left) > 0 {
		t.Errorf("left by commands of the former life: %q", left)
	}
}

// noStrayOutput checks that all output belongs to a command that can be found. The daemon removes
// what does not, in its own time.
func (c *crashes) noStrayOutput(t *testing.T) {
	t.Helper()
	c.d.await(t, "no output is left that no record names", func() bool {
		dirs, _ := filepath.Glob(c.d.state + "/owners/*/bash-*")
		return !slices.ContainsFunc(dirs, func(dir string) bool { return !c.isNamed(dir) })
	})
	c.d.await(t, "the trash is empty", func() bool {
		left, _ := filepath.Glob(c.d.state + "/trash/*")
		return len(left) == 0
	})
	_ = filepath.WalkDir(c.d.state+"/owners", func(path string, e fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && !e.IsDir() && name != "stdout" && name != "stderr" {
			t.Errorf("stray: %s", path)
		}
		return nil
	})
}

// isNamed reports that one of the clients can find the run or task whose output lies in dir, or could before.
func (c *crashes) isNamed(dir string) bool {
	if !c.named[dir] {
		id := filepath.Base(dir)
		c.named[dir] = slices.ContainsFunc(c.clients, func(client *crashClient) bool { return client.finds(id) })
	}
	return c.named[dir]
}

// tried checks that all of it was put to the test.
func (c *crashes) tried(t *testing.T, lives int) {
	t.Helper()
	n := crashCounts{}
	for _, client := range c.clients {
		for what, times := range client.counts {
			n[what] += times
		}
	}
	t.Logf("%d lives: %v", lives, n)
	if rare := n.missing(); len(rare) > 0 && lives >= 50 {
		t.Errorf("none of these came to pass, so this shows nothing about them: %s", strings.Join(rare, ", "))
	}
}
