package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// tailBytes is the default of BASHD_MAX_OUTPUT_BYTES.
const tailBytes = 64000

// TestCasesC is about output: what the caller gets of it is right to the byte, valid
// text whatever the bytes were, and bounded in memory and on disk.
func TestCasesC(t *testing.T) {
	d := start(t)
	d.needsSandbox(t)
	t.Run("C18", func(t *testing.T) { caseC18(t, d) }) // measures time: alone
	t.Run("C05", caseC05)                              // measures memory: alone
	d.inParallel(t, []namedCase{
		{"C01", caseC01},
		{"C01 at the end", caseC01AtTheEnd},
		{"C03", caseC03},
		{"C04", caseC04},
		{"C06", caseC06},
		{"C07", caseC07},
		{"C08", caseC08},
		{"C09", caseC09},
		{"C09 task", caseC09Task},
		{"C11", caseC11},
		{"C12", caseC12},
		{"C13", caseC13},
		{"C15", caseC15},
		{"C16", caseC16},
		{"C17", caseC17},
		{"C19", caseC19},
		{"C20", caseC20},
		{"C21", caseC21},
		{"C22", caseC22},
		{"C22 task", caseC22Task},
		{"C23", caseC23},
	})
}

// Half a character is not delivered before its other half, by either read.
func caseC01(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": `printf 'caf\xc3'; read -r; printf '\xa9 end\n'`, "stdinOpen": true})
	d.await(t, "half a character is there", func() bool { return d.getTask(t, k.ID).Stdout.Bytes == 4 })
	first, consumed := d.output(t, k.ID, "", 0), d.read(t, k.ID)
	for _, p := range []page{first, consumed} {
		p.delivered(t, "caf", "")
		if p.Stdout.To != 3 || p.More || p.EOF || p.Lossy {
			t.Errorf("to %d, more %t, eof %t, lossy %t; want 3 bytes, and no more for now", p.Stdout.To, p.More, p.EOF, p.Lossy)
		}
	}
	began := time.Now()
	d.output(t, k.ID, first.NextCursor, 300).delivered(t, "", "")
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("half a character ended the wait after %v", took)
	}
	d.read(t, k.ID).delivered(t, "", "")
	d.goOn(t, k.ID)
	d.output(t, k.ID, first.NextCursor, 20000).delivered(t, "é end\n", "")
	d.waitTask(t, k.ID).exited(t, 0)
	d.read(t, k.ID).delivered(t, "é end\n", "")
	d.printedInAll(t, k.ID, "café end\n", "")
}

// What never becomes a character is delivered at the end.
func caseC01AtTheEnd(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": `printf 'caf\xc3'`})
	d.waitTask(t, k.ID).exited(t, 0)
	p := d.read(t, k.ID)
	p.delivered(t, "caf\uFFFD", "")
	if text, size := d.follow(t, k.ID); text != p.Stdout.Text || size != 4 || p.Stdout.To != 4 || !p.EOF {
		t.Errorf("read to %d, eof %t; followed: %q, %d bytes", p.Stdout.To, p.EOF, text, size)
	}
	p = d.output(t, k.ID, p.NextCursor, 20000)
	p.delivered(t, "", "")
	if !p.EOF {
		t.Error("no eof behind the end")
	}
}

// seq is what the command seq prints.
func seq(first, last int) string {
	var b []byte
	for i := first; i <= last; i++ {
		b = append(strconv.AppendInt(b, int64(i), 10), '\n')
	}
	return string(b)
}

// wasCut checks a stream that outgrew memory: the tail is given, and the whole
// is in the file and at the URL.
func (d *daemon) wasCut(tb testing.TB, s stream, limit int, whole string) {
	tb.Helper()
	if !s.Truncated || s.Bytes != int64(len(whole)) || s.Text != whole[len(whole)-limit:] {
		tb.Errorf("truncated %t, %d bytes, the text has %d, %.40q…; want the last %d of %d",
			s.Truncated, s.Bytes, len(s.Text), s.Text, limit, len(whole))
	}
	file, err := os.ReadFile(s.SpillPath)
	if err != nil || string(file) != whole {
		tb.Errorf("the file %q has %d bytes (%v); want all %d", s.SpillPath, len(file), err, len(whole))
	}
	if s.URL == "" {
		tb.Error("no url")
		return
	}
	if status, raw := d.request(tb, "GET", s.URL, ""); status != http.StatusOK || string(raw) != whole {
		tb.Errorf("GET %s: %d with %d bytes; want all %d", s.URL, status, len(raw), len(whole))
	}
}

