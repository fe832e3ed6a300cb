package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCasesB is about how runs and tasks end: by timeout, by kill, by a signal of their
// own, or because the caller went away. Each way is told apart from the others.
func TestCasesB(t *testing.T) {
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"B01", caseB01},
		{"B02", caseB02},
		{"B04", caseB04},
		{"B04 task", caseB04Task},
		{"B05", caseB05},
		{"B05 task", caseB05Task},
		{"B06", caseB06},
		{"B07", caseB07},
		{"B08", caseB08},
		{"B09/timeout", caseB09Timeout},
		{"B09/disconnect", caseB09Disconnect},
		{"B09/half-close", caseB09HalfClose},
		{"B09/race", caseB09Race},
		{"B10", caseB10},
		{"B11", caseB11},
		{"B11 task", caseB11Task},
		{"B12", caseB12},
		{"B14", caseB14},
		{"B14 task", caseB14Task},
		{"B15", caseB15},
		{"B15 task", caseB15Task},
		{"B16", caseB16},
		{"B16 task", caseB16Task},
	})
}

// died checks that a run was ended by that signal.
func (r result) died(tb testing.TB, signal string) {
	tb.Helper()
	if r.Status != "killed" || r.ExitCode != nil || r.signal() != signal {
		tb.Errorf("status %s, exitCode %d, signal %q; want %s and no exit code\n%.1000s", r.Status, r.code(), r.signal(), signal, r.raw)
	}
}

// wasAborted checks that the caller's going ended the run, and only that.
func (r result) wasAborted(tb testing.TB) {
	tb.Helper()
	if r.Status != "killed" || !r.Aborted || r.TimedOut || r.Cause != "disconnect" {
		tb.Errorf("status %s, aborted %t, timedOut %t, cause %q; want an abort\n%.1000s", r.Status, r.Aborted, r.TimedOut, r.Cause, r.raw)
	}
}

// wasKilled checks that a kill ended the run, and only that.
func (r result) wasKilled(tb testing.TB) {
	tb.Helper()
	if r.Status != "killed" || r.TimedOut || r.Aborted || r.Cause != "kill" {
		tb.Errorf("status %s, timedOut %t, aborted %t, cause %q; want a kill\n%.1000s", r.Status, r.TimedOut, r.Aborted, r.Cause, r.raw)
	}
}

// printedUp waits until a running command has printed "up", which its running record shows.
func (p *pending) printedUp(tb testing.TB) {
	tb.Helper()
	p.d.await(tb, "the command has printed up", func() bool {
		r := p.d.get(tb, p.id)
		if r.Status != "running" {
			tb.Fatalf("the command ended early: %s", r.raw)
		}
		return r.Stdout.Text == "up\n"
	})
}

func caseB01(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "sh -c 'sleep 3111; true'", "timeoutMs": 1000})
	d.noneAlive(t, "sleep 3111")
	r.wasTimedOut(t)
	r.tookLess(t, 2*time.Second+grace)
}

func caseB02(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "trap '' TERM; (trap '' TERM; sleep 3122); sleep 3123", "timeoutMs": 1000})
	d.noneAlive(t, "sleep 312")
	r.wasTimedOut(t)
	r.died(t, "SIGKILL")
	if r.took < time.Second+grace {
		t.Errorf("killed after %v, before the grace of %v was over", r.took, grace)
	}
	r.tookLess(t, time.Second+grace+3*time.Second)
}

func caseB04(t *testing.T, d *daemon) {
	p := d.begin(t, in{"command": "trap 'echo cleaned; exit 9' TERM; echo up; sleep 6104 & wait"})
	p.printedUp(t)
	outcome, at := d.kill(t, p.id)
	if outcome != "cancellation-requested" || at.ID != p.id || !strings.HasPrefix(at.Stdout.Text, "up\n") {
		t.Errorf("kill: outcome %q for %q, which had printed %q", outcome, at.ID, at.Stdout.Text)
	}
	r := p.wait(t)
	d.noneAlive(t, "sleep 6104")
	r.wasKilled(t)
	r.printed(t, "up\ncleaned\n", "")
	if r.code() != 9 || r.Signal != nil {
		t.Errorf("exitCode %d, signal %q; want the trap's own 9", r.code(), r.signal())
	}
}

