package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"bashd/internal/auth"
	"bashd/internal/exec"
)

// reach is what a route can reach.
type reach int

const (
	public  reach = iota // nothing of a caller's, and it needs no token
	metered              // the metrics
	common               // nothing of a caller's
	creates              // a new run or task
	lists                // all that the caller may see
	one                  // the one in the path
)

// fencedRoute is a route, for the fence test.
type fencedRoute struct {
	reach  reach
	kind   exec.Kind // of what it reaches
	body   string
	status int // of the answer to who may
}

// fence has every route. HEAD goes with GET.
var fence = map[string]fencedRoute{
	"GET /healthz":      {public, "", "", 200},
	"GET /readyz":       {public, "", "", 200},
	"GET /openapi.yaml": {public, "", "", 200},
	"GET /metrics":      {metered, "", "", 200},
	"GET /v1/info":      {common, "", "", 200},

	"POST /v1/runs":                      {creates, exec.Foreground, `{"command":"id"}`, 200},
	"GET /v1/runs":                       {lists, exec.Foreground, "", 200},
	"GET /v1/runs/{id}":                  {one, exec.Foreground, "", 200},
	"POST /v1/runs/{id}/kill":            {one, exec.Foreground, `{"reason":"x"}`, 202},
	"GET /v1/runs/{id}/streams/{stream}": {one, exec.Foreground, "", 200},

	"POST /v1/tasks":                      {creates, exec.Background, `{"command":"id"}`, 201},
	"GET /v1/tasks":                       {lists, exec.Background, "", 200},
	"GET /v1/tasks/{id}":                  {one, exec.Background, "", 200},
	"DELETE /v1/tasks/{id}":               {one, exec.Background, "", 204},
	"GET /v1/tasks/{id}/output":           {one, exec.Background, "", 200},
	"POST /v1/tasks/{id}/read":            {one, exec.Background, "", 200},
	"GET /v1/tasks/{id}/wait":             {one, exec.Background, "", 200},
	"POST /v1/tasks/{id}/kill":            {one, exec.Background, "", 202},
	"POST /v1/tasks/{id}/stdin":           {one, exec.Background, `{"data":"x"}`, 200},
	"GET /v1/tasks/{id}/streams/{stream}": {one, exec.Background, "", 200},
}

// The ids of what there is: of each kind the owner's and nobody's.
var (
	owned   = map[exec.Kind]string{exec.Foreground: fenceID('a'), exec.Background: fenceID('b')}
	nobodys = map[exec.Kind]string{exec.Foreground: fenceID('c'), exec.Background: fenceID('d')}
	unknown = fenceID('e')
)

func fenceID(c byte) string { return "bash-" + strings.Repeat(string(c), 26) }

// fencedRunner knows those, shows them to whom it is asked by, and remembers who asked and
// what came of it.
type fencedRunner struct {
	mu      sync.Mutex
	runs    map[string]exec.Run
	asked   []exec.Owner
	touched []string // ids that were reached
}

func newFencedRunner(owner exec.Owner) *fencedRunner {
	f := &fencedRunner{runs: make(map[string]exec.Run)}
	for k, sample := range map[exec.Kind]exec.Run{exec.Foreground: sampleRun(), exec.Background: sampleTask()} {
		for id, of := range map[string]exec.Owner{owned[k]: owner, nobodys[k]: ""} {
			sample.ID, sample.Owner, sample.Kind = id, of, k
			f.runs[id] = sample
		}
	}
	return f
}

// find is the fence as package exec has it.
func (f *fencedRunner) find(c exec.Caller, k exec.Kind, id string) (exec.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, c.Owner)
	r, ok := f.runs[id]
	if !ok || r.Kind != k || r.Owner != "" && r.Owner != c.Owner {
		return exec.Run{}, noRun(id)
	}
	f.touched = append(f.touched, id)
	return r, nil
}

func (f *fencedRunner) admit(c exec.Caller, r exec.Run) (exec.Run, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, c.Owner)
	return r, false, nil
}

