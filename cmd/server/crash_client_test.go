package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// crashClient is a client that remembers what it was told. It does one thing at a time, so that what it
// sees has one order.
type crashClient struct {
	d         *daemon
	http      *http.Client
	name      string
	identity  []string // its headers
	workspace string
	rnd       *rand.Rand
	tasks     []*crashTask
	runs      []*crashRun
	keyed     []*keyedRequest
	gone      []string // ids of tasks that it has deleted
	number    int      // of what it starts
	answers   atomic.Int64
	counts    crashCounts
}

// crashTask is a task that the client was told of, and what it has seen of it.
type crashTask struct {
	id             string
	stdout, stderr string // all that it would print
	endless        bool   // it does not end by itself
	killed         bool   // the client has asked for that
	deleting       bool   // the client has asked for that, and there was no answer
	final          []byte // the task as it was when it was first seen to be over; nil: not yet
	checked        bool   // by a later daemon
	cursor         string
	at             offsets // where cursor is
	consumed       offsets // up to where consuming reads were answered
	unanswered     bool    // the last consuming read
}

type offsets struct{ stdout, stderr int64 }

// crashRun is a settled run as GET had it.
type crashRun struct {
	id      string
	final   []byte
	checked bool
}

// keyedRequest is a request with an idempotency key.
type keyedRequest struct {
	key, path, body string
	marker          string  // a file, a line for each execution
	first           *answer // the first successful answer; nil: none came
	checked         bool
}

// answer is an answer that came completely.
type answer struct {
	status   int
	replayed bool
	raw      []byte
}

func newCrashClient(t *testing.T, d *daemon, name string, identity []string, rnd *rand.Rand) *crashClient {
	t.Helper()
	c := &crashClient{d: d, http: &http.Client{Transport: &http.Transport{}}, name: name, identity: identity, rnd: rnd, counts: crashCounts{}}
	t.Cleanup(c.http.CloseIdleConnections)
	c.workspace, _ = d.run(t, in{"command": ":"}, identity...).Spec["workspaceRoot"].(string)
	return c
}