func caseC03(t *testing.T, d *daemon) {
	r := d.sh(t, `printf 'ok \xff\xfe end\n'; printf '\xed\xa0\x80\n' >&2`)
	r.exited(t, 0)
	if !utf8.Valid(r.raw) {
		t.Error("the answer is not UTF-8")
	}
	r.printed(t, "ok \uFFFD\uFFFD end\n", "\uFFFD\uFFFD\uFFFD\n")
	if r.Stdout.Bytes != int64(len("ok \xff\xfe end\n")) || r.Stderr.Bytes != int64(len("\xed\xa0\x80\n")) {
		t.Errorf("bytes %d and %d; want those that were printed", r.Stdout.Bytes, r.Stderr.Bytes)
	}
}

func caseC04(t *testing.T, d *daemon) {
	const count = 60000
	for _, ch := range []string{"é", "€", "😀"} {
		for pad := range 4 {
			r := d.sh(t, fmt.Sprintf("printf '%%.*s' %d xxx; printf '%%0.s%s' $(seq %d)", pad, ch, count))
			r.exited(t, 0)
			if !utf8.Valid(r.raw) || !r.Stdout.Truncated || r.Stdout.Bytes != int64(pad+count*len(ch)) {
				t.Errorf("%s after %d: valid %t, truncated %t, %d bytes", ch, pad, utf8.Valid(r.raw), r.Stdout.Truncated, r.Stdout.Bytes)
			}
			if want := strings.Repeat(ch, tailBytes/len(ch)); r.Stdout.Text != want && r.Stdout.Text != want[len(ch):] {
				t.Errorf("%s after %d: %d bytes of text, %.20q…%q; want whole characters, as many as fit",
					ch, pad, len(r.Stdout.Text), r.Stdout.Text, tail(r.Stdout.Text, 12))
			}
		}
	}
}

func caseC05(t *testing.T) {
	const flood = 200000000
	d := start(t)
	d.sh(t, "true") // whatever a first run costs
	before := d.memory(t, "VmRSS")
	r := d.sh(t, fmt.Sprintf("yes | head -c %d >&2 & yes | head -c %[1]d; wait", flood))
	r.exited(t, 0)
	if grown := d.memory(t, "VmHWM") - before; grown >= 50<<20 {
		t.Errorf("the daemon grew by %d MB", grown>>20)
	}
	for _, s := range []stream{r.Stdout, r.Stderr} {
		if !s.Truncated || s.Bytes != flood || s.Text != strings.Repeat("y\n", tailBytes/2) {
			t.Errorf("truncated %t, %d bytes, the text has %d", s.Truncated, s.Bytes, len(s.Text))
		}
		if s.SpillPath != "" || s.URL != "" {
			t.Errorf("%q and %q are named, for a stream longer than any file", s.SpillPath, s.URL)
		}
	}
	if len(r.raw) > 5*tailBytes { // a newline is two bytes of JSON
		t.Errorf("the answer has %d bytes", len(r.raw))
	}
}

// memory reads a line such as VmRSS or VmHWM of the daemon's status, in bytes.
func (d *daemon) memory(tb testing.TB, name string) int64 {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kb << 10
		}
	}
	tb.Fatalf("no %s", name)
	return 0
}

func caseC06(t *testing.T, d *daemon) {
	r := d.sh(t, `head -c 3000000 /dev/zero | tr '\0' x`)
	r.exited(t, 0)
	d.wasCut(t, r.Stdout, tailBytes, strings.Repeat("x", 3000000))
	// The owner's later commands can read it.
	d.sh(t, "wc -c <'"+r.Stdout.SpillPath+"'").printed(t, "3000000\n", "")
}

func caseC07(t *testing.T, d *daemon) {
	r := d.sh(t, "seq 1 300000; echo rc=$? >&2; exit 4")
	r.exited(t, 4)
	d.wasCut(t, r.Stdout, tailBytes, seq(1, 300000))
	if r.Stderr.Text != "rc=0\n" {
		t.Errorf("stderr %q", r.Stderr.Text)
	}
}

