package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCasesJ is about following a task from afar: a reader that was cut off goes on where it was,
// and learns how the task ended.
func TestCasesJ(t *testing.T) {
	t.Parallel()
	d := start(t, "BASHD_MAX_TASKS_PER_OWNER=100")
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"J07", caseJ07},
		{"J09", caseJ09},
		{"J09 restart", caseJ09Restart},
		{"J12", caseJ12},
		{"J14", caseJ14},
	})
}

// caseJ07 reads with a connection that is cut again and again: nothing is repeated, nothing is missing.
func caseJ07(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "for i in $(seq 50); do echo L$i; echo E$i >&2; sleep 0.03; done"})
	var want, wantErr strings.Builder
	for i := range 50 {
		fmt.Fprintf(&want, "L%d\n", i+1)
		fmt.Fprintf(&wantErr, "E%d\n", i+1)
	}
	var out, errs strings.Builder
	cursor, pages := "", 0
	for p := (page{}); !p.EOF; pages++ {
		if pages%3 == 1 {
			c := d.dial(t)
			c.send(t, "GET "+outputPath(k.ID, cursor, 20000), "")
			c.Close() // the answer is lost
		}
		p = d.output(t, k.ID, cursor, 20000)
		if again := d.output(t, k.ID, cursor, 0); !strings.HasPrefix(again.Stdout.Text, p.Stdout.Text) || !strings.HasPrefix(again.Stderr.Text, p.Stderr.Text) {
			t.Errorf("the same cursor gave %q and then %q", p.Delta, again.Delta)
		}
		if p.Stdout.From != int64(out.Len()) || p.Stderr.From != int64(errs.Len()) || p.Lossy {
			t.Errorf("from %d and %d, lossy %t; want %d and %d", p.Stdout.From, p.Stderr.From, p.Lossy, out.Len(), errs.Len())
		}
		out.WriteString(p.Stdout.Text)
		errs.WriteString(p.Stderr.Text)
		cursor = p.NextCursor
	}
	if out.String() != want.String() || errs.String() != wantErr.String() || pages < 5 {
		t.Errorf("in %d pages %q and %q", pages, out.String(), errs.String())
	}
	// Pages of any size add up to the same.
	for _, size := range []int{1, 7, 100, 1 << 20} {
		out.Reset()
		cursor = ""
		for p := (page{}); !p.EOF; cursor = p.NextCursor {
			path := fmt.Sprintf("%s&maxBytes=%d", outputPath(k.ID, cursor, 0), size)
			d.getJSON(t, path, &p)
			if n := p.Stdout.To - p.Stdout.From + p.Stderr.To - p.Stderr.From; n > int64(size) || p.More == p.EOF {
				t.Errorf("maxBytes %d: %d bytes, more %t, eof %t", size, n, p.More, p.EOF)
			}
			out.WriteString(p.Stdout.Text)
		}
		if out.String() != want.String() {
			t.Errorf("maxBytes %d: %q", size, out.String())
		}
	}
}

// caseJ09: a cursor is good for the task whose read gave it, and only as it was given.
func caseJ09(t *testing.T, d *daemon) {
	k, other := d.task(t, in{"command": "seq 1 1000"}), d.task(t, in{"command": "seq 1 1000"})
	const owner = "X-Owner-Token: j09"
	theirs := d.task(t, in{"command": "seq 1 1000"}, owner)
	for _, id := range []string{k.ID, other.ID} {
		d.waitTask(t, id).exited(t, 0)
	}
	d.waitTask(t, theirs.ID, owner).exited(t, 0)
	good := d.output(t, k.ID, "", 0).NextCursor
	last := strings.Map(func(c rune) rune { // the other case of a letter, the next digit
		switch {
		case c >= '0' && c <= '9':
			return '0' + (c-'0'+1)%10
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			return c ^ 0x20
		}
		return 'A'
	}, good[len(good)/2:len(good)/2+1])
	for name, cursor := range map[string]string{
		"no cursor":             "abc",
		"one character changed": good[:len(good)/2] + last + good[len(good)/2+1:],
		"cut":                   good[:len(good)-2],
		"longer":                good + "AA",
		"another task's":        d.output(t, other.ID, "", 0).NextCursor,
		"another owner's":       d.output(t, theirs.ID, "", 0, owner).NextCursor,
		"very long":             strings.Repeat("A", 4000),
	} {
		var p problem
		d.ask(t, "GET", outputPath(k.ID, cursor, 0), nil, http.StatusBadRequest, &p)
		if len(p.Errors) != 1 || p.Errors[0].Field != "cursor" || strings.Contains(p.Detail, cursor) {
			t.Errorf("%s: %+v; want the cursor named, and not repeated", name, p)
		}
	}
	// Whose task it is comes first.
	d.ask(t, "GET", outputPath(theirs.ID, good, 0), nil, http.StatusNotFound, nil)
	if p := d.output(t, k.ID, good, 0); p.Delta != "" || !p.EOF {
		t.Errorf("the good one: delta %q, eof %t", p.Delta, p.EOF)
	}
}