func caseB04Task(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "trap 'echo cleaned; exit 9' TERM; echo up; sleep 61041 & wait"})
	d.printedSoFar(t, k.ID, "up\n")
	outcome, at := d.killTask(t, k.ID)
	if outcome != "cancellation-requested" || at.ID != k.ID || at.Status == "completed" {
		t.Errorf("kill: outcome %q for %s", outcome, at.raw)
	}
	end := d.waitTask(t, k.ID)
	d.noneAlive(t, "sleep 61041")
	end.wasKilled(t)
	if end.code() != 9 || end.Signal != nil {
		t.Errorf("exitCode %d, signal %q; want the trap's own 9", end.code(), end.signal())
	}
	d.printedInAll(t, k.ID, "up\ncleaned\n", "")
}

func caseB05(t *testing.T, d *daemon) {
	p := d.begin(t, in{"command": "trap '' TERM; echo up; while :; do sleep 1; done # B05 run"})
	p.printedUp(t)
	began := time.Now()
	d.kill(t, p.id)
	if outcome, at := d.kill(t, p.id); outcome != "cancellation-requested" || at.Status == "completed" {
		t.Errorf("a second kill: outcome %q, status %s", outcome, at.Status)
	}
	r := p.wait(t)
	took := time.Since(began)
	d.noneAlive(t, "# B05 run")
	r.wasKilled(t)
	r.died(t, "SIGKILL")
	if took < grace || took > grace+3*time.Second {
		t.Errorf("killed after %v; want the grace of %v, and hardly more", took, grace)
	}
}

func caseB05Task(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "trap '' TERM; echo up; while :; do sleep 1; done # B05 task"})
	d.printedSoFar(t, k.ID, "up\n")
	began := time.Now()
	d.killTask(t, k.ID)
	d.await(t, "the task is stopping", func() bool { return d.getTask(t, k.ID).Status == "stopping" })
	if outcome, at := d.killTask(t, k.ID); outcome != "cancellation-requested" || at.Status != "stopping" {
		t.Errorf("a second kill: outcome %q, status %s", outcome, at.Status)
	}
	d.ask(t, "DELETE", "/v1/tasks/"+k.ID, nil, http.StatusConflict, nil)
	end := d.waitTask(t, k.ID)
	took := time.Since(began)
	d.noneAlive(t, "# B05 task")
	end.wasKilled(t)
	end.died(t, "SIGKILL")
	if took < grace || took > grace+3*time.Second {
		t.Errorf("killed after %v; want the grace of %v, and hardly more", took, grace)
	}
	d.printedInAll(t, k.ID, "up\n", "")
}

func caseB06(t *testing.T, d *daemon) {
	r := d.sh(t, "echo part; kill -9 $$")
	r.died(t, "SIGKILL")
	r.printed(t, "part\n", "")
	if r.TimedOut || r.Aborted || r.Cause != "" {
		t.Errorf("timedOut %t, aborted %t, cause %q for a command that killed itself", r.TimedOut, r.Aborted, r.Cause)
	}
}

func caseB07(t *testing.T, d *daemon) {
	for command, code := range map[string]int{"exit 137": 137, "(kill -9 $BASHPID); exit $?": 137, "exit 256": 0, "exit -1": 255} {
		d.sh(t, command).exited(t, code)
	}
	r := d.sh(t, "kill -SEGV $$")
	r.died(t, "SIGSEGV")
	if r.Cause != "" {
		t.Errorf("cause %q for a command that killed itself", r.Cause)
	}
}

func caseB08(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "timeout 0.3 sleep 5; echo rc:$?", "timeoutMs": 10000})
	r.exited(t, 0)
	r.printed(t, "rc:124\n", "")
	d.run(t, in{"command": "exit 124", "timeoutMs": 10000}).exited(t, 124)
}