func caseC08(t *testing.T, d *daemon) {
	numbers := seq(1, 20000)
	for _, limit := range []int{1, 1000, tailBytes, 70000} {
		for _, n := range []int{limit - 1, limit, limit + 1} {
			body := in{"command": fmt.Sprintf("seq 1 20000 | head -c %d", n)}
			if limit != tailBytes { // which is the default
				body["stdoutMaxBytes"] = limit
			}
			r := d.run(t, body)
			r.exited(t, 0)
			if n > limit {
				d.wasCut(t, r.Stdout, limit, numbers[:n])
				continue
			}
			r.printed(t, numbers[:n], "")
			if r.Stdout.Bytes != int64(n) {
				t.Errorf("%d bytes of %d", r.Stdout.Bytes, n)
			}
		}
	}
	for _, n := range []int{tailBytes - 1, tailBytes, tailBytes + 1} {
		r := d.sh(t, fmt.Sprintf("seq 1 20000 | head -c %d >&2", n))
		if n > tailBytes {
			d.wasCut(t, r.Stderr, tailBytes, numbers[:n])
			continue
		}
		r.printed(t, "", numbers[:n])
	}
}

func caseC09(t *testing.T, d *daemon) {
	numbers := seq(1, 100000)
	for i := range rounds(40) {
		if i%2 == 0 {
			r := d.run(t, in{"command": "seq 1 100000", "stdoutMaxBytes": 1 << 20})
			r.exited(t, 0)
			r.printed(t, numbers, "")
			continue
		}
		r := d.sh(t, "seq 1 100000")
		r.exited(t, 0)
		d.wasCut(t, r.Stdout, tailBytes, numbers)
	}
	if len(numbers) != 588895 {
		t.Fatalf("the test expects %d bytes", len(numbers))
	}
}

func caseC09Task(t *testing.T, d *daemon) {
	numbers := seq(1, 100000)
	for range rounds(40) {
		k := d.task(t, in{"command": "seq 1 100000"})
		end := d.waitTask(t, k.ID)
		end.exited(t, 0)
		if raw := d.stream(t, k.ID, "stdout"); string(raw) != numbers || end.Stdout.Bytes != int64(len(numbers)) {
			t.Errorf("%d bytes told, %d there; want all %d", end.Stdout.Bytes, len(raw), len(numbers))
		}
		if text, size := d.follow(t, k.ID); text != numbers || size != int64(len(numbers)) {
			t.Errorf("followed %d bytes, %.20q…%q; want all %d", size, text, tail(text, 12), len(numbers))
		}
		p := d.read(t, k.ID) // which passes no flood on, and says so
		p.delivered(t, numbers[len(numbers)-tailBytes:], "")
		if !p.Lossy || !p.EOF || content(p.StdoutSpillPath) != numbers || p.StderrSpillPath != "" {
			t.Errorf("lossy %t, eof %t, %d bytes in %q; want the loss told and the file named", p.Lossy, p.EOF, len(content(p.StdoutSpillPath)), p.StdoutSpillPath)
		}
	}
}

// Output is there while the command runs, for those who wait and for those who poll.
func caseC11(t *testing.T, d *daemon) {
	const late = 3 * 300 * time.Millisecond
	printed := func(line string) time.Time {
		at, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			t.Fatalf("%q is no time", line)
		}
		return time.UnixMicro(int64(at * 1e6))
	}
	for name, next := range map[string]func(id, cursor string) page{
		"waiting": func(id, cursor string) page { return d.output(t, id, cursor, 20000) },
		"polling": func(id, cursor string) page { return d.output(t, id, cursor, 0) },
		"reading": func(id, _ string) page { return d.read(t, id) },
	} {
		k := d.task(t, in{"command": "for i in 1 2 3; do echo $EPOCHREALTIME; sleep 0.7; done"})
		var lines int
		for p := (page{}); !p.EOF; {
			p = next(k.ID, p.NextCursor)
			seen := time.Now()
			for line := range strings.Lines(p.Stdout.Text) {
				if lines++; seen.Sub(printed(line)) > late {
					t.Errorf("%s: seen %v after it was printed", name, seen.Sub(printed(line)))
				}
			}
			if name != "waiting" {
				time.Sleep(20 * time.Millisecond)
			}
		}
		if lines != 3 {
			t.Errorf("%s: %d lines; want 3", name, lines)
		}
	}
}

