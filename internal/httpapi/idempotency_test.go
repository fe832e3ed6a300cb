package httpapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"bashd/internal/exec"
)

// TestIdempotencyKey: the key and the hash of the bytes that came reach the domain, and nothing else of them.
func TestIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	const body = "{ \"command\":\"id\" }\n"
	longest := strings.Repeat("~", exec.MaxKeyBytes)
	f.do(t, "POST", "/v1/runs", body, "Idempotency-Key: a/!b").wantStatus(t, 200)
	f.do(t, "POST", "/v1/tasks", body, "Idempotency-Key: "+longest).wantStatus(t, 201)
	f.do(t, "POST", "/v1/tasks", body).wantStatus(t, 201)
	want := exec.Key{Name: "a/!b", Body: sha256.Sum256([]byte(body))}
	if got := f.runner.requests()[0].Key; got == nil || *got != want {
		t.Errorf("%+v", got)
	}
	want.Name = longest
	if got := f.runner.startedTasks()[0].Key; got == nil || *got != want {
		t.Errorf("%+v", got)
	}
	if got := f.runner.startedTasks()[1].Key; got != nil {
		t.Errorf("%+v", got)
	}
	if strings.Contains(f.logs.String(), "a/!b") {
		t.Error("the key is in the log")
	}
}

func TestOddIdempotencyKeys(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/v1/runs", "/v1/tasks"} {
		for _, headers := range [][]string{
			{"Idempotency-Key: "},
			{"Idempotency-Key: a b"},
			{"Idempotency-Key: é"},
			{"Idempotency-Key: " + strings.Repeat("x", exec.MaxKeyBytes+1)},
			{"Idempotency-Key: a", "Idempotency-Key: a"},
			{"Idempotency-Key: a\tb"},
		} {
			f.do(t, "POST", path, `{"command":"id"}`, headers...).wantProblem(t, 400, exec.CodeInvalidArgument, "Idempotency-Key")
		}
	}
	f.wantNothingRun(t)
	// Elsewhere it has no meaning and does no harm.
	f.do(t, "GET", "/v1/runs", "", "Idempotency-Key: ").wantStatus(t, 200)
}

// TestReplay: the answer of a replay is the first one, and says what it is.
func TestReplay(t *testing.T) {
	for _, path := range []string{"/v1/runs", "/v1/tasks"} {
		for _, accept := range []string{"application/json", "text/plain"} {
			f := newFixture(t)
			send := func() string {
				a := f.do(t, "POST", path, `{"command":"id"}`, "Idempotency-Key: k", "Accept: "+accept)
				if got, want := a.Header.Get("Idempotency-Replayed"), map[bool]string{true: "true"}[f.runner.replayed]; got != want {
					t.Errorf("%s: Idempotency-Replayed %q, want %q", path, got, want)
				}
				return fmt.Sprint(a.StatusCode, a.Header.Get("Location"), a.Header.Get("Content-Type"), string(a.body))
			}
			first := send()
			f.runner.replayed = true
			if again := send(); again != first {
				t.Errorf("%s: first %s, then %s", path, first, again)
			}
		}
	}
}

// TestYield: a run that became a task is answered as one.
func TestYield(t *testing.T) {
	f := newFixture(t)
	f.runner.run = func(context.Context, exec.Request) (exec.Run, error) {
		r := runningTask()
		r.Yielded, r.Stdout.Bytes = &exec.YieldPoint{Stdout: 3}, 3
		return r, nil
	}
	for _, replayed := range []bool{false, true} {
		f.runner.replayed = replayed
		a := f.do(t, "POST", "/v1/runs", `{"command":"x","yieldAfterMs":1500}`)
		a.wantStatus(t, 202)
		if a.Header.Get("Location") != taskURL || !strings.HasPrefix(string(a.body), `{"task":{"id":"`+sampleID+`","status":"running",`) ||
			!strings.Contains(string(a.body), `"spec":{`) || (a.Header.Get("Idempotency-Replayed") == "true") != replayed {
			t.Errorf("%v %s", a.Header, a.body)
		}
		a = f.do(t, "POST", "/v1/runs", `{"command":"x","yieldAfterMs":1500}`, "Accept: text/plain")
		a.wantStatus(t, 202)
		if a.Header.Get("Location") != taskURL || string(a.body) != "started background task "+sampleID+"\n" || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%v %q", a.Header, a.body)
		}
	}
	if got := f.runner.requests()[0]; got.YieldAfter.Milliseconds() != 1500 {
		t.Errorf("%v", got.YieldAfter)
	}
}

// TestKeyedRunIsAnswered: where the domain lets a run go on without its client, one that only closed its
// sending side gets the answer.
func TestKeyedRunIsAnswered(t *testing.T) {
	f := newFixture(t)
	started, release := make(chan struct{}, 1), make(chan struct{})
	f.runner.run = func(ctx context.Context, r exec.Request) (exec.Run, error) {
		started <- struct{}{}
		if r.Key == nil {
			t.Error("no key")
		}
		<-ctx.Done()
		<-release
		return sampleRun(), nil
	}
	conn := dial(t, f.addr)
	fmt.Fprint(conn, strings.Replace(runRequest, "\r\n\r\n", "\r\nIdempotency-Key: k\r\n\r\n", 1))
	wait(t, "start", started)
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(release)
	readAnswer(t, conn).wantStatus(t, 200)
}