// caseJ09Restart: cursors outlast the daemon, and so does the place of the consuming read.
func caseJ09Restart(t *testing.T, _ *daemon) {
	d := launch(t)
	k := d.task(t, in{"command": "echo one; read -r; printf 'two\\nthree'; read -r; echo never", "stdinOpen": true})
	d.printedSoFar(t, k.ID, "one\n")
	first := d.output(t, k.ID, "", 0)
	d.read(t, k.ID).delivered(t, "one\n", "")
	d.goOn(t, k.ID)
	d.printedSoFar(t, k.ID, "one\ntwo\nthree")
	d.stop(t)
	again := d.restart(t)
	for range 2 {
		p := again.output(t, k.ID, first.NextCursor, 20000)
		p.delivered(t, "two\nthree", "")
		if p.Stdout.From != 4 || p.Lossy || !p.EOF {
			t.Errorf("from %d, lossy %t, eof %t", p.Stdout.From, p.Lossy, p.EOF)
		}
	}
	for _, want := range []string{"two\nthree", ""} {
		p := again.read(t, k.ID)
		p.delivered(t, want, "")
		if p.Lossy || !p.EOF {
			t.Errorf("lossy %t, eof %t", p.Lossy, p.EOF)
		}
	}
	end := again.getTask(t, k.ID)
	if end.Status != "killed" || end.Cause != "shutdown" || end.FinishedAt == "" || !end.stamped {
		t.Errorf("%s; want it killed by the shutdown", end.raw)
	}
}

// caseJ12: many that end at the same moment each tell those who wait how.
func caseJ12(t *testing.T, d *daemon) {
	gate := subdir(t, d, "j12") + "/open"
	var ids []string
	for i := range times(60) {
		ids = append(ids, d.task(t, in{"command": fmt.Sprintf("until [ -e '%s' ]; do sleep 0.1; done; echo %d; exit %d", gate, i, i%5)}).ID)
	}
	ends := make([]task, 2*len(ids))
	var wg sync.WaitGroup
	for i := range ends { // two who wait for each
		wg.Go(func() { ends[i] = d.waitTask(t, ids[i%len(ids)]) })
	}
	time.Sleep(300 * time.Millisecond)
	write(t, gate, "")
	wg.Wait()
	for i, end := range ends {
		end.exited(t, i%len(ids)%5)
		if end.ID != ids[i%len(ids)] {
			t.Errorf("waited for %s and was told of %s", ids[i%len(ids)], end.ID)
		}
	}
	for i, id := range ids {
		d.read(t, id).delivered(t, fmt.Sprintln(i), "")
	}
}

// caseJ14: how a task ended is told in fields, not in words.
func caseJ14(t *testing.T, d *daemon) {
	d.waitTask(t, d.task(t, in{"command": "false; true | tail -1"}).ID).exited(t, 0)
	end := d.waitTask(t, d.task(t, in{"command": "kill -9 $$"}).ID)
	end.died(t, "SIGKILL")
	if end.Cause != "" || end.TimedOut {
		t.Errorf("cause %q, timedOut %t for a command that killed itself", end.Cause, end.TimedOut)
	}
}
