package httpapi

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
)

// TestSlowBody: a body that never ends is given up, with an answer.
func TestSlowBody(t *testing.T) {
	f := newTunedFixture(t, func(s *Server) { s.bodyTimeout = 100 * time.Millisecond })
	for name, head := range map[string]string{
		"with a length": "Content-Length: 100\r\n\r\n{",
		"chunked":       "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, f.addr)
			fmt.Fprint(c, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+head)
			a := readAnswer(t, c)
			a.wantProblem(t, 400, exec.CodeInvalidArgument, "body")
			if !a.Close || !strings.Contains(string(a.body), "did not arrive") {
				t.Errorf("close %v: %s", a.Close, a.body)
			}
		})
	}
	f.wantNothingRun(t)
}

// TestDeadlineIsLifted: it bounds the body, not the run nor the next request.
func TestDeadlineIsLifted(t *testing.T) {
	f := newTunedFixture(t, func(s *Server) { s.bodyTimeout = 100 * time.Millisecond })
	c := dial(t, f.addr)
	for range 2 {
		fmt.Fprint(c, runRequest)
		readAnswer(t, c).wantStatus(t, 200)
		time.Sleep(200 * time.Millisecond)
	}
	started, gone := blockingRun(f)
	fmt.Fprint(c, runRequest)
	wait(t, "start", started)
	select {
	case <-gone:
		t.Error("the deadline aborted the run")
	case <-time.After(300 * time.Millisecond):
	}
	c.Close()
	wait(t, "abort", gone)
}

func TestBodyCutShort(t *testing.T) {
	f := newFixture(t)
	for name, head := range map[string]string{
		"length":  "Content-Length: 100\r\n\r\n{",
		"chunked": "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, f.addr)
			fmt.Fprint(c, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+head)
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			readAnswer(t, c).wantProblem(t, 400, exec.CodeInvalidArgument, "body")
		})
	}
	f.wantNothingRun(t)
}

// TestLargeBodiesTakeTurns: small requests pass while large bodies fill all
// places; another large one waits, and is refused in the end.
func TestLargeBodiesTakeTurns(t *testing.T) {
	f := newTunedFixture(t, func(s *Server) { s.placeTimeout = 50 * time.Millisecond })
	part := `{"command":"id","stdin":"` + strings.Repeat("x", smallBody)
	conns := make([]net.Conn, largeBodies)
	for i := range conns {
		conns[i] = dial(t, f.addr)
		fmt.Fprintf(conns[i], "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(part)+2, part)
	}
	eventually(t, "all places taken", func() bool { return len(f.largeBodies) == largeBodies })
	f.do(t, "POST", "/v1/runs", `{"command":"id"}`).wantStatus(t, 200)
	f.do(t, "POST", "/v1/runs", part+`"}`).wantProblem(t, 429, exec.CodeLimitReached)

	for _, c := range conns {
		fmt.Fprint(c, `"}`)
		readAnswer(t, c).wantStatus(t, 200)
	}
	eventually(t, "all places given back", func() bool { return len(f.largeBodies) == 0 })
	f.do(t, "POST", "/v1/runs", part+`"}`).wantStatus(t, 200)
}

// TestIdleLargeDeclaration: memory follows what arrives, not what is announced.
func TestIdleLargeDeclaration(t *testing.T) {
	f := newFixture(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const clients = 20
	for range clients {
		fmt.Fprintf(dial(t, f.addr), "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 8<<20)
	}
	f.do(t, "GET", "/healthz", "").wantStatus(t, 200)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > clients*(1<<20) {
		t.Errorf("%d bytes were allocated", grown)
	}
}

func TestBodyWithoutTypeOrLength(t *testing.T) {
	f := newFixture(t)
	chunked := func(body string) answer {
		r := f.request(t, "POST", "/v1/runs/"+sampleID+"/kill", "")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		return f.send(t, r)
	}
	chunked("").wantProblem(t, 404, exec.CodeNotFound)
	chunked("{}").wantProblem(t, 415, codeUnsupportedMediaType)
}
