package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"bashd/internal/exec"
)

// deadlineWriter remembers the write deadlines that it was given.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

// TestWritingIsBounded: a client that does not read cannot hold an answer in memory for
// ever, a large answer gets more time, and the next request of the connection starts without a bound.
func TestWritingIsBounded(t *testing.T) {
	for size, want := range map[int]time.Duration{100: writeTimeout, 50 << 20: writeTimeout + 50*time.Second} {
		w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		writeBody(w, http.StatusOK, "text/plain", make([]byte, size))
		if len(w.deadlines) != 1 {
			t.Fatalf("deadlines: %v", w.deadlines)
		}
		if got := time.Until(w.deadlines[0]); got > want || got < want-10*time.Second {
			t.Errorf("%d bytes have %v, want %v", size, got, want)
		}
	}
	f := newFixture(t)
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	f.Server.observe(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if len(w.deadlines) != 1 || !w.deadlines[0].IsZero() {
		t.Errorf("at the start of a request: %v", w.deadlines)
	}
}

// TestLargeAnswersWait: no more than a few large answers are encoded at once; small ones do not wait, and
// a client that is gone is not waited for.
func TestLargeAnswersWait(t *testing.T) {
	f := newFixture(t)
	for range largeAnswers {
		f.Server.largeAnswers <- struct{}{}
	}
	// A client that may be gone is not waited for, and gets no empty answer.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	cut := func() (aborted bool) {
		defer func() { aborted = recover() == http.ErrAbortHandler }()
		run := exec.Run{Stdout: exec.Stream{Tail: make([]byte, largeAnswer+1)}}
		f.Server.asRun(http.StatusOK, run, wholeRun)(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/", nil))
		return false
	}
	if !cut() {
		t.Error("the connection was not cut")
	}
	answer := func(size int) chan int {
		done := make(chan int, 1)
		run := exec.Run{Stdout: exec.Stream{Tail: make([]byte, size)}}
		go func() {
			w := httptest.NewRecorder()
			f.Server.asRun(http.StatusOK, run, wholeRun)(w, httptest.NewRequest("GET", "/", nil))
			done <- w.Body.Len()
		}()
		return done
	}
	if n := <-answer(largeAnswer); n == 0 {
		t.Error("the small answer is empty")
	}
	large := answer(largeAnswer + 1)
	select {
	case <-large:
		t.Error("one large answer too many was encoded")
	case <-time.After(50 * time.Millisecond):
	}
	<-f.Server.largeAnswers
	if n := <-large; n < largeAnswer {
		t.Errorf("the large answer has %d bytes", n)
	}
	for range largeAnswers - 1 {
		<-f.Server.largeAnswers
	}
	// With a place it is answered whenever it asks: it may have closed its sending side only.
	for range 50 {
		f.Server.largeAnswerPlace(gone)()
	}
	if cut() {
		t.Error("the connection was cut though there is a place")
	}
	if n := len(f.Server.largeAnswers); n > 0 {
		t.Errorf("%d places are still taken", n)
	}
}
