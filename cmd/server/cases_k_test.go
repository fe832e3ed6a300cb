package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestCasesK is about the life of the service: crashes, shutdowns, being PID 1.
func TestCasesK(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"K01", caseK01},
		{"K01 output", caseK01Output},
		{"K02", caseK02},
		{"K02 hang-up", caseK02HangUp},
		{"K03", caseK03},
		{"K04 K05", caseK04K05},
		{"K06", caseK06},
		{"K06 no process", caseK06NoProcess},
		{"K08", caseK08},
	})
}

// TestCasesKInEveryTier: whoever bashd is, and whatever it confines with, nothing outlives it, and a burst ends.
func TestCasesKInEveryTier(t *testing.T) {
	t.Parallel()
	inEveryTier(t, func(t *testing.T, d *daemon, kind tierDaemon) {
		t.Run("K01", func(t *testing.T) {
			t.Parallel()
			d := kind.launch(t)
			endsWithItsDaemon(t, d, func() *daemon {
				again := kind.start(t, "BASHD_STATE_DIR="+d.state, "BASHD_WORKSPACE="+d.ws)
				again.state, again.ws, again.out = d.state, d.ws, d.out
				return again
			})
		})
		t.Run("K06", func(t *testing.T) {
			t.Parallel()
			burst(t, d)
		})
	})
}

