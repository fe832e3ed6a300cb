package metrics

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape returns what a Prometheus server would read.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("status %d", rec.Code)
	}
	return rec.Body.String()
}

func wantLine(t *testing.T, text, line string) {
	t.Helper()
	if !strings.Contains("\n"+text, "\n"+line+"\n") {
		name, _, _ := strings.Cut(line, "{")
		t.Errorf("no line %q; have:\n%s", line, strings.Join(regexp.MustCompile(`(?m)^`+name+`.*$`).FindAllString(text, -1), "\n"))
	}
}

func TestEveryKnownCombinationStartsAtZero(t *testing.T) {
	m := New("v1")
	text := scrape(t, m)
	for _, line := range []string{
		`bashd_runs_total{kind="foreground",mode="read-only",outcome="timed_out"} 0`,
		`bashd_runs_total{kind="background",mode="danger-full-access",outcome="failed"} 0`,
		`bashd_run_duration_seconds_count{kind="foreground"} 0`,
		`bashd_spawn_duration_seconds_count{mode="workspace-write"} 0`,
		`bashd_active{kind="foreground"} 0`,
		`bashd_timeouts_total{kind="background"} 0`,
		`bashd_sandbox_denials_total{mode="read-only"} 0`,
		`bashd_sandbox_runner_failures_total{mode="read-only"} 0`,
		`bashd_output_bytes_total{stream="stdout"} 0`,
		`bashd_output_bytes_total{stream="stderr"} 0`,
		`bashd_output_spilled_bytes_total 0`,
		`bashd_survivors_killed_total 0`,
		`bashd_rejections_total{code="LIMIT_REACHED"} 0`,
		`bashd_store_errors_total{op="insert"} 0`,
		`bashd_store_errors_total{op="unsettled"} 0`,
	} {
		wantLine(t, text, line)
	}
	if n := testutil.CollectAndCount(m.runs); n != len(kinds)*len(modes)*len(outcomes) {
		t.Errorf("%d series of bashd_runs_total", n)
	}
	for _, family := range []string{"go_goroutines ", "process_cpu_seconds_total "} {
		if !strings.Contains(text, "\n"+family) {
			t.Errorf("no %s", family)
		}
	}
	if !strings.Contains(text, `bashd_build_info{go_version="go`) || !strings.Contains(text, `version="v1"} 1`) {
		t.Error("no bashd_build_info")
	}
}

func TestEachMethodMovesItsMetric(t *testing.T) {
	m := New("v1")
	m.RunStarted("foreground")
	m.RunStarted("foreground")
	m.RunFinished("foreground", "read-only", "completed", 3*time.Second)
	m.Spawned("read-only", 2*time.Millisecond)
	m.TimedOut("foreground")
	m.Denied("workspace-write")
	m.RunnerFailed("workspace-write")
	m.OutputBytes("stdout", 100)
	m.OutputBytes("stdout", -1)
	m.OutputBytes("stderr", 7)
	m.SpilledBytes(64)
	m.SurvivorsKilled(2)
	m.Rejected("FORBIDDEN")
	m.HTTPRequest("/v1/runs", "POST", 200, time.Second)
	m.SandboxInfo("A", "full", 7)
	m.StoreError("settle")
	m.StoreError("settle")
	text := scrape(t, m)
	for _, line := range []string{
		`bashd_active{kind="foreground"} 1`,
		`bashd_runs_total{kind="foreground",mode="read-only",outcome="completed"} 1`,
		`bashd_run_duration_seconds_sum{kind="foreground"} 3`,
		`bashd_spawn_duration_seconds_count{mode="read-only"} 1`,
		`bashd_timeouts_total{kind="foreground"} 1`,
		`bashd_sandbox_denials_total{mode="workspace-write"} 1`,
		`bashd_sandbox_runner_failures_total{mode="workspace-write"} 1`,
		`bashd_output_bytes_total{stream="stdout"} 100`,
		`bashd_output_bytes_total{stream="stderr"} 7`,
		`bashd_output_spilled_bytes_total 64`,
		`bashd_survivors_killed_total 2`,
		`bashd_rejections_total{code="FORBIDDEN"} 1`,
		`bashd_http_requests_total{method="POST",route="/v1/runs",status="200"} 1`,
		`bashd_http_request_duration_seconds_sum{route="/v1/runs"} 1`,
		`bashd_sandbox_info{abi="7",enforcement="full",tier="A"} 1`,
		`bashd_store_errors_total{op="settle"} 2`,
	} {
		wantLine(t, text, line)
	}
}

// TestYieldMovesTheGauge: what yields is counted once at any time, and ends as what it has become.
func TestYieldMovesTheGauge(t *testing.T) {
	m := New("v1")
	m.RunStarted("foreground")
	m.RunYielded()
	text := scrape(t, m)
	wantLine(t, text, `bashd_active{kind="foreground"} 0`)
	wantLine(t, text, `bashd_active{kind="background"} 1`)
	m.RunFinished("background", "read-only", "completed", time.Second)
	text = scrape(t, m)
	wantLine(t, text, `bashd_active{kind="background"} 0`)
	wantLine(t, text, `bashd_runs_total{kind="background",mode="read-only",outcome="completed"} 1`)
}

func TestUnknownLabelValuesAreOneSeries(t *testing.T) {
	m := New("v1")
	for _, odd := range []string{"../etc", "bash-abc", "\xff", ""} {
		m.RunStarted(odd)
		m.RunFinished(odd, odd, odd, 0)
		m.Spawned(odd, 0)
		m.TimedOut(odd)
		m.Denied(odd)
		m.RunnerFailed(odd)
		m.OutputBytes(odd, 1)
		m.Rejected(odd)
		m.StoreError(odd)
		m.HTTPRequest("unmatched", odd, 9999, 0)
	}
	text := scrape(t, m)
	for _, line := range []string{
		`bashd_active{kind="other"} 0`,
		`bashd_runs_total{kind="other",mode="other",outcome="other"} 4`,
		`bashd_output_bytes_total{stream="other"} 4`,
		`bashd_rejections_total{code="other"} 4`,
		`bashd_store_errors_total{op="other"} 4`,
		`bashd_http_requests_total{method="other",route="unmatched",status="other"} 4`,
	} {
		wantLine(t, text, line)
	}
	if strings.Contains(text, "etc") || strings.Contains(text, "bash-abc") {
		t.Error("a caller's value became a label")
	}
}

func TestSandboxInfoReplaces(t *testing.T) {
	m := New("v1")
	m.SandboxInfo("A", "full", 7)
	m.SandboxInfo("C", "partial", 7)
	if n := testutil.CollectAndCount(m.sandboxInfo); n != 1 {
		t.Errorf("%d series", n)
	}
}

// TestNamesFollowPrometheus runs Prometheus' own linter over the registry.
func TestNamesFollowPrometheus(t *testing.T) {
	m := New("v1")
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "bashd_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestOutputBytesDoesNotAllocate(t *testing.T) {
	m := New("v1")
	if n := testing.AllocsPerRun(1000, func() { m.OutputBytes("stdout", 120) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func BenchmarkOutputBytes(b *testing.B) {
	m := New("v1")
	for b.Loop() {
		m.OutputBytes("stdout", 120)
	}
}
