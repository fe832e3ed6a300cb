package httpapi

import (
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
}