func (f *fencedRunner) Run(_ context.Context, c exec.Caller, _ exec.Request) (exec.Run, bool, error) {
	return f.admit(c, sampleRun())
}

func (f *fencedRunner) Start(_ context.Context, c exec.Caller, _ exec.Request) (exec.Run, bool, error) {
	return f.admit(c, runningTask())
}

func (f *fencedRunner) Get(c exec.Caller, k exec.Kind, id string) (exec.Run, error) {
	return f.find(c, k, id)
}

func (f *fencedRunner) List(c exec.Caller, o exec.ListOptions) (runs []exec.Run, next int64, err error) {
	for _, id := range slices.Sorted(maps.Keys(f.runs)) {
		if r, err := f.find(c, o.Kind, id); err == nil {
			runs = append(runs, r)
		}
	}
	return runs, 0, nil
}

func (f *fencedRunner) Kill(_ context.Context, c exec.Caller, k exec.Kind, id, _ string) (exec.KillOutcome, exec.Run, error) {
	r, err := f.find(c, k, id)
	return exec.AlreadyFinished, r, err
}

func (f *fencedRunner) OpenStream(c exec.Caller, k exec.Kind, id string, _ exec.StreamName) (io.ReadSeekCloser, int64, time.Time, error) {
	r, err := f.find(c, k, id)
	return fencedContent{bytes.NewReader([]byte("secret"))}, 6, r.FinishedAt, err
}

// fencedContent is a stream in memory.
type fencedContent struct{ *bytes.Reader }

func (fencedContent) Close() error { return nil }

func (f *fencedRunner) Wait(_ context.Context, c exec.Caller, id string, _ time.Duration) (exec.Run, error) {
	return f.find(c, exec.Background, id)
}

func (f *fencedRunner) Output(_ context.Context, c exec.Caller, id string, _ exec.ReadOptions) (exec.Page, error) {
	r, err := f.find(c, exec.Background, id)
	return exec.Page{Next: "x", EOF: true, Task: r}, err
}

func (f *fencedRunner) Consume(ctx context.Context, c exec.Caller, id string) (exec.Page, error) {
	return f.Output(ctx, c, id, exec.ReadOptions{})
}

func (f *fencedRunner) WriteStdin(_ context.Context, c exec.Caller, id string, data []byte, _ bool) (int, error) {
	_, err := f.find(c, exec.Background, id)
	return len(data), err
}

func (f *fencedRunner) Delete(_ context.Context, c exec.Caller, id string) error {
	_, err := f.find(c, exec.Background, id)
	return err
}

func (f *fencedRunner) Info() exec.Info { return sampleInfo() }

// since returns who asked and what was reached since it was called last.
func (f *fencedRunner) since() (asked []exec.Owner, touched []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, touched, f.asked, f.touched = f.asked, f.touched, nil, nil
	return asked, touched
}

// fenceCaller is somebody who may ask, and whether it is the owner.
type fenceCaller struct {
	name    string
	headers []string
	owner   exec.Owner
	isOwner bool
}

// fenceMode is open or closed mode with its callers. The first one is the owner.
type fenceMode struct {
	name    string
	closed  bool
	callers []fenceCaller
}

func fenceModes() []fenceMode {
	a, alice := ownerKey("", "a"), ownerKey("alice", "")
	return []fenceMode{
		{"open", false, []fenceCaller{
			{"owner", []string{"X-Owner-Token: a"}, a, true},
			{"owner by Authorization", []string{bearer("a")}, a, true},
			{"owner besides another bearer", []string{"X-Owner-Token: a", bearer("b")}, a, true},
			{"other owner", []string{"X-Owner-Token: b"}, ownerKey("", "b"), false},
			{"other owner besides the owner's bearer", []string{"X-Owner-Token: b", bearer("a")}, ownerKey("", "b"), false},
			{"other case", []string{"X-Owner-Token: A"}, ownerKey("", "A"), false},
			{"owner key as a token", []string{"X-Owner-Token: " + string(a)}, ownerKey("", string(a)), false},
			{"nobody", nil, "", false},
		}},
		{"closed", true, []fenceCaller{
			{"owner", []string{bearer(aliceToken)}, alice, true},
			{"owner's other token", []string{bearer(alice2Token)}, alice, true},
			{"other tenant", []string{bearer(bobToken)}, ownerKey("bob", ""), false},
			{"other tenant with the owner's name", []string{bearer(bobToken), "X-Owner-Token: alice"}, ownerKey("bob", "alice"), false},
			{"user of the tenant", []string{bearer(aliceToken), "X-Owner-Token: u1"}, ownerKey("alice", "u1"), false},
		}},
	}
}

