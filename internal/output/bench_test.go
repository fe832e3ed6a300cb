package output

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{120, 64 << 10} {
		for _, file := range []string{"none", "lazy", "eager"} {
			for _, followers := range []int{0, 1, 100} {
				b.Run(fmt.Sprintf("bytes=%d/file=%s/followers=%d", size, file, followers), func(b *testing.B) {
					benchmarkAppend(b, size, file, followers)
				})
			}
		}
	}
}

// benchmarkAppend starts a new log for each 64 MiB, the default cap, so that the
// disk holds no more than that however long it runs.
func benchmarkAppend(b *testing.B, size int, file string, followers int) {
	const limit = 64 << 20
	o := newDisk(b).options(64000, limit, file == "eager")
	o.OnSpill = nil
	if file == "none" {
		o.SpillBytes = 0
	}
	p := make([]byte, size)
	l, stop := followed(b.Context(), o, followers)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if l.mem.end+int64(size) > limit {
			b.StopTimer()
			stop()
			l, stop = followed(b.Context(), o, followers)
			b.StartTimer()
		}
		l.Append(p)
	}
	stop()
}

// followed returns a log that followers read, and what ends them and the log.
func followed(ctx context.Context, o Options, followers int) (*Log, func()) {
	l := New(o)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range followers {
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			for from := int64(0); ; {
				c, err := l.Next(ctx, from, buf)
				if err != nil {
					return
				}
				from = c.From + int64(c.N)
			}
		})
	}
	return l, func() {
		cancel()
		wg.Wait()
		l.Withdraw()
		l.Close()
	}
}