func caseB09Timeout(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "sleep 6109", "timeoutMs": 700})
	r.wasTimedOut(t)
	d.noneAlive(t, "sleep 6109")
}

func caseB09Disconnect(t *testing.T, d *daemon) {
	p := d.begin(t, in{"command": "echo up; sleep 6119"})
	p.printedUp(t)
	p.hangUp()
	r := d.settled(t, p.id)
	d.noneAlive(t, "sleep 6119")
	r.wasAborted(t)
	r.printed(t, "up\n", "") // the record is kept with what was printed
	if a := <-p.answer; a.err == nil {
		t.Errorf("the client that went away got %s", a.raw)
	}
}

// A client that only closed its sending side has gone, and can still read why its run ended.
func caseB09HalfClose(t *testing.T, d *daemon) {
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := mustJSON(t, in{"command": "sleep 6129"})
	fmt.Fprintf(c, "POST /v1/runs HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", d.addr, len(body), body)
	d.await(t, "the command runs", func() bool { return len(d.alive("sleep 6129")) > 0 })
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	head, raw, _ := strings.Cut(string(answer), "\r\n\r\n")
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatalf("%v: %s", err, answer)
	}
	decode(t, []byte(raw), 0).wasAborted(t)
	d.noneAlive(t, "sleep 6129")
}

// Whichever of the timeout and the hanging up comes first is the one cause.
func caseB09Race(t *testing.T, d *daemon) {
	const timeout = 700 * time.Millisecond
	var runs []*pending
	for i, early := range []time.Duration{-40, -10, -5, 0, 5, 10, 40} {
		p := d.begin(t, in{"command": fmt.Sprintf("sleep %d", 61390+i), "timeoutMs": timeout.Milliseconds()})
		runs = append(runs, p)
		time.AfterFunc(time.Until(d.startedAt(t, p.id).Add(timeout-early*time.Millisecond)), p.hangUp)
	}
	for _, p := range runs {
		r := d.settled(t, p.id)
		if r.TimedOut == r.Aborted {
			t.Errorf("timedOut %t and aborted %t; want exactly one of them", r.TimedOut, r.Aborted)
		}
		if r.TimedOut {
			r.wasTimedOut(t)
		} else {
			r.wasAborted(t)
		}
	}
	d.noneAlive(t, "sleep 6139")
}

func (d *daemon) startedAt(tb testing.TB, id string) (at time.Time) {
	tb.Helper()
	var run struct{ StartedAt time.Time }
	if err := json.Unmarshal(d.get(tb, id).raw, &run); err != nil {
		tb.Fatal(err)
	}
	return run.StartedAt
}

func caseB10(t *testing.T, d *daemon) {
	r := d.run(t, in{"command": "echo partial; echo err >&2; sleep 6110", "timeoutMs": 800})
	r.wasTimedOut(t)
	r.printed(t, "partial\n", "err\n")
	d.noneAlive(t, "sleep 6110")
}

// Values beyond 31, 32, 53 and 64 bits all mean the cap.
func caseB11(t *testing.T, d *daemon) {
	for _, value := range []string{"2147483648", "4294967297", "9007199254740993", "18446744073709551617", "1e308"} {
		r := d.run(t, in{"command": "sleep 0.5; echo ok", "timeoutMs": json.RawMessage(value)})
		r.exited(t, 0)
		r.printed(t, "ok\n", "")
		if r.TimeoutMs != 600000 || r.Spec["timeoutMs"] != 600000.0 {
			t.Errorf("timeoutMs %s: %d was in force, the spec says %v; want the cap of 600000", value, r.TimeoutMs, r.Spec["timeoutMs"])
		}
	}
}

