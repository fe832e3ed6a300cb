// Package metrics is the one place where bashd's Prometheus metrics are
// declared: their names, their labels and every value a label may take.
//
// It refuses unbounded labels. A value that is not known here is counted as
// "other", so no request, however odd, can grow the registry, and no id,
// owner, path or command ever becomes a label. The one label that this package
// cannot list, an HTTP route, is bounded by its caller: the transport passes
// route patterns, never paths.
//
// It imports nothing of the project. Every method is safe for concurrent use
// and none blocks or fails.
package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// other stands for every label value that is not listed below.
const other = "other"

var (
	kinds    = []string{"foreground", "background"}
	modes    = []string{"read-only", "workspace-write", "danger-full-access"}
	outcomes = []string{"completed", "killed", "timed_out", "aborted", "failed"}
	streams  = []string{"stdout", "stderr"}
	storeOps = []string{"insert", "settle", "yield", "advance", "get", "list", "unsettled", "delete", "key", "retention", "probe"}
	methods  = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
	codes    = []string{
		"INVALID_ARGUMENT", "UNAUTHENTICATED", "FORBIDDEN", "MODE_NOT_ALLOWED", "NOT_FOUND", "METHOD_NOT_ALLOWED",
		"CONFLICT", "GONE", "RANGE_NOT_SATISFIABLE", "BODY_TOO_LARGE", "HEADERS_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
		"UPGRADE_REQUIRED", "WORKDIR_UNUSABLE", "LIMIT_REACHED", "INTERNAL", "SANDBOX_UNAVAILABLE", "START_FAILED",
		"SHUTTING_DOWN",
	}
)

var (
	// runBuckets reach from a no-op command to the cap of foreground timeouts.
	runBuckets = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	// spawnBuckets tell a waiting runner (about 1 ms) from one that is started cold.
	spawnBuckets = []float64{.0005, .001, .002, .003, .005, .0075, .01, .025, .05, .1, .25, 1}
)

// Metrics is a registry of its own and everything that is counted in it.
// Use [New].
type Metrics struct {
	registry *prometheus.Registry

	runs           *prometheus.CounterVec
	runDuration    *prometheus.HistogramVec
	spawnDuration  *prometheus.HistogramVec
	active         *prometheus.GaugeVec
	timeouts       *prometheus.CounterVec
	denials        *prometheus.CounterVec
	runnerFailures *prometheus.CounterVec
	outputBytes    map[string]prometheus.Counter // resolved once: counted for every read of a pipe
	spilledBytes   prometheus.Counter
	survivors      prometheus.Counter
	rejections     *prometheus.CounterVec
	httpRequests   *prometheus.CounterVec
	httpDuration   *prometheus.HistogramVec
	sandboxInfo    *prometheus.GaugeVec
	storeErrors    *prometheus.CounterVec
}

// New returns metrics in a registry of their own, with every combination of
// known label values present at 0. version is that of the build.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.declareRuns()
	m.declareSandbox()
	m.declareOutput()
	m.declareHTTP()
	m.declareStore()
	m.gauge("bashd_build_info", "The build that runs; always 1.", "version", "go_version").
		WithLabelValues(version, runtime.Version()).Set(1)
	return m
}

func (m *Metrics) declareRuns() {
	m.runs = m.counter("bashd_runs_total", "Commands that ended.", "kind", "mode", "outcome")
	m.runDuration = m.histogram("bashd_run_duration_seconds", "How long commands took.", runBuckets, "kind")
	m.spawnDuration = m.histogram("bashd_spawn_duration_seconds", "From admission to the command's exec.", spawnBuckets, "mode")
	m.active = m.gauge("bashd_active", "Commands running or stopping now.", "kind")
	m.timeouts = m.counter("bashd_timeouts_total", "Commands that their own timeout cut short.", "kind")
	m.survivors = m.counter("bashd_survivors_killed_total", "Processes that commands left running and that were killed at their end.").
		WithLabelValues()
	for _, kind := range kinds {
		m.active.WithLabelValues(kind)
		m.timeouts.WithLabelValues(kind)
		m.runDuration.WithLabelValues(kind)
		for _, mode := range modes {
			for _, outcome := range outcomes {
				m.runs.WithLabelValues(kind, mode, outcome)
			}
		}
	}
}

func (m *Metrics) declareSandbox() {
	m.denials = m.counter("bashd_sandbox_denials_total", "Commands that failed because the sandbox refused them something.", "mode")
	m.runnerFailures = m.counter("bashd_sandbox_runner_failures_total", "Runners that failed before their command ran.", "mode")
	m.sandboxInfo = m.gauge("bashd_sandbox_info", "What the probe at start found; always 1.", "tier", "enforcement", "abi")
	for _, mode := range modes {
		m.spawnDuration.WithLabelValues(mode)
		m.denials.WithLabelValues(mode)
		m.runnerFailures.WithLabelValues(mode)
	}
}