// try sends a request. ok is false where no complete answer came, which only the death of the daemon excuses.
func (c *crashClient) try(t *testing.T, killed *atomic.Bool, method, path, body string, headers ...string) (a answer, ok bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.d.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return a, false
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range slices.Concat(c.identity, headers) {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err == nil {
		a.raw, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		if killed == nil || !killed.Load() {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return a, false
	}
	c.answers.Add(1)
	a.status, a.replayed = resp.StatusCode, resp.Header.Get("Idempotency-Replayed") == "true"
	return a, true
}

// expect is try for an answer that must have that status; v, if any, gets what it says.
func (c *crashClient) expect(t *testing.T, killed *atomic.Bool, status int, v any, method, path, body string) (raw []byte, ok bool) {
	t.Helper()
	a, ok := c.try(t, killed, method, path, body)
	if !ok {
		return nil, false
	}
	if a.status != status {
		t.Errorf("%s: %s %s: %d %.500s; want %d", c.name, method, path, a.status, a.raw, status)
		return nil, false
	}
	if v != nil {
		if err := json.Unmarshal(a.raw, v); err != nil {
			t.Errorf("%s: %s %s: %v: %.500s", c.name, method, path, err, a.raw)
			return nil, false
		}
	}
	return a.raw, true
}

// step does one thing, chosen at random.
func (c *crashClient) step(t *testing.T, killed *atomic.Bool) {
	t.Helper()
	k := c.aTask()
	switch n := c.rnd.IntN(40); {
	case n < 5 || k == nil:
		c.start(t, killed)
	case n < 8:
		c.startRun(t, killed)
	case n < 12:
		c.startKeyed(t, killed)
	case n < 13:
		c.repeatKeyed(t, killed)
	case n < 22:
		c.readOn(t, killed, k, c.rnd.IntN(30))
	case n < 30:
		c.consume(t, killed, k)
	case n < 33:
		c.observe(t, killed, k, fmt.Sprintf("/wait?timeoutMs=%d", 1+c.rnd.IntN(40)))
	case n < 35:
		c.observe(t, killed, k, "")
	case n < 37:
		c.stream(t, killed, k)
	case n < 39:
		c.kill(t, killed, k)
	default:
		c.remove(t, killed)
	}
}

// aTask is one of the client's latest tasks, nil without any.
func (c *crashClient) aTask() *crashTask {
	if len(c.tasks) == 0 {
		return nil
	}
	return c.tasks[len(c.tasks)-1-c.rnd.IntN(min(4, len(c.tasks)))]
}

// printer makes the request for a command that prints numbered lines on both streams, and the task that
// it would be.
func (c *crashClient) printer() (in, *crashTask) {
	c.number++
	k := &crashTask{endless: c.rnd.IntN(3) == 0}
	lines := []int{10, 20, 200, 4000}[c.rnd.IntN(4)]
	body := in{"sandboxMode": modes[c.rnd.IntN(2)]}
	text := fmt.Sprintf("%s-%d plain", c.name, c.number)
	if c.rnd.IntN(2) == 0 {
		// Bytes are compared as such: where a character was cut, its text has a replacement.
		text, body["outputEncoding"] = fmt.Sprintf("%s-%d é€𝄞", c.name, c.number), "base64"
	}
	pause, end := "", ""
	if c.rnd.IntN(2) == 0 && lines <= 200 {
		pause = "sleep 0.005"
	}
	if k.endless {
		end = "sleep 600"
	}
	body["command"] = fmt.Sprintf("for ((i = 0; i < %d; i++)); do\nprintf '%s %%06d\\n' $i\n((i %% 10)) || printf '%s err %%06d\\n' $i >&2\n%s\ndone\n%s",
		lines, text, text, pause, end)
	var out, errs strings.Builder
	for i := range lines {
		fmt.Fprintf(&out, "%s %06d\n", text, i)
		if i%10 == 0 {
			fmt.Fprintf(&errs, "%s err %06d\n", text, i)
		}
	}
	k.stdout, k.stderr = out.String(), errs.String()
	return body, k
}

// start starts a task.
func (c *crashClient) start(t *testing.T, killed *atomic.Bool) {
	t.Helper()
	body, k := c.printer()
	a, ok := c.try(t, killed, "POST", "/v1/tasks", mustJSON(t, body))
	switch {
	case !ok:
	case a.status == http.StatusCreated:
		c.adopt(k, a.raw)
	case a.status != http.StatusTooManyRequests:
		t.Errorf("%s: POST /v1/tasks: %d %s", c.name, a.status, a.raw)
	}
}

// adopt takes a task that the client was just told of among those that must never be lost.
func (c *crashClient) adopt(k *crashTask, raw []byte) {
	k.id = idIn(raw)
	c.tasks = append(c.tasks, k)
}

// startRun posts a run, which may become a task.
func (c *crashClient) startRun(t *testing.T, killed *atomic.Bool) {
	t.Helper()
	body, k := c.printer()
	body["yieldAfterMs"], body["timeoutMs"] = 1+c.rnd.IntN(60), 300
	a, ok := c.try(t, killed, "POST", "/v1/runs", mustJSON(t, body))
	switch {
	case !ok:
	case a.status == http.StatusAccepted:
		c.counts[yielded]++
		c.adopt(k, a.raw)
	case a.status == http.StatusOK:
		c.rememberRun(t, killed, idIn(a.raw))
	case a.status != http.StatusTooManyRequests:
		t.Errorf("%s: POST /v1/runs: %d %s", c.name, a.status, a.raw)
	}
}

// rememberRun remembers a run that was answered: it must be found, though by this daemon maybe not any more.
func (c *crashClient) rememberRun(t *testing.T, killed *atomic.Bool, id string) {
	t.Helper()
	r := &crashRun{id: id}
	c.runs = append(c.runs, r)
	r.final, _ = c.expect(t, killed, http.StatusOK, nil, "GET", "/v1/runs/"+id, "")
}

// startKeyed posts something new with an idempotency key.
func (c *crashClient) startKeyed(t *testing.T, killed *atomic.Bool) {
	t.Helper()
	c.number++
	marker := fmt.Sprintf("once-%s-%d", c.name, c.number)
	body := in{"sandboxMode": "workspace-write", "command": "echo x >>" + marker + "; echo done"}
	k := &keyedRequest{key: marker, path: "/v1/runs", marker: c.workspace + "/" + marker}
	switch c.rnd.IntN(3) {
	case 0:
		k.path = "/v1/tasks"
	case 1:
		body["command"] = "echo x >>" + marker + "; sleep 0.1; echo done"
		body["yieldAfterMs"] = 1 + c.rnd.IntN(200)
	}
	k.body = mustJSON(t, body)
	c.keyed = append(c.keyed, k)
	c.send(t, killed, k)
}

// repeatKeyed repeats a request that was answered.
func (c *crashClient) repeatKeyed(t *testing.T, killed *atomic.Bool) {
	t.Helper()
	if len(c.keyed) == 0 {
		return
	}
	if k := c.keyed[c.rnd.IntN(len(c.keyed))]; k.first != nil {
		c.send(t, killed, k)
	}
}

// send sends a request with a key. Once it was answered the answer must stay, and whether it was or not, nothing may
// be executed twice.
func (c *crashClient) send(t *testing.T, killed *atomic.Bool, k *keyedRequest) {
	t.Helper()
	a, ok := c.try(t, killed, "POST", k.path, k.body, "Idempotency-Key: "+k.key)
	if n := strings.Count(content(k.marker), "\n"); n > 1 {
		t.Errorf("%s: %s was executed %d times", c.name, k.key, n)
	}
	switch {
	case !ok || a.status == http.StatusTooManyRequests:
		return
	case a.status >= 300:
		t.Errorf("%s: POST %s with key %s: %d %s", c.name, k.path, k.key, a.status, a.raw)
	case k.first == nil:
		k.first = &a
		if a.replayed {
			c.counts[answeredLate]++
		}
	case !a.replayed || a.status != k.first.status || !bytes.Equal(a.raw, k.first.raw):
		t.Errorf("%s: POST %s with key %s a second time: replayed %t, %d %s; the first answer was %d %s", c.name, k.path, k.key, a.replayed, a.status, a.raw, k.first.status, k.first.raw)
	default:
		c.counts[replayed]++
	}
}

// readOn reads on from the client's cursor.
func (c *crashClient) readOn(t *testing.T, killed *atomic.Bool, k *crashTask, waitMs int) (p page, ok bool) {
	t.Helper()
	if _, ok := c.expect(t, killed, http.StatusOK, &p, "GET", outputPath(k.id, k.cursor, waitMs), ""); !ok {
		return p, false
	}
	if p.Lossy || p.Stdout.From != k.at.stdout || p.Stderr.From != k.at.stderr {
		t.Errorf("%s: %s: the page after %+v begins at %d and %d, lossy %t", c.name, k.id, k.at, p.Stdout.From, p.Stderr.From, p.Lossy)
	}
	k.holds(t, p)
	k.cursor, k.at = p.NextCursor, offsets{p.Stdout.To, p.Stderr.To}
	return p, true
}

// consume reads what no such read has delivered yet.
func (c *crashClient) consume(t *testing.T, killed *atomic.Bool, k *crashTask) (p page, ok bool) {
	t.Helper()
	before := k.unanswered
	k.unanswered = true
	if _, ok := c.expect(t, killed, http.StatusOK, &p, "POST", "/v1/tasks/"+k.id+"/read", ""); !ok {
		return p, false
	}
	k.unanswered = false
	from := offsets{p.Stdout.From, p.Stderr.From}
	switch {
	case from.stdout < k.consumed.stdout || from.stderr < k.consumed.stderr:
		t.Errorf("%s: %s: a consuming read delivers from %+v again; %+v was consumed", c.name, k.id, from, k.consumed)
	case from != k.consumed && !p.Lossy && !before:
		t.Errorf("%s: %s: a consuming read skips from %+v to %+v and does not say so", c.name, k.id, k.consumed, from)
	case from != k.consumed && !p.Lossy:
		c.counts[skipped]++
	}
	k.holds(t, p)
	k.consumed = offsets{p.Stdout.To, p.Stderr.To}
	return p, true
}

// holds checks that the page has what the task prints at its offsets.
func (k *crashTask) holds(t *testing.T, p page) {
	t.Helper()
	k.prints(t, "stdout", k.stdout, p.Stdout)
	k.prints(t, "stderr", k.stderr, p.Stderr)
	if p.EOF && (!p.Task.over() || p.More || p.Stdout.To != p.Task.Stdout.Bytes || p.Stderr.To != p.Task.Stderr.Bytes) {
		t.Errorf("%s: eof at %d and %d of %s", k.id, p.Stdout.To, p.Stderr.To, p.Task.raw)
	}
}

func (k *crashTask) prints(t *testing.T, name, whole string, p piece) {
	t.Helper()
	got := p.Text + string(p.DataBase64)
	if p.From < 0 || p.To < p.From || p.To > int64(len(whole)) || got != whole[p.From:p.To] {
		t.Errorf("%s: %s from %d to %d of %d bytes is %.200q", k.id, name, p.From, p.To, len(whole), got)
	}
}

// observe looks at a task as a whole, which never changes once it is over.
func (c *crashClient) observe(t *testing.T, killed *atomic.Bool, k *crashTask, how string) (now task, ok bool) {
	t.Helper()
	raw, ok := c.expect(t, killed, http.StatusOK, &now, "GET", "/v1/tasks/"+k.id+how, "")
	if !ok {
		return now, false
	}
	switch {
	case k.final != nil && !bytes.Equal(raw, k.final):
		t.Errorf("%s: %s was %s and is now %s", c.name, k.id, k.final, raw)
	case now.over() && k.final == nil:
		k.final = raw
	}
	return now, true
}

// stream downloads both streams, as far as they go.
func (c *crashClient) stream(t *testing.T, killed *atomic.Bool, k *crashTask) (size offsets, ok bool) {
	t.Helper()
	for _, s := range []struct {
		name, whole string
		size        *int64
	}{{"stdout", k.stdout, &size.stdout}, {"stderr", k.stderr, &size.stderr}} {
		raw, ok := c.expect(t, killed, http.StatusOK, nil, "GET", "/v1/tasks/"+k.id+"/streams/"+s.name, "")
		if !ok {
			return size, false
		}
		if !strings.HasPrefix(s.whole, string(raw)) {
			t.Errorf("%s: %s of %s holds what was not printed: %.200q", c.name, s.name, k.id, raw)
		}
		*s.size = int64(len(raw))
	}
	if size.stdout < max(k.at.stdout, k.consumed.stdout) || size.stderr < max(k.at.stderr, k.consumed.stderr) {
		t.Errorf("%s: %s: of its output %+v is left; read was up to %+v, consumed up to %+v", c.name, k.id, size, k.at, k.consumed)
	}
	return size, true
}

func (c *crashClient) kill(t *testing.T, killed *atomic.Bool, k *crashTask) {
	t.Helper()
	k.killed = true
	c.expect(t, killed, http.StatusAccepted, nil, "POST", "/v1/tasks/"+k.id+"/kill", "")
}

// remove deletes a task that is over.
func (c *crashClient) remove(t *testing.T, killed *atomic.Bool) {
	t.Helper()
	at := c.rnd.IntN(len(c.tasks))
	k := c.tasks[at]
	if k.final == nil || k.deleting {
		return
	}
	k.deleting = true
	if _, ok := c.expect(t, killed, http.StatusNoContent, nil, "DELETE", "/v1/tasks/"+k.id, ""); ok {
		c.forget(k)
	}
}

func (c *crashClient) forget(k *crashTask) {
	c.counts[deleted]++
	c.gone = append(c.gone, k.id)
	c.tasks = slices.DeleteFunc(c.tasks, func(other *crashTask) bool { return other == k })
}

// finds reports that there is a run or a task of that id.
func (c *crashClient) finds(id string) bool {
	for _, kind := range []string{"tasks", "runs"} {
		req, err := http.NewRequest("GET", c.d.url+"/v1/"+kind+"/"+id, nil)
		if err != nil {
			return false
		}
		for _, h := range c.identity {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return true
		}
	}
	return false
}