// caseK01 kills the daemon under runs and tasks that do all to survive it.
func caseK01(t *testing.T, _ *daemon) {
	d := launch(t, "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	endsWithItsDaemon(t, d, func() *daemon { return d.restart(t) })
}

func endsWithItsDaemon(t *testing.T, d *daemon, restart func() *daemon) {
	var runs, tasks []string
	for i, command := range []string{
		"sleep 6301", "trap '' TERM HUP; sleep 6302 & sleep 6302", "setsid nohup sleep 6303 & (setsid sh -c 'sleep 6303 & sleep 6303' &) ; sleep 6303",
	} {
		for _, mode := range modes {
			body := in{"command": fmt.Sprintf("%s # %d %s", command, i, mode), "sandboxMode": mode}
			runs = append(runs, d.begin(t, body).id)
			tasks = append(tasks, d.task(t, body).ID)
		}
	}
	spilled := d.run(t, in{"command": "seq 1 100000"})
	before := d.get(t, spilled.ID)
	d.await(t, "the commands run", func() bool { return len(d.alive("sleep 630")) >= 2*9 })
	time.Sleep(100 * time.Millisecond) // a run has no record before it is 50 ms old (docs/adr/0007)
	d.crash(t)
	d.awaitNoProcess(t, slack(time.Second))

	again := restart()
	for _, id := range runs {
		again.lost(t, "/v1/runs/"+id, lostRun)
	}
	for _, id := range tasks {
		again.lost(t, "/v1/tasks/"+id, lostTask)
	}
	if n, m := len(again.list(t)), len(again.listTasks(t)); n != len(runs)+1 || m != len(tasks) {
		t.Errorf("listed after the restart: %d runs, %d tasks", n, m)
	}
	if after := again.get(t, spilled.ID); string(after.raw) != string(before.raw) {
		t.Errorf("a settled run was %s and is now %s", before.raw, after.raw)
	}
	if status, raw := again.request(t, "GET", spilled.Stdout.URL, ""); status != 200 || string(raw) != seq(1, 100000) || content(spilled.Stdout.SpillPath) != string(raw) {
		t.Errorf("its output: %d, %d bytes", status, len(raw))
	}
	again.sh(t, "echo ok").printed(t, "ok\n", "")
}

// lost checks that a run or task ended with a former daemon.
func (d *daemon) lost(t *testing.T, path, detail string) {
	t.Helper()
	var k task
	d.getJSON(t, path, &k)
	if k.Status != "failed" || k.Detail != detail || k.ExitCode != nil || k.Signal != nil || k.FinishedAt == "" {
		t.Errorf("%s; want it failed, because %q", k.raw, detail)
	}
}

// caseK01Output: of a task that a crash took, what it had printed stays, and every reader goes on where it was.
func caseK01Output(t *testing.T, _ *daemon) {
	d := launch(t)
	k := d.task(t, in{"command": "echo one; read x; echo $x; echo err >&2; sleep 6304", "stdinOpen": true})
	d.printedSoFar(t, k.ID, "one\n")
	cursor := d.output(t, k.ID, "", 0).NextCursor
	d.read(t, k.ID).delivered(t, "one\n", "")
	d.writeStdin(t, k.ID, in{"data": "two\n"})
	d.await(t, "the task has printed on both streams", func() bool {
		p := d.output(t, k.ID, cursor, 0)
		return p.Stdout.To == 8 && p.Stderr.To == 4
	})
	flood := d.task(t, in{"command": "seq 1 100000; sleep 6304"})
	whole := seq(1, 100000)
	d.await(t, "all is printed", func() bool { return len(d.stream(t, flood.ID, "stdout")) == len(whole) })
	first := d.output(t, flood.ID, "", 0)
	over := d.waitTask(t, d.task(t, in{"command": "echo over; exit 4"}).ID)
	d.crash(t)

	again := d.restart(t, "BASHD_LISTEN="+d.addr) // which binds at once
	again.lost(t, "/v1/tasks/"+k.ID, lostTask)
	p := again.output(t, k.ID, cursor, 5000)
	if p.delivered(t, "two\n", "err\n"); p.Stdout.From != 4 || p.Lossy || !p.EOF {
		t.Errorf("the page after the restart: %+v", p)
	}
	again.read(t, k.ID).delivered(t, "two\n", "err\n")
	if p := again.read(t, k.ID); p.Delta != "" || !p.EOF || p.Lossy {
		t.Errorf("another consuming read: %+v", p)
	}
	p = again.output(t, flood.ID, first.NextCursor, 0)
	if p.Stdout.From != first.Stdout.To || p.Stdout.Text != whole[p.Stdout.From:p.Stdout.To] || p.Lossy {
		t.Errorf("the flood goes on at %d, not at %d, with %.100q", p.Stdout.From, first.Stdout.To, p.Stdout.Text)
	}
	if text, _ := again.follow(t, flood.ID); text != whole {
		t.Errorf("%d bytes of the flood are left of %d", len(text), len(whole))
	}
	if after := again.getTask(t, over.ID); string(after.raw) != string(over.raw) {
		t.Errorf("a settled task was %s and is now %s", over.raw, after.raw)
	}
	again.finishedWith(t, k.ID)
}

// finishedWith checks what is left to do with a task of a former life.
func (d *daemon) finishedWith(t *testing.T, id string) {
	t.Helper()
	if k := d.waitOnce(t, id, time.Minute); !k.over() {
		t.Errorf("%s", k.raw)
	}
	if outcome, _ := d.killTask(t, id); outcome != "already-finished" {
		t.Errorf("kill: %s", outcome)
	}
	d.ask(t, "POST", "/v1/tasks/"+id+"/stdin", in{"data": "x"}, 409, nil)
	d.deleteTask(t, id)
	d.ask(t, "GET", "/v1/tasks/"+id, nil, 404, nil)
	if dirs, _ := filepath.Glob(d.state + "/owners/*/" + id); len(dirs) > 0 {
		t.Errorf("left of a deleted task: %q", dirs)
	}
}

// caseK02 shuts the daemon down under runs and tasks that take no notice of it.
func caseK02(t *testing.T, _ *daemon) {
	d := launch(t)
	stubborn := d.begin(t, in{"command": "trap '' TERM; echo up; sleep 6311; sleep 6311"})
	obedient := d.begin(t, in{"command": "echo up; sleep 6312"})
	trapping := d.begin(t, in{"command": "trap 'echo cleaned; exit 9' TERM; echo up; sleep 6313 & wait"})
	brief := d.begin(t, in{"command": "sleep 2; echo finished"})
	deaf := d.task(t, in{"command": "trap '' TERM; echo up; sleep 6314; sleep 6314"})
	tidy := d.task(t, in{"command": "trap 'echo cleaned; exit 9' TERM; echo up; sleep 6315 & wait"})
	d.await(t, "the commands run", func() bool { return len(d.alive("sleep 631")) >= 5 })
	d.printedSoFar(t, deaf.ID, "up\n")
	d.printedSoFar(t, tidy.ID, "up\n")
	waiting := map[string]<-chan []byte{deaf.ID: d.waiter(deaf.ID), tidy.ID: d.waiter(tidy.ID)}

	began := time.Now()
	if err := syscall.Kill(d.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.drains(t)
	brief.wait(t).printed(t, "finished\n", "")
	endedByShutdown(t, stubborn.wait(t), "SIGKILL")
	endedByShutdown(t, obedient.wait(t), "SIGTERM")
	trapped := trapping.wait(t)
	endedByShutdown(t, trapped, "")
	if trapped.code() != 9 || trapped.Stdout.Text != "up\ncleaned\n" {
		t.Errorf("the trap: %s", trapped.raw)
	}
	told := map[string][]byte{deaf.ID: <-waiting[deaf.ID], tidy.ID: <-waiting[tidy.ID]}
	if err := <-d.done; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	d.checkLog(t)
	d.awaitNoProcess(t, time.Second)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the shutdown took %v; want less than Docker's 10 s, on an idle machine", took)
	}
	d.restart(t).remembers(t, told, deaf.ID, tidy.ID)
}

// drains checks what a daemon answers that is shutting down.
func (d *daemon) drains(t *testing.T) {
	t.Helper()
	d.await(t, "it says that it is draining", func() bool {
		status, raw := d.request(t, "GET", "/readyz", "")
		return status == 503 && strings.Contains(string(raw), "draining")
	})
	refusal := d.refused(t, in{"command": "echo late"}, 503, "SHUTTING_DOWN")
	if !strings.Contains(refusal.Detail, "shutting down") {
		t.Errorf("detail %q", refusal.Detail)
	}
	d.refusedTask(t, in{"command": "echo late"}, 503, "SHUTTING_DOWN")
	if status, _ := d.request(t, "GET", "/healthz", ""); status != 200 {
		t.Errorf("healthz while draining: %d; want 200", status)
	}
}

// endedByShutdown checks the answer to a run that was up when the daemon was told to stop; "": it ended by its trap.
func endedByShutdown(t *testing.T, r result, signal string) {
	t.Helper()
	if !r.Aborted || r.TimedOut || r.Cause != "shutdown" || r.Status != "killed" || !strings.HasPrefix(r.Stdout.Text, "up\n") || r.signal() != signal {
		t.Errorf("%s; want it aborted, by signal %q", r.raw, signal)
	}
}

// waiter waits for the end of a task and hands over the body of the answer, nil where none came.
func (d *daemon) waiter(id string) <-chan []byte {
	answer := make(chan []byte, 1)
	go func() {
		var raw []byte
		resp, err := http.Get(d.url + "/v1/tasks/" + id + "/wait?timeoutMs=60000")
		if err == nil {
			raw, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err != nil {
			raw = nil
		}
		answer <- raw
	}()
	return answer
}

// remembers checks that the two tasks are now what those who waited for them at the shutdown were told.
func (d *daemon) remembers(t *testing.T, told map[string][]byte, deaf, tidy string) {
	t.Helper()
	for id, raw := range told {
		k := d.getTask(t, id)
		if string(k.raw) != strings.TrimSpace(string(raw)) || k.Status != "killed" || k.Cause != "shutdown" {
			t.Errorf("who waited at the shutdown was told %s; now it is %s", raw, k.raw)
		}
	}
	if k := d.getTask(t, deaf); k.signal() != "SIGKILL" {
		t.Errorf("%s; want it killed by SIGKILL", k.raw)
	}
	if text, _ := d.follow(t, tidy); text != "up\ncleaned\n" || d.getTask(t, tidy).code() != 9 {
		t.Errorf("the trap of a task printed %q: %s", text, d.getTask(t, tidy).raw)
	}
}

// caseK03 has many more tasks than the daemon may keep.
func caseK03(t *testing.T, _ *daemon) {
	const bound = 4 << 20
	d := start(t, fmt.Sprintf("BASHD_MAX_STATE_BYTES=%d", bound), "BASHD_MAX_TASKS_PER_OWNER=64", "BASHD_LOG_LEVEL=info")
	n := times(5000) // a fifth of that under the race detector, where all of them take minutes
	if testing.Short() {
		n = min(n, 1000)
	}
	size := len(seq(1, 2000))
	first := d.quickTasks(t, 1, size)[0]
	d.quickTasks(t, n/2, size)
	early := d.rss(t)
	last := d.quickTasks(t, n/2, size)[n/2-1]
	late := d.rss(t)
	t.Logf("%d tasks: %d MB resident at half of them, %d MB at the end", n, early>>20, late>>20)
	if grown := late - early; grown > 16<<20 {
		t.Errorf("the daemon grew by %d bytes over the second half of %d tasks", grown, n)
	}
	d.ask(t, "GET", "/v1/tasks/"+first, nil, 404, nil)
	d.ask(t, "GET", "/v1/tasks/"+first+"/streams/stdout", nil, 404, nil)
	if text, _ := d.follow(t, last); text != seq(1, 2000) {
		t.Errorf("the output of a late task has %d bytes", len(text))
	}
	kept := 0
	d.await(t, "no more is kept than allowed", func() bool {
		kept = d.countTasks(t)
		return kept <= bound/size && diskUse(d.state+"/owners") <= bound
	})
	if kept < bound/size/4 {
		t.Errorf("only %d tasks are kept", kept)
	}
}

// quickTasks runs that many tasks, eight at a time, and returns their ids in the order of their
// start, about.
func (d *daemon) quickTasks(t *testing.T, n, size int) []string {
	t.Helper()
	ids := make([]string, n)
	var g errgroup.Group
	g.SetLimit(8)
	for i := range ids {
		g.Go(func() (err error) {
			ids[i], err = d.quickTask(in{"command": "seq 1 2000"}, size)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// quickTask runs a task to its end, which must be exit code 0 after so many bytes. Any goroutine may call
// it; the answers are not validated.
func (d *daemon) quickTask(body in, size int) (id string, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	resp, err := http.Post(d.url+"/v1/tasks", "application/json", bytes.NewReader(text))
	for err == nil {
		var k task
		err = json.NewDecoder(resp.Body).Decode(&k)
		resp.Body.Close()
		switch {
		case err != nil || resp.StatusCode >= 300:
			return "", fmt.Errorf("%v: %s %s %w", body, resp.Status, k.raw, err)
		case k.over() && (k.code() != 0 || k.Stdout.Bytes != int64(size)):
			return "", fmt.Errorf("%s; want exit code 0 and %d bytes", k.raw, size)
		case k.over():
			return k.ID, nil
		}
		resp, err = http.Get(d.url + "/v1/tasks/" + k.ID + "/wait?timeoutMs=30000")
	}
	return "", err
}

// countTasks pages through the list, in which no task may come twice.
func (d *daemon) countTasks(t *testing.T) int {
	t.Helper()
	seen := map[string]bool{}
	for path := "/v1/tasks"; ; {
		var list struct {
			Tasks []struct{ ID string }
			Next  string
		}
		d.getJSON(t, path, &list)
		if len(list.Tasks) > 50 || list.Next != "" && len(list.Tasks) != 50 {
			t.Errorf("a page of %d tasks", len(list.Tasks))
		}
		for _, k := range list.Tasks {
			if seen[k.ID] {
				t.Errorf("%s is listed twice", k.ID)
			}
			seen[k.ID] = true
		}
		if list.Next == "" {
			return len(seen)
		}
		path = "/v1/tasks?cursor=" + url.QueryEscape(list.Next)
	}
}

// caseK08: a task that nobody has asked for in a while is still there.
func caseK08(t *testing.T, _ *daemon) {
	d := start(t, "BASHD_RETENTION=1s") // which counts from the end
	k := d.task(t, in{"command": "sleep 6; echo end"})
	time.Sleep(3 * time.Second)
	if now := d.getTask(t, k.ID); now.Status != "running" || len(d.listTasks(t)) != 1 {
		t.Errorf("after 3 s: %s", now.raw)
	}
	if text, _ := d.follow(t, k.ID); text != "end\n" {
		t.Errorf("printed %q", text)
	}
	d.await(t, "its retention has ended", func() bool { return len(d.listTasks(t)) == 0 })
}

// asInit starts the daemon as PID 1 of a PID namespace, as in a container. It has a uid of
// its own, as this test's processes are none that it can see: with the same uid it
// could not tell them from its commands, and would refuse them.
func asInit(t *testing.T) *daemon {
	t.Helper()
	needsTool(t, "unshare")
	needsTool(t, "setpriv")
	if os.Geteuid() != 0 {
		t.Skip("only root can give the daemon another uid")
	}
	wrapper := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := osexec.Command(wrapper[0], append(wrapper[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no PID namespace can be made here: %v %s", err, out)
	}
	d := launchIn(t, surroundings{wrapper: wrapper, nobody: true})
	t.Cleanup(func() { d.stop(t) })
	return d
}

// caseK02HangUp: the end of the terminal is an orderly one too: what ran is recorded as what became of it.
func caseK02HangUp(t *testing.T, _ *daemon) {
	d := launch(t)
	id := d.task(t, in{"command": "trap 'echo cleaned; exit 3' TERM; echo up; sleep 6331 & wait"}).ID
	d.printedSoFar(t, id, "up\n")
	if err := syscall.Kill(d.pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := <-d.done; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	d.awaitNoProcess(t, time.Second)
	again := d.restart(t)
	if k := again.getTask(t, id); k.Status != "killed" || k.Cause != "shutdown" {
		t.Errorf("afterwards: %s", k.raw)
	}
	again.printedInAll(t, id, "up\ncleaned\n", "")
}

// caseK04K05: a daemon that is PID 1 inherits every orphan. It reaps them all, and takes
// no run's exit status for an orphan's.
func caseK04K05(t *testing.T, _ *daemon) {
	d := asInit(t)
	d.needsSandbox(t)
	if status := content(procDir(d.pid) + "/status"); !strings.Contains(status, "\t1\n") {
		t.Fatalf("the daemon is not PID 1:\n%s", status)
	}
	var wrong atomic.Int32
	var g errgroup.Group
	g.SetLimit(32)
	run := func(command string, code int) {
		g.Go(func() error {
			r, err := d.quick(in{"command": command})
			if err == nil && (r.code() != code || r.signal() != "") {
				wrong.Add(1)
			}
			return err
		})
	}
	for n := range times(500) {
		if n%5 == 0 {
			run("(sleep 0.2 &); true", 0)
		}
		command := fmt.Sprintf("exit %d", n%256)
		if n%3 == 0 {
			command = "(sleep 0.1 &); " + command
		}
		run(command, n%256)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d exit codes are wrong", n)
	}
	d.await(t, "no zombie is left", func() bool { return zombiesBelow(d.pid) == 0 })
}

func zombiesBelow(pid int) (n int) {
	for _, child := range childrenOf(pid) {
		if _, state := statOf(procDir(child) + "/stat"); state == "Z" {
			n++
		}
		n += zombiesBelow(child)
	}
	return n
}

// caseK06: a burst of processes costs the others nothing, and ends as one.
func caseK06(t *testing.T, _ *daemon) { burst(t, start(t)) }

func burst(t *testing.T, d *daemon) {
	up := d.shared() + "/up-k06"
	// A busy machine may need long to fork 300 times; an attempt that ended before shows nothing.
	for limit := 2 * time.Second; ; limit *= 2 {
		run := d.post(t, in{
			"command":     "for i in $(seq 300); do sleep 6306 & done; : >up-k06; wait",
			"sandboxMode": "workspace-write", "timeoutMs": limit.Milliseconds(),
		})
		slowest := d.askUntil(t, run)
		r := run.wait(t)
		r.wasTimedOut(t)
		d.noneAlive(t, "sleep 6306")
		r.tookLess(t, limit+grace+prompt)
		if slowest > prompt {
			t.Errorf("healthz took up to %v meanwhile", slowest)
		}
		if exists(up) {
			break
		}
		if limit > 20*time.Second {
			t.Fatal("300 processes did not come up: this shows nothing")
		}
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

// caseK06NoProcess: where the host lets bashd have no process more, that is what it says; the command does not run, and the
// service does, and later all works again. Root has no such limit.
func caseK06NoProcess(t *testing.T, _ *daemon) {
	d := launchIn(t, surroundings{nobody: os.Geteuid() == 0}, "BASHD_WARM_RUNNERS=0", "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	t.Cleanup(func() { d.stop(t) })
	d.needsSandbox(t)
	// By then the daemon has all the threads that it needs, which are processes to this limit.
	var g errgroup.Group
	for range 16 {
		g.Go(func() error { _, err := d.quick(in{"command": "sleep 0.3"}); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	// A runner serves its owner again, so ask as owners who have none.
	owner := func(n int, mode string) string { return fmt.Sprintf("X-Owner-Token: k06-%s-%d", mode, n) }
	limitProcesses(t, d.pid, "1")
	for _, mode := range modes {
		marker := d.shared() + "/k06-" + mode
		body := in{"command": "touch '" + marker + "'", "sandboxMode": mode}
		p := d.refused(t, body, 503, "START_FAILED", owner(1, mode))
		if p.Kind != "no-processes" || p.Detail == "" {
			t.Errorf("%s: %+v; want it to say that there are no processes", mode, p)
		}
		status, raw := d.request(t, "POST", "/v1/tasks", mustJSON(t, body), owner(2, mode))
		var k task
		if status == 201 || status == 202 {
			if err := json.Unmarshal(raw, &k); err != nil {
				t.Fatal(err)
			}
			raw = d.waitTaskOf(t, k.ID, owner(2, mode)).raw
		}
		if !strings.Contains(string(raw), "no-processes") && !strings.Contains(string(raw), "cannot be started") {
			t.Errorf("%s: a task: %d %s; want to be told that it could not start", mode, status, raw)
		}
		if exists(marker) {
			t.Errorf("%s: it ran", mode)
		}
	}
	if status, _ := d.request(t, "GET", "/healthz", ""); status != 200 {
		t.Errorf("healthz: %d", status)
	}
	limitProcesses(t, d.pid, "4096")
	for _, mode := range modes {
		d.run(t, in{"command": "echo ok", "sandboxMode": mode}, owner(3, mode)).printed(t, "ok\n", "")
	}
}

// waitTaskOf waits for the end of another owner's task.
func (d *daemon) waitTaskOf(t *testing.T, id, owner string) (k task) {
	t.Helper()
	d.await(t, "the task is over", func() bool {
		d.getJSON(t, "/v1/tasks/"+id, &k, owner)
		return k.over()
	})
	return k
}

// limitProcesses sets how many processes the user of that process may have for it to get one more, in the words of prlimit.
func limitProcesses(t *testing.T, pid int, soft string) {
	t.Helper()
	needsTool(t, "prlimit")
	cmd := osexec.Command("prlimit", "--pid", fmt.Sprint(pid), "--nproc="+soft+":") // the hard limit stays
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}} // as the process itself, that needs no capability
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v %s", err, out)
	}
}

// askUntil asks for the service's health until the run's answer is there, and
// returns how long an answer took at most.
func (d *daemon) askUntil(t *testing.T, run *pending) (slowest time.Duration) {
	t.Helper()
	for {
		select {
		case a := <-run.answer:
			run.answer <- a // for wait
			return slowest
		case <-time.After(50 * time.Millisecond):
			began := time.Now()
			if status, _ := d.request(t, "GET", "/healthz", ""); status != 200 {
				t.Errorf("healthz: %d", status)
			}
			slowest = max(slowest, time.Since(began))
		}
	}
}