// TestFenceOnEveryRoute goes to every route as everybody. What is another's is answered byte for byte as what never
// was, is in no list, and is not touched. A route that is not in the table fails the test.
func TestFenceOnEveryRoute(t *testing.T) {
	left := maps.Clone(fence)
	for _, r := range routesOf(t) {
		method, pattern, _ := strings.Cut(r, " ")
		key := r
		if method == http.MethodHead {
			key = "GET " + pattern
		}
		route, known := fence[key]
		if !known {
			t.Errorf("%s is in no fence: add it to the table, with what it reaches", r)
			continue
		}
		delete(left, key)
		for _, mode := range fenceModes() {
			t.Run(mode.name+" "+r, func(t *testing.T) { newFenceTest(t, mode, method, pattern, route).run(t) })
		}
	}
	for r := range left {
		t.Errorf("%s is in the table and not routed", r)
	}
}

func routesOf(t *testing.T) (routes []string) {
	t.Helper()
	o, _, _ := options()
	err := chi.Walk(New(o).router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, method+" "+pattern)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return routes
}

// fenceTest is one route in one mode.
type fenceTest struct {
	*fixture
	fencedRoute
	mode            fenceMode
	runner          *fencedRunner
	method, pattern string
}

func newFenceTest(t *testing.T, mode fenceMode, method, pattern string, route fencedRoute) *fenceTest {
	f := &fenceTest{fencedRoute: route, mode: mode, runner: newFencedRunner(mode.callers[0].owner), method: method, pattern: pattern}
	f.fixture = newFixture(t, func(o *Options) {
		o.Runner = f.runner
		if mode.closed {
			o.Tokens, _ = testTokens(t)
		}
	})
	return f
}

// ask sends the request about id, under a request id that is always the same.
func (f *fenceTest) ask(t *testing.T, id string, headers ...string) answer {
	t.Helper()
	path := strings.NewReplacer("{id}", id, "{stream}", "stdout").Replace(f.pattern)
	return f.do(t, f.method, path, f.body, append([]string{"X-Request-Id: same"}, headers...)...)
}

// told is all that an answer tells, with id taken out.
func told(a answer, id string) string {
	a.Header.Del("Date")
	var b bytes.Buffer
	fmt.Fprintln(&b, a.StatusCode)
	_ = a.Header.Write(&b) // sorted; a Buffer takes all
	b.Write(a.body)
	return strings.ReplaceAll(b.String(), id, "<id>")
}

func (f *fenceTest) run(t *testing.T) {
	for _, c := range f.mode.callers {
		t.Run(c.name, func(t *testing.T) {
			switch f.reach {
			case one:
				f.checkOne(t, c)
			case lists:
				f.checkList(t, c)
			case creates:
				f.ask(t, "", c.headers...).wantStatus(t, f.status)
				f.wantAsked(t, c, 1)
			case common:
				f.ask(t, "", c.headers...).wantStatus(t, f.status)
			}
		})
	}
	if f.mode.closed {
		f.checkRoles(t)
		f.checkStrangers(t)
	} else if f.reach == public || f.reach == metered {
		f.ask(t, "").wantStatus(t, f.status)
	}
}

// wantAsked checks that the runner was asked n times, on behalf of c only, and returns what it reached.
func (f *fenceTest) wantAsked(t *testing.T, c fenceCaller, n int) (touched []string) {
	t.Helper()
	asked, touched := f.runner.since()
	if len(asked) != n || slices.ContainsFunc(asked, func(o exec.Owner) bool { return o != c.owner }) {
		t.Errorf("asked on behalf of %.8q, want %d times %.8q", asked, n, c.owner)
	}
	return touched
}