func caseC12(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "sleep 6012"})
	for range 2 {
		for _, p := range []page{d.read(t, k.ID), d.output(t, k.ID, "", 0)} {
			p.delivered(t, "", "")
			if p.Delta != "" || p.Lossy || p.More || p.EOF || p.Task.Status != "running" {
				t.Errorf("delta %q, lossy %t, more %t, eof %t, status %s", p.Delta, p.Lossy, p.More, p.EOF, p.Task.Status)
			}
		}
	}
	d.killTask(t, k.ID)
	d.waitTask(t, k.ID).died(t, "SIGTERM")
}

func caseC13(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "echo a; echo b"})
	d.waitTask(t, k.ID).exited(t, 0)
	for _, want := range []string{"a\nb\n", "", ""} {
		p := d.read(t, k.ID)
		p.delivered(t, want, "")
		p.Task.exited(t, 0)
		if p.Delta != want || p.Lossy || p.More || !p.EOF {
			t.Errorf("delta %q, lossy %t, more %t, eof %t", p.Delta, p.Lossy, p.More, p.EOF)
		}
	}
	d.printedInAll(t, k.ID, "a\nb\n", "") // the other read has a place of its own
}

// A line that is never ended arrives as it grows.
func caseC15(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": `for i in $(seq 1 10); do printf '\r%d%%' $((i*10)); sleep 0.2; done; echo`})
	var want strings.Builder
	for i := range 10 {
		fmt.Fprintf(&want, "\r%d%%", (i+1)*10)
	}
	var text strings.Builder
	live := 0
	for _, p := range d.pages(t, k.ID) {
		text.WriteString(p.Stdout.Text)
		if !p.Task.over() && p.Stdout.Text != "" {
			live++
		}
	}
	if text.String() != want.String()+"\n" || live < 3 {
		t.Errorf("%q in %d pieces while it ran", text.String(), live)
	}
	d.read(t, k.ID).delivered(t, want.String()+"\n", "")
}

func caseC16(t *testing.T, d *daemon) {
	const escapes = "\x1b]0;pwn\a\x1b[2Jred\n"
	for _, command := range []string{
		`printf '\033]0;pwn\007\033[2Jred\n'`,
		"printf %s '" + escapes + "'", // in the command, which is logged
	} {
		r := d.sh(t, command)
		r.exited(t, 0)
		r.printed(t, escapes, "")
		for _, c := range r.raw {
			if c < ' ' && c != '\n' {
				t.Fatalf("the answer has a raw control character: %q", r.raw)
			}
		}
	}
	// Refusals quote what was wrong.
	d.refused(t, in{"command": "true", "workdir": "/no/" + escapes}, http.StatusUnprocessableEntity, "WORKDIR_UNUSABLE")
	if strings.ContainsAny(d.log.String(), "\x1b\a") {
		t.Error("the log has a raw control character")
	}
}

func caseC17(t *testing.T, d *daemon) {
	r := d.sh(t, `printf 'a\0b\n'`)
	r.exited(t, 0)
	r.printed(t, "a\x00b\n", "")
	if r.Stdout.Bytes != 4 || bytes.IndexByte(r.raw, 0) >= 0 || !json.Valid(r.raw) {
		t.Errorf("%d bytes: %q", r.Stdout.Bytes, r.raw)
	}
}

func caseC18(t *testing.T, d *daemon) {
	for command, code := range map[string]int{"true": 0, "false": 1, ":": 0} {
		r := d.sh(t, command)
		r.exited(t, code)
		r.printed(t, "", "")
		r.tookLess(t, 1500*time.Millisecond)
		if r.Stdout.Bytes != 0 || r.Stderr.Bytes != 0 {
			t.Errorf("%s: %d and %d bytes", command, r.Stdout.Bytes, r.Stderr.Bytes)
		}
	}
}

func caseC19(t *testing.T, d *daemon) {
	r := d.sh(t, "echo OUT; echo ERR >&2; exit 7")
	r.exited(t, 7)
	r.printed(t, "OUT\n", "ERR\n")
}

