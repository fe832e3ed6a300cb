package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
	"bashd/internal/store"
)

// TestRunnersStaySmall: a task that sleeps costs a runner, and that little. docs/benchmarks.md has what was measured.
func TestRunnersStaySmall(t *testing.T) {
	if underRace {
		t.Skip("the race detector has memory of its own in each process")
	}
	t.Parallel()
	d := start(t, "BASHD_MAX_TASKS_PER_OWNER=60")
	d.needsSandbox(t)
	d.sleepers(t, 60)
	runners := d.runnersMemory(t)
	const most = 2 << 20
	if len(runners) < 60 || runners[0] == 0 {
		t.Fatalf("60 tasks, and runners with %d bytes", runners)
	}
	if largest := runners[len(runners)-1]; largest > most {
		t.Errorf("a runner has %d bytes of memory to itself, with its sweeper; want %d at most", largest, most)
	}
}

// TestListStaysQuick: however many tasks there are, a page of them takes no time. The bound is far above what was
// measured, for a machine that is busy.
func TestListStaysQuick(t *testing.T) {
	t.Parallel()
	d := startFilled(t, times(10_000))
	took := make([]time.Duration, 50)
	for i := range took {
		took[i] = d.timePage(t)
	}
	if median := p50(took); median > 25*time.Millisecond {
		t.Errorf("a page of 50 takes %v", median)
	}
}

// sleepers starts that many tasks that sleep, and waits until they do.
func (d *daemon) sleepers(tb testing.TB, n int) {
	tb.Helper()
	body := mustJSON(tb, in{"command": "exec sleep 6501"})
	for range n {
		if status, raw := d.plain(tb, "/v1/tasks", body); status != http.StatusCreated {
			tb.Fatalf("%d %s", status, raw)
		}
	}
	d.await(tb, "they all sleep", func() bool {
		return len(processes(func(p proc) bool { return p.cmdline == "sleep 6501" && strings.Contains(p.environ, d.mark) })) == n
	})
}

// ownMemory is what a process adds to what the others need, in bytes: its anonymous pages, those that it shares
// by halves, and what it alone has mapped of files.
func (d *daemon) ownMemory(tb testing.TB, pid int) (n int64) {
	tb.Helper()
	rollup, err := os.ReadFile(procDir(pid) + "/smaps_rollup")
	if errors.Is(err, fs.ErrPermission) {
		tb.Skipf("the memory of a process that cannot be traced is for root to see: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(rollup)) {
		for _, name := range []string{"Pss_Anon:", "Private_Clean:"} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				if err != nil {
					tb.Fatal(err)
				}
				n += kb << 10
			}
		}
	}
	return n
}

// runnersMemory is the own memory of each runner and the sweeper that it has cloned, smallest first.
func (d *daemon) runnersMemory(tb testing.TB) (all []int64) {
	tb.Helper()
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		parent, _ := statOf(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		children[parent] = append(children[parent], pid)
	}
	for _, runner := range children[d.pid] {
		n := d.ownMemory(tb, runner)
		name := content(procDir(runner) + "/cmdline")
		for _, child := range children[runner] {
			if content(procDir(child)+"/cmdline") == name {
				n += d.ownMemory(tb, child)
			}
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// startFilled starts a daemon that finds n settled tasks of nobody's.
func startFilled(tb testing.TB, n int) *daemon {
	tb.Helper()
	d := launchIn(tb, surroundings{prepare: func(d *daemon) { fill(tb, d.state, n) }}, "BASHD_LOG_LEVEL=info")
	tb.Cleanup(func() { d.stop(tb) })
	return d
}

func fill(tb testing.TB, state string, n int) {
	tb.Helper()
	if err := os.Mkdir(state, 0o700); err != nil {
		tb.Fatal(err)
	}
	db, err := store.Open(filepath.Join(state, dbName))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		rec := filledRecord(i)
		if err := db.Insert(rec, nil); err != nil {
			tb.Fatal(err)
		}
		rec.Run.Status, rec.Run.ExitCode, rec.Run.FinishedAt = exec.StatusCompleted, new(int), time.Now()
		if err := db.Settle(rec); err != nil {
			tb.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
}

func filledRecord(i int) exec.Record {
	spec := exec.Spec{
		Command: fmt.Sprintf("make test # %d", i), Description: "runs the tests", Workdir: "/srv/project",
		Mode: sandbox.ReadOnly, WorkspaceRoot: "/srv/project", StdoutMaxBytes: 64000, StderrMaxBytes: 64000, Encoding: exec.EncodingText,
	}
	return exec.Record{Seq: int64(i + 1), Bytes: 2048, Run: exec.Run{
		ID: fmt.Sprintf("bash-%026d", i), Kind: exec.Background, Status: exec.StatusRunning, Spec: spec,
		Sandbox: exec.SandboxFacts{Mode: sandbox.ReadOnly}, StartedAt: time.Now(),
	}}
}

// timePage tells how long the first page of tasks takes, of which there must be more.
func (d *daemon) timePage(tb testing.TB) time.Duration {
	tb.Helper()
	began := time.Now()
	resp, err := http.Get(d.url + "/v1/tasks?limit=50")
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	took := time.Since(began)
	var page struct {
		Tasks []struct{ ID string }
		Next  string
	}
	if err == nil {
		err = json.Unmarshal(raw, &page)
	}
	if err != nil || len(page.Tasks) != 50 || page.Next == "" {
		tb.Fatalf("%d %v %.500s", resp.StatusCode, err, raw)
	}
	return took
}
