package main

import (
	"fmt"
	"io"
	"net/http"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// The benchmarks compare within one run, since machines are shared and noisy: each
// round does the thing bare and through the API. See docs/benchmarks.md.

func p50(d []time.Duration) time.Duration { return quantile(d, 50) }

// quantile is the smallest duration that so many percent do not exceed. It sorts d.
func quantile(d []time.Duration, percent int) time.Duration {
	slices.Sort(d)
	return d[min(len(d)*percent/100, len(d)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkTrue: POST /v1/runs of `true`, against `bash -c true` started and awaited by
// this process.
func BenchmarkTrue(b *testing.B) {
	for _, mode := range []string{"read-only", "workspace-write", "danger-full-access"} {
		for _, warm := range []int{0, 2} {
			b.Run(fmt.Sprintf("%s/warm=%d", mode, warm), func(b *testing.B) {
				d := start(b, "BASHD_SANDBOX_MAX_MODE=danger-full-access", "BASHD_LOG_LEVEL=info", fmt.Sprintf("BASHD_WARM_RUNNERS=%d", warm))
				benchTrue(b, d, mode)
			})
		}
	}
}

func benchTrue(b *testing.B, d *daemon, mode string) {
	var bare, api []time.Duration
	body := mustJSON(b, in{"command": "true", "sandboxMode": mode})
	for b.Loop() {
		began := time.Now()
		if err := osexec.Command("bash", "-c", "true").Run(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(began))
		time.Sleep(5 * time.Millisecond) // as a client that comes now and then: runners are made in the meantime
		began = time.Now()
		if status, raw := d.plain(b, "/v1/runs", body); status != 200 {
			b.Fatalf("%d %s", status, raw)
		}
		api = append(api, time.Since(began))
	}
	b.ReportMetric(ms(p50(bare)), "bare-p50-ms")
	b.ReportMetric(ms(p50(api)), "api-p50-ms")
	b.ReportMetric(float64(p50(api))/float64(p50(bare)), "ratio")
}

// BenchmarkTrueBesideTasks: POST /v1/runs of `true` to a daemon that has nothing else to do, and to one
// with 300 tasks that sleep, in turns.
func BenchmarkTrueBesideTasks(b *testing.B) {
	alone := start(b, "BASHD_LOG_LEVEL=info")
	busy := start(b, "BASHD_LOG_LEVEL=info", "BASHD_MAX_TASKS_PER_OWNER=300", "BASHD_MAX_RUNNING=400")
	busy.sleepers(b, 300)
	body := mustJSON(b, in{"command": "true"})
	var without, with []time.Duration
	for b.Loop() {
		for _, m := range []struct {
			d    *daemon
			took *[]time.Duration
		}{{alone, &without}, {busy, &with}} {
			time.Sleep(5 * time.Millisecond)
			began := time.Now()
			if status, raw := m.d.plain(b, "/v1/runs", body); status != 200 {
				b.Fatalf("%d %s", status, raw)
			}
			*m.took = append(*m.took, time.Since(began))
		}
	}
	b.ReportMetric(ms(p50(without)), "alone-p50-ms")
	b.ReportMetric(ms(p50(with)), "with-300-p50-ms")
	b.ReportMetric(float64(p50(with))/float64(p50(without)), "p50-ratio")
	b.ReportMetric(float64(quantile(with, 90))/float64(quantile(without, 90)), "p90-ratio")
}

// BenchmarkStartTask: POST /v1/tasks of `true`, answered when it has started, and POST /v1/runs of it, answered when
// it has ended, in turns.
func BenchmarkStartTask(b *testing.B) {
	d := start(b, "BASHD_LOG_LEVEL=info")
	body := mustJSON(b, in{"command": "true"})
	var runs, tasks []time.Duration
	for b.Loop() {
		time.Sleep(5 * time.Millisecond)
		began := time.Now()
		if status, raw := d.plain(b, "/v1/runs", body); status != 200 {
			b.Fatalf("%d %s", status, raw)
		}
		runs = append(runs, time.Since(began))
		time.Sleep(5 * time.Millisecond)
		began = time.Now()
		status, raw := d.plain(b, "/v1/tasks", body)
		if status != 201 {
			b.Fatalf("%d %s", status, raw)
		}
		tasks = append(tasks, time.Since(began))
		d.waitTask(b, idIn(raw))
	}
	b.ReportMetric(ms(p50(runs)), "run-p50-ms")
	b.ReportMetric(ms(p50(tasks)), "task-p50-ms")
	b.ReportMetric(ms(p50(tasks))-ms(p50(runs)), "task-more-ms")
}

// BenchmarkListTasks: a page of 50 of 10,000 settled tasks.
func BenchmarkListTasks(b *testing.B) {
	d := startFilled(b, 10_000)
	var took []time.Duration
	for b.Loop() {
		took = append(took, d.timePage(b))
	}
	b.ReportMetric(ms(p50(took)), "p50-ms")
	b.ReportMetric(ms(quantile(took, 90)), "p90-ms")
}

// BenchmarkMemoryOfTasks: what memory the daemon, and each runner with its sweeper, has to itself with 300 tasks that
// sleep.
func BenchmarkMemoryOfTasks(b *testing.B) {
	d := start(b, "BASHD_LOG_LEVEL=info", "BASHD_MAX_TASKS_PER_OWNER=300", "BASHD_MAX_RUNNING=400")
	idle := d.ownMemory(b, d.pid)
	d.sleepers(b, 300)
	var runners []int64
	for b.Loop() {
		runners = d.runnersMemory(b)
	}
	b.ReportMetric(float64(idle)/1e6, "daemon-idle-MB")
	b.ReportMetric(float64(d.ownMemory(b, d.pid))/1e6, "daemon-MB")
	b.ReportMetric(float64(runners[len(runners)/2])/1e6, "runner-p50-MB")
	b.ReportMetric(float64(runners[len(runners)-1])/1e6, "runner-max-MB")
}

const line120 = "yes 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567 | head -c 200000000"

// Benchmark200MB: 200 MB of 120-character lines through one run, against the same command
// read from a pipe and discarded; and what memory the daemon needs for it.
func Benchmark200MB(b *testing.B) {
	d := start(b, "BASHD_LOG_LEVEL=info")
	var bare, api []time.Duration
	var peak int64
	for b.Loop() {
		began := time.Now()
		discard(b, line120)
		bare = append(bare, time.Since(began))
		stop := make(chan struct{})
		sampled := make(chan int64)
		go func() { sampled <- d.sampleRSS(b, stop) }()
		began = time.Now()
		r := d.sh(b, line120)
		api = append(api, time.Since(began))
		close(stop)
		peak = max(peak, <-sampled)
		if r.Stdout.Bytes != 200000000 || r.code() != 0 {
			b.Fatalf("got %d bytes, exit code %d", r.Stdout.Bytes, r.code())
		}
	}
	b.ReportMetric(ms(p50(bare)), "bare-p50-ms")
	b.ReportMetric(ms(p50(api)), "api-p50-ms")
	b.ReportMetric(float64(p50(api))/float64(p50(bare)), "ratio")
	b.ReportMetric(float64(peak)/1e6, "peak-rss-MB")
	b.ReportMetric(float64(d.rss(b))/1e6, "after-rss-MB")
}

func discard(b *testing.B, command string) {
	b.Helper()
	cmd := osexec.Command("bash", "-c", command)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, buf); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// sampleRSS returns the largest resident set until stop.
func (d *daemon) sampleRSS(tb testing.TB, stop <-chan struct{}) (peak int64) {
	for {
		peak = max(peak, d.rss(tb))
		select {
		case <-stop:
			return peak
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// plain posts to a path without looking at the answer, which would be measured too.
func (d *daemon) plain(tb testing.TB, path, body string) (status int, raw []byte) {
	tb.Helper()
	resp, err := http.Post(d.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, raw
}