func caseC20(t *testing.T, d *daemon) {
	r := d.sh(t, "seq 1 400000; echo e >&2")
	r.exited(t, 0)
	d.wasCut(t, r.Stdout, tailBytes, seq(1, 400000))
	if s := r.Stderr; s.Text != "e\n" || s.Truncated || s.SpillPath != "" || s.URL != "" {
		t.Errorf("stderr %+v; want it complete and no file", s)
	}
}

// What a read skips is told once, with the file that has it.
func caseC21(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "seq 1 3000000; read -r; echo tail; read -r", "stdinOpen": true})
	whole := seq(1, 3000000)
	d.await(t, "all numbers are there", func() bool { return d.getTask(t, k.ID).Stdout.Bytes == int64(len(whole)) })
	p := d.read(t, k.ID)
	p.delivered(t, whole[len(whole)-tailBytes:], "")
	if !p.Lossy || content(p.StdoutSpillPath) != whole {
		t.Errorf("lossy %t, %d bytes in %q; want the loss told, and all bytes in the file", p.Lossy, len(content(p.StdoutSpillPath)), p.StdoutSpillPath)
	}
	d.goOn(t, k.ID)
	d.await(t, "the tail is there", func() bool { return d.getTask(t, k.ID).Stdout.Bytes == int64(len(whole)+len("tail\n")) })
	p = d.read(t, k.ID)
	p.delivered(t, "tail\n", "")
	if p.Lossy {
		t.Error("lossy again")
	}
	first := d.output(t, k.ID, "", 0) // nothing is gone for good
	if first.Stdout.From != 0 || first.Lossy || !first.More || first.Stdout.Text != whole[:first.Stdout.To] || first.Stdout.To != 64<<10 {
		t.Errorf("the first page: from %d to %d, lossy %t, more %t", first.Stdout.From, first.Stdout.To, first.Lossy, first.More)
	}
	d.goOn(t, k.ID)
	d.waitTask(t, k.ID).exited(t, 0)
	if raw := d.stream(t, k.ID, "stdout"); string(raw) != whole+"tail\n" {
		t.Errorf("the stream has %d bytes", len(raw))
	}
}

// A command that prints without end fills neither the disk nor the daemon's memory.
func caseC22(t *testing.T, _ *daemon) {
	const limit = 1 << 20
	d := start(t, fmt.Sprintf("BASHD_MAX_SPILL_BYTES=%d", limit))
	before := d.memory(t, "VmRSS")
	p := d.begin(t, in{"command": "yes", "timeoutMs": 2000})
	most, slowest := int64(0), time.Duration(0)
	var r result
	for r.Status == "" || r.Status == "running" || r.Status == "stopping" {
		most = max(most, d.spilled(t))
		began := time.Now()
		if status, raw := d.request(t, "GET", "/healthz", ""); status != http.StatusOK {
			t.Errorf("GET /healthz: %d %s", status, raw)
		}
		slowest = max(slowest, time.Since(began))
		r = d.get(t, p.id)
	}
	r = p.wait(t)
	r.wasTimedOut(t)
	r.tookLess(t, 2*time.Second+grace)
	if r.Stdout.Bytes <= limit || r.Stdout.SpillPath != "" || r.Stdout.URL != "" || !r.Stdout.Truncated {
		t.Errorf("%d bytes, truncated %t, spillPath %q; want more than the file may hold, and no file named",
			r.Stdout.Bytes, r.Stdout.Truncated, r.Stdout.SpillPath)
	}
	if r.Stdout.Text != strings.Repeat("y\n", tailBytes/2) {
		t.Errorf("the text is not the tail: %d bytes", len(r.Stdout.Text))
	}
	if left := d.spilled(t); most > limit || left != 0 {
		t.Errorf("the files had up to %d bytes and %d at the end; want at most %d, and none", most, left, limit)
	}
	if status, raw := d.request(t, "GET", "/v1/runs/"+r.ID+"/streams/stdout", ""); status != http.StatusGone {
		t.Errorf("the stream: %d %.200s; want 410", status, raw)
	}
	if slowest > prompt {
		t.Errorf("the daemon took %v to answer meanwhile", slowest)
	}
	if grown := d.memory(t, "VmHWM") - before; grown >= 50<<20 {
		t.Errorf("the daemon grew by %d MB", grown>>20)
	}
}

