package exec

import (
	"testing"

	"bashd/internal/output"
)

// TestNewsSinceThePage: what is printed between a look and the wait that follows it is news, however little it is.
func TestNewsSinceThePage(t *testing.T) {
	log := output.New(output.Options{TailBytes: 100})
	log.Append([]byte("\xc3"))
	empty := readPiece(log, 0, span{0, 1})
	if ready, wake := news(log, empty.Piece); ready || wake == nil {
		t.Fatalf("the beginning of a character, which was seen, is news: %v %v", ready, wake)
	}
	log.Append([]byte("\xa9"))
	if ready, _ := news(log, empty.Piece); !ready {
		t.Error("two bytes that came after the look are no news")
	}
}
