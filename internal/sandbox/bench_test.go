package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"bashd/internal/sandbox"
)

// Everything here is measured beside a bare `bash -c true` in one run, turn by turn, and told as a ratio: the machine that it runs
// on may be shared.

// bare is what a program does that confines nothing: two pipes, one process, its end.
func bare(tb testing.TB, argv ...string) {
	tb.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	_, _ = io.Copy(io.Discard, out)
	must(tb, cmd.Wait())
}

// quick runs a command from the request to the proof that nothing is left.
func quick(tb testing.TB, f *fixture, c sandbox.Command) {
	tb.Helper()
	p, err := f.Start(context.Background(), c)
	must(tb, err)
	_, _ = io.Copy(io.Discard, p.Stdout)
	<-p.Gone()
	p.Stdout.Close()
}

// bubblewrap is the profile of tier A as far as bwrap can have it.
func bubblewrap(f *fixture) []string {
	return []string{
		"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm", "--tmpfs", "/run", "--bind", f.ws, f.ws,
		"--unshare-pid", "--unshare-ipc", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--chdir", f.ws, "/bin/bash", "-c", "true",
	}
}

// p50 is the median of durations.
func p50(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkSerial measures one client.
func BenchmarkSerial(b *testing.B) {
	for _, tier := range []string{sandbox.TierNamespaces, sandbox.TierLandlock} {
		for _, warm := range []int{2, 0} {
			b.Run(fmt.Sprintf("tier=%s/warm=%d", tier, warm), func(b *testing.B) {
				f := newFixture(b, func(c *sandbox.Config) { c.Tier, c.Warm = tier, warm })
				f.needs(b, sandbox.WorkspaceWrite)
				c := f.command(b, sandbox.WorkspaceWrite, "true")
				c.MergeStderr = true
				ways := map[string]func(){
					"bare":     func() { bare(b, "/bin/bash", "-c", "true") },
					"confined": func() { quick(b, f, c) },
				}
				// Its namespaces are taken down after it has ended, in the time of who comes next; so only beside what does the same.
				if _, err := exec.LookPath("bwrap"); err == nil && warm == 0 {
					ways["bwrap"] = func() { bare(b, bubblewrap(f)...) }
				}
				took := map[string][]time.Duration{}
				for b.Loop() {
					for name, way := range ways {
						start := time.Now()
						way()
						took[name] = append(took[name], time.Since(start))
					}
				}
				base := p50(took["bare"])
				for name, d := range took {
					b.ReportMetric(float64(p50(d).Microseconds()), name+"-µs")
					b.ReportMetric(float64(p50(d))/float64(base), name+"/bare")
				}
			})
		}
	}
}

// BenchmarkParallel measures 16 clients at once: how many commands a second, as a share of bare ones.
func BenchmarkParallel(b *testing.B) {
	const clients, each = 16, 20
	rate := func(work func()) float64 {
		start := time.Now()
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range each {
					work()
				}
			})
		}
		wg.Wait()
		return clients * each / time.Since(start).Seconds()
	}
	for _, tier := range []string{sandbox.TierNamespaces, sandbox.TierLandlock} {
		b.Run("tier="+tier, func(b *testing.B) {
			f := newFixture(b, func(c *sandbox.Config) { c.Tier, c.Warm = tier, 2 })
			f.needs(b, sandbox.WorkspaceWrite)
			c := f.command(b, sandbox.WorkspaceWrite, "true")
			c.MergeStderr = true
			var base, confined, wrapped float64
			_, err := exec.LookPath("bwrap")
			for b.Loop() {
				base += rate(func() { bare(b, "/bin/bash", "-c", "true") })
				confined += rate(func() { quick(b, f, c) })
				if err == nil {
					wrapped += rate(func() { bare(b, bubblewrap(f)...) })
				}
			}
			b.ReportMetric(base/float64(b.N), "bare/s")
			b.ReportMetric(confined/base, "confined/bare")
			b.ReportMetric(wrapped/base, "bwrap/bare")
		})
	}
}