// Nor does a task, whose bytes go to its file from the first.
func caseC22Task(t *testing.T, _ *daemon) {
	const limit = 1 << 20
	d := start(t, fmt.Sprintf("BASHD_MAX_SPILL_BYTES=%d", limit))
	before := d.memory(t, "VmRSS")
	k := d.task(t, in{"command": "yes"})
	most, slowest := int64(0), time.Duration(0)
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		most = max(most, d.spilled(t))
		began := time.Now()
		d.read(t, k.ID)
		slowest = max(slowest, time.Since(began))
	}
	d.killTask(t, k.ID)
	end := d.waitTask(t, k.ID)
	end.died(t, "SIGTERM")
	if end.Stdout.Bytes <= limit || end.Stdout.SpillPath != "" {
		t.Errorf("%d bytes, spillPath %q; want more than the file may hold, and no file named", end.Stdout.Bytes, end.Stdout.SpillPath)
	}
	// A note of a few bytes, that the file was dropped, may stay.
	if left := d.spilled(t); most > limit+100 || left > 100 {
		t.Errorf("the files had up to %d bytes and %d at the end; want at most %d, and none", most, left, limit)
	}
	if status, raw := d.request(t, "GET", "/v1/tasks/"+k.ID+"/streams/stdout", ""); status != http.StatusGone {
		t.Errorf("the stream: %d %.200s; want 410", status, raw)
	}
	pages := d.pages(t, k.ID)
	var text strings.Builder
	for i, p := range pages {
		if p.Lossy != (i == 0) {
			t.Errorf("page %d of %d: lossy %t; want it told with the first", i, len(pages), p.Lossy)
		}
		text.WriteString(p.Stdout.Text)
	}
	if s := text.String(); len(s) == 0 || len(s) > limit || strings.ReplaceAll(strings.TrimPrefix(s, "\n"), "y\n", "") != strings.Repeat("y", len(s)%2) {
		t.Errorf("what is left is %d bytes, %.20q…%q", len(s), s, tail(s, 12))
	}
	if slowest > prompt {
		t.Errorf("the daemon took %v to answer meanwhile", slowest)
	}
	if grown := d.memory(t, "VmHWM") - before; grown >= 50<<20 {
		t.Errorf("the daemon grew by %d MB", grown>>20)
	}
}

// A task that prints what it has printed ends all the same: at its file's cap at the latest.
func caseC23(t *testing.T, _ *daemon) {
	const limit = 1 << 20
	d := start(t, fmt.Sprintf("BASHD_MAX_SPILL_BYTES=%d", limit), "BASHD_SANDBOX_MAX_MODE=danger-full-access")
	spill := d.sh(t, "seq 1 20000").Stdout.SpillPath
	dir := filepath.Dir(filepath.Dir(spill))
	if _, err := os.Stat(dir); spill == "" || err != nil {
		t.Fatalf("%q: %v", spill, err)
	}
	for _, mode := range modes {
		for _, command := range []string{
			`for f in '` + dir + `'/*/*; do tail -c 2000 "$f"; done`,
			`echo seed; sleep 0.2; while read -r line; do echo "$line$line"; done <'` + dir + `'/$DSH_TASK_ID/stdout`,
			`echo seed; sleep 0.2; cat '` + dir + `'/$DSH_TASK_ID/stdout`,
		} {
			k := d.task(t, in{"command": command, "sandboxMode": mode})
			end := d.waitTask(t, k.ID)
			if end.Status != "completed" || end.Stdout.Bytes == 0 || end.Stdout.Bytes > 8*limit {
				t.Errorf("%s: %s: %s", mode, command, end.raw)
			}
			if size := d.spilled(t); size > 12*limit { // nine tasks and the run
				t.Errorf("%s: %s: the files have %d bytes", mode, command, size)
			}
		}
	}
}

// spilled sums the sizes of the owners' files in the state directory.
func (d *daemon) spilled(tb testing.TB) (sum int64) {
	tb.Helper()
	err := filepath.WalkDir(filepath.Join(d.state, "owners"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreGone(err)
		}
		st, err := e.Info()
		if err == nil {
			sum += st.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return sum
}

// ignoreGone is for files that are removed while one looks at them.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
