package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// TestCasesH is about HTTP: clients that go away, and requests that are wrong
// or hostile, none of which run anything.
func TestCasesH(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.needsSandbox(t)
	d.inParallel(t, []namedCase{
		{"H01", caseH01},
		{"H02", caseH02},
		{"H03", caseH03},
		{"H04", caseH04},
		{"H05", caseH05},
		{"H05 slow header", caseH05SlowHeader},
		{"H07", caseH07},
		{"H08", caseH08},
	})
}

// caseH01 ends a run's connection in three ways; each aborts it.
func caseH01(t *testing.T, d *daemon) {
	for name, leave := range map[string]func(*net.TCPConn){
		"closed":      func(c *net.TCPConn) { c.Close() },
		"half-closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":       func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := fmt.Sprintf("echo $$ >pid-%[1]s; export H01=%[1]s; sleep 6101 & setsid sleep 6101 & sleep 6101", name)
			c := d.dial(t)
			c.post(t, in{"command": command, "sandboxMode": "workspace-write"})
			pid := filepath.Join(d.shared(), "pid-"+name)
			var tree string
			d.await(t, "the command runs", func() bool {
				tree = strings.TrimSpace(content(pid))
				return tree != ""
			})
			id := d.idOf(t, command)
			leave(c.TCPConn)
			left := time.Now()
			r := d.settled(t, id)
			if took := time.Since(left); took > 3*3*time.Second {
				t.Errorf("gone after %v", took)
			}
			if !r.Aborted || r.TimedOut || r.Cause != "disconnect" || r.Status != "killed" {
				t.Errorf("recorded as %s", r.raw)
			}
			if alive := processes(func(p proc) bool { return strings.Contains("\x00"+p.environ, "\x00H01="+name+"\x00") }); len(alive) > 0 {
				t.Errorf("left: %q", alive)
			}
			if name == "half-closed" { // it can still read what became of its run
				if resp, body := c.answer(t); resp.StatusCode != 200 || !bytes.Contains(body, []byte(`"aborted":true`)) {
					t.Errorf("answered %d %s", resp.StatusCode, body)
				}
			}
		})
	}
	t.Cleanup(func() { d.noneAlive(t, "sleep 6101") })
}

// idOf is the id of the run of that command.
func (d *daemon) idOf(tb testing.TB, command string) (id string) {
	tb.Helper()
	d.await(tb, "the run is listed", func() bool {
		for _, r := range d.list(tb) {
			if r.Command == command {
				id = r.ID
			}
		}
		return id != ""
	})
	return id
}

// rawConn is a connection on which a test says what no HTTP client would.
type rawConn struct {
	*net.TCPConn
	host string
	r    *bufio.Reader
}

func (d *daemon) dial(tb testing.TB) *rawConn {
	tb.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return &rawConn{c.(*net.TCPConn), d.addr, bufio.NewReader(c)}
}

// send writes a request whose header is lines and Host.
func (c *rawConn) send(tb testing.TB, line, body string, headers ...string) {
	tb.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s HTTP/1.1\r\nHost: %s\r\n", line, c.host)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(c, b.String()); err != nil {
		tb.Fatal(err)
	}
}

func (c *rawConn) post(tb testing.TB, body in, headers ...string) {
	tb.Helper()
	text := mustJSON(tb, body)
	c.send(tb, "POST /v1/runs", text, append(headers, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(text)))...)
}

func (c *rawConn) answer(tb testing.TB) (*http.Response, []byte) {
	tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp, body
}

// caseH02: somebody who waits for a task, and goes, has no effect on it or on others who wait.
func caseH02(t *testing.T, d *daemon) {
	k := d.task(t, in{"command": "read -r; echo end", "stdinOpen": true})
	stays := make(chan answered, 1)
	go func() { stays <- d.exchange(t, "GET", outputPath(k.ID, "", 60000), nil) }()
	for name, leave := range map[string]func(*net.TCPConn){
		"closed":      func(c *net.TCPConn) { c.Close() },
		"half-closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":       func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
	} {
		for _, path := range []string{"/v1/tasks/" + k.ID + "/wait?timeoutMs=60000", outputPath(k.ID, "", 60000)} {
			c := d.dial(t)
			c.send(t, "GET "+path, "")
			time.Sleep(200 * time.Millisecond) // in which it begins to wait
			leave(c.TCPConn)
			if name != "half-closed" {
				continue
			}
			began := time.Now()
			if resp, body := c.answer(t); resp.StatusCode != 200 || !bytes.Contains(body, []byte(`"running"`)) || time.Since(began) > prompt {
				t.Errorf("%s: answered %d %s after %v", path, resp.StatusCode, body, time.Since(began))
			}
		}
	}
	if at := d.getTask(t, k.ID); at.Status != "running" {
		t.Errorf("%s; want it running still", at.raw)
	}
	d.goOn(t, k.ID)
	d.waitTask(t, k.ID).exited(t, 0)
	d.read(t, k.ID).delivered(t, "end\n", "")
	var p page
	if a := <-stays; json.Unmarshal(a.raw, &p) != nil || p.Delta != "end\n" {
		t.Errorf("the one that waited got %s", a.raw)
	}
}

