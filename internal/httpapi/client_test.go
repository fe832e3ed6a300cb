package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"bashd/internal/exec"
)

const runRequest = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n" + `{"command":"id"}`

// blockingRun makes runs last until their caller goes away, and tells of both.
func blockingRun(f *fixture) (started, gone chan struct{}) {
	started, gone = make(chan struct{}, 1), make(chan struct{}, 1)
	f.runner.run = func(ctx context.Context, _ exec.Request) (exec.Run, error) {
		started <- struct{}{}
		r := sampleRun()
		select {
		case <-ctx.Done():
			gone <- struct{}{}
			r.Cause = exec.CauseDisconnect
		case <-time.After(20 * time.Second):
		}
		return r, nil
	}
	return started, gone
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: not within 10 s", what)
	}
}

// TestClientGoesAway: however a client leaves, its run ends.
func TestClientGoesAway(t *testing.T) {
	for _, c := range []struct {
		name  string
		extra string // sent once the command runs
		leave func(*net.TCPConn) error
	}{
		{"closes", "", (*net.TCPConn).Close},
		{"closes its sending side", "", (*net.TCPConn).CloseWrite},
		{"resets", "", func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }},
		{"stray newline, then closes", "\r\n", (*net.TCPConn).Close},
		{"pipelines, then closes", runRequest, (*net.TCPConn).Close},
		{"pipelines, then closes its sending side", runRequest, (*net.TCPConn).CloseWrite},
		{"pipelines, then resets", runRequest, func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			started, gone := blockingRun(f)
			conn := dial(t, f.addr)
			fmt.Fprint(conn, runRequest)
			wait(t, "start", started)
			fmt.Fprint(conn, c.extra)
			if c.extra != "" {
				time.Sleep(100 * time.Millisecond) // so that it arrives by itself
			}
			select {
			case <-gone:
				t.Fatal("aborted while the client is there")
			default:
			}
			if err := c.leave(conn); err != nil {
				t.Fatal(err)
			}
			wait(t, "abort", gone)
		})
	}
}

// TestClientStays: bytes behind the body are no reason to abort a run.
func TestClientStays(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	f.runner.run = func(ctx context.Context, _ exec.Request) (exec.Run, error) {
		select {
		case <-release:
		case <-ctx.Done():
			t.Error("aborted")
		}
		return sampleRun(), nil
	}
	conn := dial(t, f.addr)
	fmt.Fprint(conn, runRequest)
	fmt.Fprint(conn, runRequest)
	time.Sleep(10 * f.clientPoll)
	close(release)
	readAnswer(t, conn).wantStatus(t, 200)
	eventually(t, "both requests run", func() bool { return len(f.runner.requests()) == 2 })
}

// TestHalfClosedClientGetsTheAnswer: it learns that its run was aborted.
func TestHalfClosedClientGetsTheAnswer(t *testing.T) {
	f := newFixture(t)
	started, _ := blockingRun(f)
	conn := dial(t, f.addr)
	fmt.Fprint(conn, runRequest)
	wait(t, "start", started)
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	a := readAnswer(t, conn)
	a.wantStatus(t, 200)
	if !bytes.Contains(a.body, []byte(`"aborted":true`)) {
		t.Errorf("%s", a.body)
	}
}

func TestHTTP2ClientGoesAway(t *testing.T) {
	f := newFixture(t)
	started, gone := blockingRun(f)
	useHTTP2(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	r := f.request(t, "POST", "/v1/runs", `{"command":"id"}`).WithContext(ctx)
	go func() {
		defer close(done)
		if resp, err := f.client.Do(r); err == nil {
			resp.Body.Close()
			t.Error("answered")
		}
	}()
	wait(t, "start", started)
	cancel()
	wait(t, "abort", gone)
	<-done
}