// A task has the timeout that it asks for, however long; none by itself.
func caseB11Task(t *testing.T, d *daemon) {
	for value, want := range map[string]float64{"2147483648": 2147483648, "4294967297": 4294967297, "18446744073709551617": 0, "1e308": 0} {
		k := d.task(t, in{"command": "sleep 0.5; echo ok", "timeoutMs": json.RawMessage(value)})
		d.waitTask(t, k.ID).exited(t, 0)
		got, _ := k.Spec["timeoutMs"].(float64)
		if want != 0 && got != want || got < 1<<31 { // what no clock can count is cut to what it can
			t.Errorf("timeoutMs %s: the spec says %v", value, k.Spec["timeoutMs"])
		}
	}
	if k := d.task(t, in{"command": "true"}); k.Spec["timeoutMs"] != nil {
		t.Errorf("without timeoutMs the spec says %v", k.Spec["timeoutMs"])
	}
	k := d.task(t, in{"command": "echo partial; echo err >&2; sleep 61110", "timeoutMs": 800})
	end := d.waitTask(t, k.ID)
	end.wasTimedOut(t)
	end.died(t, "SIGTERM")
	d.noneAlive(t, "sleep 61110")
	d.printedInAll(t, k.ID, "partial\n", "err\n")
}

func caseB12(t *testing.T, d *daemon) {
	const owner = "X-Owner-Token: case-B12"
	for _, value := range []string{"0", "-1", "1.5", `"1000"`, "null", "NaN", "1e-9", "-1e308", "true", "[]"} {
		status, raw := d.request(t, "POST", "/v1/runs", `{"command": "sleep 0.3; echo B12", "timeoutMs": `+value+`}`, owner)
		var p problem
		if err := json.Unmarshal(raw, &p); err != nil || status != http.StatusBadRequest || p.Code != "INVALID_ARGUMENT" {
			t.Errorf("timeoutMs %s: %d %s; want 400", value, status, raw)
		}
		if value != "NaN" && (len(p.Errors) != 1 || p.Errors[0].Field != "timeoutMs") { // NaN is no JSON at all
			t.Errorf("timeoutMs %s: errors %v; want the field named", value, p.Errors)
		}
	}
	if _, raw := d.request(t, "GET", "/v1/runs", "", owner); strings.Contains(string(raw), "B12") {
		t.Errorf("something ran: %s", raw)
	}
	r := d.sh(t, "sleep 0.3; echo ok")
	r.printed(t, "ok\n", "")
	if r.TimeoutMs != 120000 {
		t.Errorf("without timeoutMs %d was in force; want the default of 120000", r.TimeoutMs)
	}
}

