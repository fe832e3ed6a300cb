package prober

import (
	"testing"
	"time"
)

// BenchmarkScene measures what a scene costs, apart from the run of the prober and together with it.
func BenchmarkScene(b *testing.B) {
	var prepared, ran, judged, closed time.Duration
	for b.Loop() {
		dir := passable(b)
		start := time.Now()
		lap := func(to *time.Duration) {
			*to += time.Since(start)
			start = time.Now()
		}
		s, err := Prepare(dir, ownIDs())
		if err != nil {
			b.Fatal(err)
		}
		lap(&prepared)
		printed := runProber(b, s, ownIDs())
		lap(&ran)
		if _, err := s.Judge(printed); err != nil {
			b.Fatal(err)
		}
		lap(&judged)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		lap(&closed)
	}
	for name, d := range map[string]time.Duration{"prepare": prepared, "run": ran, "judge": judged, "close": closed} {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N), name+"-µs/op")
	}
}