func caseH03(t *testing.T, d *daemon) {
	marker := filepath.Join(subdir(t, d, "h03"), "ran")
	for _, field := range []string{"timeout_ms", "sandboxmode", "Command", "commandx", "cwd", "TimeoutMs"} {
		p := d.refused(t, in{"command": "touch " + marker, "sandboxMode": "workspace-write", field: 100}, 400, "INVALID_ARGUMENT")
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%+v; want %s named", p, field)
		}
	}
	for _, field := range []string{"timeout_ms", "sandboxmode", "run_in_background", "yieldAfterMs"} {
		p := d.refusedTask(t, in{"command": "touch " + marker, "sandboxMode": "workspace-write", field: 100}, 400, "INVALID_ARGUMENT")
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%+v; want %s named", p, field)
		}
	}
	if status, raw := d.request(t, "GET", "/v1/runs?Limit=1", ""); status != 400 || !bytes.Contains(raw, []byte("Limit")) {
		t.Errorf("an unknown query parameter: %d %s", status, raw)
	}
	if exists(marker) {
		t.Error("something ran")
	}
}

func caseH04(t *testing.T, d *daemon) {
	marker := filepath.Join(subdir(t, d, "h04"), "ran")
	touch := fmt.Sprintf(`"command":"touch %s","sandboxMode":"workspace-write"`, marker)
	wide := utf16.Encode([]rune("{" + touch + "}"))
	var inUTF16 strings.Builder
	inUTF16.WriteString("\xff\xfe")
	for _, u := range wide {
		inUTF16.WriteByte(byte(u))
		inUTF16.WriteByte(byte(u >> 8))
	}
	for name, body := range map[string]string{
		"blank": " ", "array": "[]", "cut": "{", "null": "null", "string": `"touch"`, "number": `{"command":5}`, "null command": `{"command":null}`,
		"no command": `{}`, "array of commands": `{"command":["touch"]}`,
		"duplicate":   "{" + touch + `,"command":"true"}`,
		"escaped key": "{" + touch + `,"\u0063ommand":"true"}`,
		"trailing":    "{" + touch + "} x", "two": "{" + touch + "}{" + touch + "}", "trailing comma": "{" + touch + ",}",
		"UTF-16": inUTF16.String(), "BOM": "\ufeff{" + touch + "}", "0xff": strings.Replace("{"+touch+"}", "touch ", "touch \xff", 1),
		"lone surrogate": strings.Replace("{"+touch+"}", `","sand`, `\ud800","sand`, 1),
		"infinity":       "{" + touch + `,"timeoutMs":Infinity}`, "deep": "{" + touch + `,"env":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + "}",
	} {
		status, raw := d.request(t, "POST", "/v1/runs", body)
		if status != 400 || !bytes.Contains(raw, []byte(`"INVALID_ARGUMENT"`)) {
			t.Errorf("%s: %d %.300s; want 400", name, status, raw)
		}
	}
	if status, raw := d.request(t, "POST", "/v1/runs", "", "Content-Type: application/json"); status != 400 {
		t.Errorf("no body: %d %s; want 400", status, raw)
	}
	good := "{" + touch + "}"
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json; charset=utf-16", "garbage/"} {
		if status, raw := d.request(t, "POST", "/v1/runs", good, "Content-Type: "+kind); status != 415 {
			t.Errorf("%s: %d %s; want 415", kind, status, raw)
		}
	}
	if status, _ := d.request(t, "POST", "/v1/runs", good, "Content-Encoding: gzip"); status != 415 {
		t.Errorf("Content-Encoding: %d; want 415", status)
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"} {
		if status, raw := d.request(t, method, "/v1/runs", good); status != 405 {
			t.Errorf("%s: %d %s; want 405", method, status, raw)
		}
	}
	if exists(marker) {
		t.Error("something ran")
	}
}

// caseH05 sends bodies far beyond the limit. They are refused early, and not kept.
func caseH05(t *testing.T, _ *daemon) {
	d := start(t) // of its own, for its memory to be of this case
	const size = 200 << 20
	before := d.rss(t)
	c := d.dial(t)
	c.send(t, "POST /v1/runs", "", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", size))
	if resp, body := c.answer(t); resp.StatusCode != 413 || !bytes.Contains(body, []byte(`"BODY_TOO_LARGE"`)) {
		t.Errorf("declared: %d %s; want 413", resp.StatusCode, body)
	}
	for range 3 {
		c := d.dial(t)
		c.send(t, "POST /v1/runs", "", "Content-Type: application/json", "Transfer-Encoding: chunked")
		sent := make(chan int64, 1)
		go func() { sent <- sendChunks(c, size) }()
		if resp, body := c.answer(t); resp.StatusCode != 413 || !bytes.Contains(body, []byte(`"BODY_TOO_LARGE"`)) {
			t.Errorf("chunked: %d %s; want 413", resp.StatusCode, body)
		}
		c.Close()
		if n := <-sent; n > size/2 {
			t.Errorf("%d bytes were taken before the refusal was clear", n)
		}
	}
	// 8 MiB may be held, which the race detector multiplies; not one of the bodies.
	if grown := d.rss(t) - before; grown > size {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

// sendChunks sends a string in JSON that does not end before size, and returns how
// far it came.
func sendChunks(w io.Writer, size int64) (sent int64) {
	const chunk = 64 << 10
	payload := strings.Repeat("x", chunk)
	for lead := `{"command":"`; sent < size; lead = "" {
		n, err := fmt.Fprintf(w, "%x\r\n%s%s\r\n", len(lead)+chunk, lead, payload)
		sent += int64(n)
		if err != nil {
			break
		}
	}
	return sent
}

// caseH05SlowHeader sends a header that never ends.
func caseH05SlowHeader(t *testing.T, d *daemon) {
	c := d.dial(t)
	began := time.Now()
	if _, err := io.WriteString(c, "POST /v1/runs HTTP/1.1\r\nHost: "+d.addr+"\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	go func() { // a byte now and then does not prolong it
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			if _, err := io.WriteString(c, "x"); err != nil {
				return
			}
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Second))
	n, err := c.Read(make([]byte, 4096))
	for err == nil {
		n, err = c.Read(make([]byte, 4096))
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("closed after %v (%d, %v); want about 10 s", took, n, err)
	}
	d.sh(t, "echo ok").printed(t, "ok\n", "")
}