func (f *fenceTest) checkOne(t *testing.T, c fenceCaller) {
	never := told(f.ask(t, unknown, c.headers...), unknown)
	if !strings.HasPrefix(never, "404\n") {
		t.Fatalf("an unknown id: %s", never)
	}
	if touched := f.wantAsked(t, c, 1); len(touched) > 0 {
		t.Errorf("an unknown id reached %v", touched)
	}
	otherKind := exec.Foreground
	if f.kind == exec.Foreground {
		otherKind = exec.Background
	}
	for id, visible := range map[string]bool{
		owned[f.kind]: c.isOwner, nobodys[f.kind]: true, owned[otherKind]: false, nobodys[otherKind]: false,
	} {
		a := f.ask(t, id, c.headers...)
		touched := f.wantAsked(t, c, 1)
		if visible {
			a.wantStatus(t, f.status)
			continue
		}
		if got := told(a, id); got != never {
			t.Errorf("%s: got\n%s\nan unknown id gets\n%s", id, got, never)
		}
		if len(touched) > 0 {
			t.Errorf("it reached %v", touched)
		}
	}
}

func (f *fenceTest) checkList(t *testing.T, c fenceCaller) {
	a := f.ask(t, "", c.headers...)
	a.wantStatus(t, f.status)
	f.wantAsked(t, c, len(f.runner.runs))
	if f.method == http.MethodHead {
		return
	}
	for id, visible := range map[string]bool{owned[f.kind]: c.isOwner, nobodys[f.kind]: true} {
		if got := bytes.Contains(a.body, []byte(id)); got != visible {
			t.Errorf("%s is in the list: %v\n%s", id, got, a.body)
		}
	}
}

// checkRoles tries a token with each role, and none of those that a route needs.
func (f *fenceTest) checkRoles(t *testing.T) {
	for token, role := range map[string]auth.Role{aliceToken: auth.RoleRun, promToken: auth.RoleMetrics, judgeToken: auth.RoleApprove} {
		a := f.ask(t, owned[f.kind], bearer(token))
		needed := map[reach]auth.Role{public: role, metered: auth.RoleMetrics}[f.reach]
		if needed == "" {
			needed = auth.RoleRun
		}
		_, touched := f.runner.since()
		if role == needed {
			a.wantStatus(t, f.status)
		} else if a.StatusCode != 403 || len(touched) > 0 || f.method != http.MethodHead && !strings.HasSuffix(a.problem(t).Detail, " "+string(needed)) {
			t.Errorf("with the role %s: %d %s, and %v was reached; want 403 that names %s", role, a.StatusCode, a.body, touched, needed)
		}
	}
}

// checkStrangers tries no token and a wrong one: whatever is there, the answer is the same.
func (f *fenceTest) checkStrangers(t *testing.T) {
	for _, headers := range [][]string{nil, {"X-Owner-Token: a"}, {bearer("wrong")}} {
		if f.reach == public {
			f.ask(t, "", headers...).wantStatus(t, f.status)
			continue
		}
		var answers []string
		for _, id := range []string{owned[exec.Foreground], owned[exec.Background], nobodys[exec.Background], unknown, "no-id"} {
			answers = append(answers, told(f.ask(t, id, headers...), id))
		}
		if f.reach != metered {
			nowhere := f.do(t, f.method, "/v1/nowhere", f.body, append([]string{"X-Request-Id: same"}, headers...)...)
			answers = append(answers, told(nowhere, "/v1/nowhere"))
		}
		if !strings.HasPrefix(answers[0], "401\n") || len(slices.Compact(answers)) != 1 {
			t.Errorf("%q: answers differ, or are no 401: %q", headers, answers)
		}
		if asked, _ := f.runner.since(); len(asked) > 0 {
			t.Errorf("%q: the runner was asked", headers)
		}
	}
}