func (m *Metrics) declareOutput() {
	bytes := m.counter("bashd_output_bytes_total", "Bytes that commands wrote.", "stream")
	m.outputBytes = make(map[string]prometheus.Counter, len(streams)+1)
	for _, stream := range append(slices.Clone(streams), other) {
		m.outputBytes[stream] = bytes.WithLabelValues(stream)
	}
	m.spilledBytes = m.counter("bashd_output_spilled_bytes_total", "Bytes of output written to spill files.").WithLabelValues()
}

func (m *Metrics) declareHTTP() {
	m.rejections = m.counter("bashd_rejections_total", "Requests answered with a problem, by its code.", "code")
	for _, code := range codes {
		m.rejections.WithLabelValues(code)
	}
	m.httpRequests = m.counter("bashd_http_requests_total", "HTTP requests answered.", "route", "method", "status")
	m.httpDuration = m.histogram("bashd_http_request_duration_seconds", "How long HTTP requests took.", runBuckets, "route")
}

func (m *Metrics) declareStore() {
	m.storeErrors = m.counter("bashd_store_errors_total", "Operations of the store that failed.", "op")
	for _, op := range storeOps {
		m.storeErrors.WithLabelValues(op)
	}
}

// StoreError counts an operation of the store that failed. op is one of "insert",
// "settle", "yield", "advance", "get", "list", "unsettled", "delete", "key", "retention" and "probe".
func (m *Metrics) StoreError(op string) { m.storeErrors.WithLabelValues(known(storeOps, op)).Inc() }

// RunStarted counts a command as active. kind is "foreground" or
// "background". Each call is matched by one of RunFinished.
func (m *Metrics) RunStarted(kind string) {
	m.active.WithLabelValues(known(kinds, kind)).Inc()
}

// RunYielded counts a foreground run that has become a background task: it was
// started as the one and will finish as the other.
func (m *Metrics) RunYielded() {
	m.active.WithLabelValues("foreground").Dec()
	m.active.WithLabelValues("background").Inc()
}

// RunFinished ends what RunStarted began. outcome is "completed", "killed",
// "timed_out", "aborted" or "failed"; d is the whole run.
func (m *Metrics) RunFinished(kind, mode, outcome string, d time.Duration) {
	kind = known(kinds, kind)
	m.active.WithLabelValues(kind).Dec()
	m.runs.WithLabelValues(kind, known(modes, mode), known(outcomes, outcome)).Inc()
	m.runDuration.WithLabelValues(kind).Observe(d.Seconds())
}

// Spawned observes how long it took until a command ran.
func (m *Metrics) Spawned(mode string, d time.Duration) {
	m.spawnDuration.WithLabelValues(known(modes, mode)).Observe(d.Seconds())
}

// TimedOut counts a command that its timeout cut short.
func (m *Metrics) TimedOut(kind string) { m.timeouts.WithLabelValues(known(kinds, kind)).Inc() }

// Denied counts a command that the sandbox refused something.
func (m *Metrics) Denied(mode string) { m.denials.WithLabelValues(known(modes, mode)).Inc() }

// RunnerFailed counts a runner that failed before its command ran.
func (m *Metrics) RunnerFailed(mode string) {
	m.runnerFailures.WithLabelValues(known(modes, mode)).Inc()
}

// OutputBytes counts n bytes of a stream, "stdout" or "stderr". It neither
// allocates nor locks. A negative n counts nothing.
func (m *Metrics) OutputBytes(stream string, n int) {
	c, ok := m.outputBytes[stream]
	if !ok {
		c = m.outputBytes[other]
	}
	c.Add(float64(max(n, 0)))
}

// SpilledBytes counts n bytes written to a spill file. A negative n counts nothing.
func (m *Metrics) SpilledBytes(n int) { m.spilledBytes.Add(float64(max(n, 0))) }

// SurvivorsKilled counts n processes that a command left behind. A negative n
// counts nothing.
func (m *Metrics) SurvivorsKilled(n int) { m.survivors.Add(float64(max(n, 0))) }

// Rejected counts a request that was answered with a problem. code is one of
// the machine codes of the API. The transport that writes the answer calls it,
// so that each refusal counts once.
func (m *Metrics) Rejected(code string) { m.rejections.WithLabelValues(known(codes, code)).Inc() }

// HTTPRequest counts one answered request. route is a pattern of the router or
// "unmatched", never a path.
func (m *Metrics) HTTPRequest(route, method string, status int, d time.Duration) {
	m.httpRequests.WithLabelValues(route, known(methods, method), statusLabel(status)).Inc()
	m.httpDuration.WithLabelValues(route).Observe(d.Seconds())
}

// SandboxInfo states what the probe found and replaces what was stated before.
func (m *Metrics) SandboxInfo(tier, enforcement string, abi int) {
	m.sandboxInfo.Reset()
	m.sandboxInfo.WithLabelValues(tier, enforcement, strconv.Itoa(abi)).Set(1)
}

// Handler serves the registry in Prometheus' text format or OpenMetrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// known returns v where it is listed, else "other".
func known(list []string, v string) string {
	if slices.Contains(list, v) {
		return v
	}
	return other
}

// statusLabel is the status code where it is one that HTTP knows.
func statusLabel(status int) string {
	if http.StatusText(status) == "" {
		return other
	}
	return strconv.Itoa(status)
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}