// caseH07 is what a web page, or a name that was rebound to this host, can send.
func caseH07(t *testing.T, d *daemon) {
	marker := filepath.Join(subdir(t, d, "h07"), "ran")
	body := in{"command": "touch " + marker, "sandboxMode": "workspace-write"}
	_, port, _ := net.SplitHostPort(d.addr)
	for _, header := range []string{
		"Origin: https://evil.example", "Origin: null", "Origin: http://127.0.0.1", "Origin: http://localhost:1",
		"Host: evil.example", "Host: evil.example:" + port, "Host: 127.0.0.1.evil.example", "Host: localhost.evil.example", "Host: 0.0.0.0",
		"X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "Via: 1.1 proxy", "X-Forwarded-Host: localhost",
	} {
		d.refused(t, body, 403, "FORBIDDEN", header)
	}
	d.refused(t, body, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type: text/plain")
	d.refused(t, body, 403, "FORBIDDEN", "Content-Type: text/plain", "Origin: https://evil.example")
	if exists(marker) {
		t.Error("something ran")
	}
	for _, header := range []string{"Origin: http://" + d.addr, "Host: localhost:" + port, "Host: 127.0.0.1", "Host: [::1]:" + port} {
		d.run(t, in{"command": "true"}, header).exited(t, 0)
	}
}

// caseH08: what cannot be started leaves nothing, not even an id.
func caseH08(t *testing.T, _ *daemon) {
	d := start(t)
	marker := filepath.Join(subdir(t, d, "h08"), "ran")
	for _, c := range []struct {
		field  string
		value  any
		status int
		code   string
	}{
		{"workdir", d.out + "/nope", 422, "WORKDIR_UNUSABLE"},
		{"workdir", "/etc/hostname", 422, "WORKDIR_UNUSABLE"},
		{"sandboxMode", "none", 400, "INVALID_ARGUMENT"},
		{"sandboxMode", "danger-full-access", 403, "MODE_NOT_ALLOWED"},
		{"command", " ", 400, "INVALID_ARGUMENT"},
		{"timeoutMs", 0, 400, "INVALID_ARGUMENT"},
		{"env", in{"1A": "x"}, 400, "INVALID_ARGUMENT"},
	} {
		body := in{"command": "touch " + marker, "sandboxMode": "workspace-write"}
		body[c.field] = c.value
		d.refusedTask(t, body, c.status, c.code)
		d.refusedTask(t, body, c.status, c.code, "Idempotency-Key: h08-"+c.field) // no answer that a key would keep
	}
	if list := d.listTasks(t); len(list) != 0 || exists(marker) {
		t.Errorf("%d tasks are left; something ran: %t", len(list), exists(marker))
	}
	if n := d.counted(t, "bashd_runs_total"); n != 0 {
		t.Errorf("bashd_runs_total is %v; want 0", n)
	}
	// Nothing of it counts against the limit of 10.
	var ids []string
	for range 10 {
		ids = append(ids, d.task(t, in{"command": "sleep 6108"}).ID)
	}
	d.refusedTask(t, in{"command": "true"}, 429, "LIMIT_REACHED")
	for _, id := range ids {
		d.killTask(t, id)
	}
}