// Killing a command that ends at that moment: exactly one end is told, and everywhere the same.
func caseB14(t *testing.T, _ *daemon) {
	const workers = 4
	each := rounds(200) / workers
	d := start(t)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		ends = map[string]int{}
	)
	for w := range workers {
		wg.Go(func() {
			owner := fmt.Sprintf("X-Owner-Token: worker-%d", w)
			for i := range each {
				command := "exit 3"
				if i%2 == 1 { // which ends a little later
					command = fmt.Sprintf("sleep 0.0%d; exit 3", i%10)
				}
				end := d.killAtTheEnd(t, command, owner)
				mu.Lock()
				ends[end]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("ends: %v", ends)
	// A kill that was noted while the command exited finds its exit code.
	if n := ends["completed 3  "] + ends["killed 3  kill"] + ends["killed -1 SIGTERM kill"]; n != workers*each {
		t.Errorf("ends %v; want completed with 3 or killed, %d in all", ends, workers*each)
	}
	d.sh(t, "echo alive").printed(t, "alive\n", "")
}

// Tasks can be killed as soon as they are there.
func caseB14Task(t *testing.T, _ *daemon) {
	const workers = 4
	each := rounds(200) / workers
	d := start(t)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		ends = map[string]int{}
	)
	for w := range workers {
		wg.Go(func() {
			owner := fmt.Sprintf("X-Owner-Token: worker-%d", w)
			for i := range each {
				k := d.task(t, in{"command": "exit 3"}, owner)
				time.Sleep(time.Duration(i%10) * 2 * time.Millisecond) // the later ones find it over, or nearly
				outcome, at := d.killTask(t, k.ID, owner)
				if outcome == "already-finished" && !at.over() {
					t.Errorf("kill: outcome %q for %s", outcome, at.raw)
				}
				end := d.waitTask(t, k.ID, owner)
				if again := d.getTask(t, k.ID, owner); string(again.raw) != string(end.raw) || at.over() && string(at.raw) != string(end.raw) {
					t.Errorf("the end is told in three ways:\n%s\n%s\n%s", at.raw, end.raw, again.raw)
				}
				mu.Lock()
				ends[fmt.Sprintf("%s %d %s %s", end.Status, end.code(), end.signal(), end.Cause)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("ends: %v", ends)
	if n := ends["completed 3  "] + ends["killed 3  kill"] + ends["killed -1 SIGTERM kill"]; n != workers*each {
		t.Errorf("ends %v; want completed with 3 or killed, %d in all", ends, workers*each)
	}
	if n := d.counted(t, "bashd_runs_total"); n != float64(workers*each) {
		t.Errorf("bashd_runs_total is %v; want %d: each task ended once", n, workers*each)
	}
	d.sh(t, "echo alive").printed(t, "alive\n", "")
}

// killAtTheEnd runs a command, kills it as soon as it is listed as running or else once it has
// ended, and returns how it ended. The owner has no other running run.
func (d *daemon) killAtTheEnd(t *testing.T, command, owner string) string {
	p := d.post(t, in{"command": command}, owner)
	var a answered
	for p.id == "" {
		select {
		case a = <-p.answer: // it was faster than we
			p.id = idIn(a.raw)
		default:
			p.id = d.runningNow(t, owner)
		}
		if a.err != nil || a.req != nil && p.id == "" {
			return fmt.Sprintf("no answer: %v %s", a.err, a.raw)
		}
	}
	if status, raw := d.request(t, "POST", "/v1/runs/"+p.id+"/kill", "", owner); status != http.StatusAccepted {
		t.Errorf("kill: %d %s", status, raw)
	}
	if a.req == nil {
		a = <-p.answer
	}
	if a.err != nil || a.resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("no answer: %v %s", a.err, a.raw)
	}
	_, record := d.request(t, "GET", "/v1/runs/"+p.id, "", owner)
	if string(record) != string(a.raw) {
		t.Errorf("the answer and the record differ:\n%s\n%s", a.raw, record)
	}
	r := decode(t, a.raw, a.took)
	return fmt.Sprintf("%s %d %s %s", r.Status, r.code(), r.signal(), r.Cause)
}

// runningNow asks for the owner's newest running run. It is for loops: nothing is validated.
func (d *daemon) runningNow(t *testing.T, owner string) (id string) {
	name, value, _ := strings.Cut(owner, ": ")
	req, err := http.NewRequestWithContext(t.Context(), "GET", d.url+"/v1/runs?limit=1&status=running", nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	req.Header.Set(name, value)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("GET /v1/runs: %v, %d %s", err, resp.StatusCode, raw)
	}
	return idIn(raw)
}

// rounds is how often a case that hunts for a race repeats itself: n times, less often
// under the race detector, with which starting a process costs several times as much.
func rounds(n int) int {
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return n / 4
	}
	return n
}

// idIn finds the first run's id in an answer; "" where there is none.
func idIn(raw []byte) string { return anID.FindString(string(raw)) }

var anID = regexp.MustCompile(`bash-[a-z2-7]{26}`)

func caseB15(t *testing.T, _ *daemon) {
	d := start(t) // whose metrics count this run alone
	r := d.sh(t, "echo r; exit 7")
	r.exited(t, 7)
	before := d.get(t, r.ID)
	outcome, at := d.kill(t, r.ID)
	if outcome != "already-finished" {
		t.Errorf("kill: outcome %q", outcome)
	}
	at.exited(t, 7)
	at.printed(t, "r\n", "")
	after := d.get(t, r.ID)
	if string(after.raw) != string(before.raw) {
		t.Errorf("the kill changed the record:\n%s\n%s", before.raw, after.raw)
	}
	after.exited(t, 7)
	after.printed(t, "r\n", "")
	var list struct{ Runs []result }
	_, raw := d.request(t, "GET", "/v1/runs", "")
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Runs) != 1 {
		t.Fatalf("list: %v %s", err, raw)
	}
	if l := list.Runs[0]; l.ID != r.ID || l.Status != "completed" || l.code() != 7 {
		t.Errorf("list: %s", raw)
	}
	if n := d.counted(t, "bashd_runs_total"); n != 1 {
		t.Errorf("bashd_runs_total is %v; want 1: the run ended once", n)
	}
}

func caseB15Task(t *testing.T, _ *daemon) {
	d := start(t) // whose metrics count this task alone
	k := d.task(t, in{"command": "echo r; exit 7"})
	before := d.waitTask(t, k.ID)
	before.exited(t, 7)
	outcome, at := d.killTask(t, k.ID)
	if outcome != "already-finished" || string(at.raw) != string(before.raw) {
		t.Errorf("kill: outcome %q for\n%s; want already-finished for\n%s", outcome, at.raw, before.raw)
	}
	p := d.read(t, k.ID)
	p.delivered(t, "r\n", "")
	p.Task.exited(t, 7)
	if after := d.getTask(t, k.ID); string(after.raw) != string(before.raw) {
		t.Errorf("the kill or the read changed the record:\n%s\n%s", before.raw, after.raw)
	}
	d.printedInAll(t, k.ID, "r\n", "")
	list := d.listTasks(t)
	if len(list) != 1 || list[0].ID != k.ID {
		t.Fatalf("list: %d tasks", len(list))
	}
	list[0].exited(t, 7)
	if n := d.counted(t, "bashd_runs_total"); n != 1 {
		t.Errorf("bashd_runs_total is %v; want 1: the task ended once", n)
	}
	d.deleteTask(t, k.ID)
	if status, raw := d.request(t, "GET", "/v1/tasks/"+k.ID, ""); status != http.StatusNotFound || d.spilled(t) != 0 {
		t.Errorf("after DELETE: %d %s, and %d bytes of output are left", status, raw, d.spilled(t))
	}
}

// counted sums a metric over its labels.
func (d *daemon) counted(tb testing.TB, name string) (sum float64) {
	tb.Helper()
	_, raw := d.request(tb, "GET", "/metrics", "")
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			tb.Fatal(err)
		}
		sum += v
	}
	return sum
}

func caseB16(t *testing.T, d *daemon) {
	p := d.begin(t, in{
		"command":     "for i in 1 2 3 4 5 6; do bash -c 'sleep 1; echo $0 >> b16.log' $i; done",
		"sandboxMode": "workspace-write",
	})
	root, _ := d.get(t, p.id).Spec["workspaceRoot"].(string)
	log := func() string {
		b, err := os.ReadFile(filepath.Join(root, "b16.log"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(b)
	}
	d.await(t, "the loop is on its way", func() bool { return log() == "1\n" })
	d.kill(t, p.id)
	r := p.wait(t)
	d.noneAlive(t, "b16.log")
	r.wasKilled(t)
	at := log()
	time.Sleep(2 * time.Second) // in which the loop would go round once more
	if now := log(); now != at {
		t.Errorf("the log grew from %q to %q after the end", at, now)
	}
}

func caseB16Task(t *testing.T, d *daemon) {
	k := d.task(t, in{
		"command":     "for i in 1 2 3 4 5 6; do bash -c 'sleep 1; echo $0 >> b16-task.log' $i; done",
		"sandboxMode": "workspace-write",
	})
	log := filepath.Join(d.shared(), "b16-task.log")
	d.await(t, "the loop is on its way", func() bool { return content(log) == "1\n" })
	if _, at := d.killTask(t, k.ID); at.over() { // then all of it has to be dead
		d.noneAlive(t, "b16-task.log")
	} else if at.Status != "stopping" {
		t.Errorf("answered with status %s; want stopping until all of it is dead", at.Status)
	}
	end := d.waitTask(t, k.ID)
	d.noneAlive(t, "b16-task.log")
	end.wasKilled(t)
	at := content(log)
	time.Sleep(2 * time.Second) // in which the loop would go round once more
	if now := content(log); now != at {
		t.Errorf("the log grew from %q to %q after the end", at, now)
	}
}
