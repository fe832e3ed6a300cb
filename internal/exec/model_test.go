package exec_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
)

// modelTask is what must be known of a task.
type modelTask struct {
	id      string
	owner   exec.Caller
	session string
	obeys   bool // else it only waits for its end
	out     [2]string
	read    [2]int64          // where the next consuming read begins
	cursors map[int]modelRead // of readers that do not know of each other
	end     *exec.Run         // the facts once it has settled
	life    int               // in which it settled
	deleted bool
}

// modelRead is how far a reader has come.
type modelRead struct {
	cursor string
	at     [2]int64
}

// model knows what a Manager must answer.
type model struct {
	*fixture
	tb    testing.TB
	rand  *rand.Rand
	cut   *cut
	again func(*fixture) // begins the next life
	tasks []*modelTask   // in the order of their admission
	life  int
}

// What the model's Manager is limited to.
const (
	modelOutput = 40
	modelTasks  = 3
)

var modelCallers = []exec.Caller{alice, bob, none}

func (m *model) fatalf(format string, args ...any) {
	m.tb.Helper()
	m.tb.Fatalf(format, args...)
}

// pick returns a task that good likes, or nil.
func (m *model) pick(good func(*modelTask) bool) *modelTask {
	var some []*modelTask
	for _, t := range m.tasks {
		if !t.deleted && good(t) {
			some = append(some, t)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[m.rand.IntN(len(some))]
}

func running(t *modelTask) bool { return t.end == nil }

func anyTask(*modelTask) bool { return true }

// room tells whether another task may run.
func (m *model) room(c exec.Caller, session string) bool {
	n := 0
	for _, t := range m.tasks {
		if t.end == nil && t.owner == c && t.session == session {
			n++
		}
	}
	return n < modelTasks
}

func (m *model) start() {
	c, session := modelCallers[m.rand.IntN(3)], []string{"", "s"}[m.rand.IntN(2)]
	r, _, err := m.Start(m.tb.Context(), c, exec.Request{Command: obedient, StdinOpen: true, Session: session})
	if !m.room(c, session) {
		if code(err) != exec.CodeLimitReached {
			m.fatalf("at the limit: %v", err)
		}
		return
	}
	if err != nil {
		m.fatalf("start: %v", err)
	}
	m.tasks = append(m.tasks, &modelTask{id: r.ID, owner: c, session: session, obeys: true, cursors: map[int]modelRead{}})
}

func (m *model) yield() {
	c := modelCallers[m.rand.IntN(3)]
	if !m.room(c, "") {
		return
	}
	r, _, err := m.Run(m.tb.Context(), c, exec.Request{Command: "printf yield; exec sleep 60", YieldAfter: time.Millisecond})
	if err != nil || r.Kind != exec.Background {
		m.fatalf("yield: %s %v", r.Kind, err)
	}
	m.awaitBytes(m.tb, c, r.ID, 5, 0)
	m.tasks = append(m.tasks, &modelTask{id: r.ID, owner: c, out: [2]string{"yield", ""}, cursors: map[int]modelRead{}})
}

// print has a task print something, and waits until it is there.
func (m *model) print() {
	t := m.pick(func(t *modelTask) bool { return t.obeys && t.end == nil })
	if t == nil {
		return
	}
	i := m.rand.IntN(2)
	var text strings.Builder
	for range 1 + m.rand.IntN(30) {
		text.WriteString([]string{"a", "é", "€", "😀", "."}[m.rand.IntN(5)])
	}
	t.out[i] += text.String()
	m.tell(m.tb, t.owner, t.id, "oe"[i:i+1]+text.String())
	m.awaitBytes(m.tb, t.owner, t.id, int64(len(t.out[0])), int64(len(t.out[1])))
}

// compare checks a page that begins at those offsets.
func (m *model) compare(what string, t *modelTask, p exec.Page, at [2]int64) {
	m.tb.Helper()
	whole := true
	for i, piece := range []exec.Piece{p.Stdout, p.Stderr} {
		if piece.From != at[i] || piece.To > int64(len(t.out[i])) || string(piece.Data) != t.out[i][piece.From:piece.To] || piece.Text != string(piece.Data) || !utf8.ValidString(piece.Text) {
			m.fatalf("%s: [%d, %d) %q after %d of %q", what, piece.From, piece.To, piece.Data, at[i], t.out[i])
		}
		whole = whole && piece.To == int64(len(t.out[i]))
	}
	if p.More == whole || p.EOF != (whole && t.end != nil) {
		m.fatalf("%s: more %v, EOF %v; all is delivered: %v, settled: %v", what, p.More, p.EOF, whole, t.end != nil)
	}
}

// output has one of a few readers read on.
func (m *model) output() {
	t := m.pick(anyTask)
	if t == nil {
		return
	}
	reader, limit := m.rand.IntN(3), 1+m.rand.IntN(40)
	r := t.cursors[reader]
	p := m.mustRead(m.tb, t.owner, t.id, exec.ReadOptions{Cursor: r.cursor, MaxBytes: limit})
	m.compare("output", t, p, r.at)
	if n := len(p.Stdout.Data) + len(p.Stderr.Data); p.Lossy || n > limit+7 {
		m.fatalf("output: %d bytes of %d, lossy %v", n, limit, p.Lossy)
	}
	if m.rand.IntN(4) > 0 { // else the page is lost on its way, and asked for again
		t.cursors[reader] = modelRead{p.Next, [2]int64{p.Stdout.To, p.Stderr.To}}
	}
}

// unskipped is where a consuming read of at most modelOutput bytes begins.
func unskipped(text string, from int64) int64 {
	if int64(len(text))-from <= modelOutput {
		return from
	}
	from = int64(len(text)) - modelOutput
	for !utf8.RuneStart(text[from]) {
		from++
	}
	return from
}

func (m *model) consume() {
	t := m.pick(anyTask)
	if t == nil {
		return
	}
	at := [2]int64{unskipped(t.out[0], t.read[0]), unskipped(t.out[1], t.read[1])}
	p := m.mustConsume(m.tb, t.owner, t.id)
	m.compare("consume", t, p, at)
	if p.Lossy != (at != t.read) || p.More {
		m.fatalf("consume: lossy %v from %v, unread from %v", p.Lossy, at, t.read)
	}
	t.read = [2]int64{p.Stdout.To, p.Stderr.To}
}

// settled takes note of how a task ended.
func (m *model) settled(t *modelTask, r exec.Run) {
	t.end, t.life = &r, m.life
	if r.Stdout.Bytes != int64(len(t.out[0])) || r.Stderr.Bytes != int64(len(t.out[1])) {
		m.fatalf("%d and %d bytes, want %d and %d", r.Stdout.Bytes, r.Stderr.Bytes, len(t.out[0]), len(t.out[1]))
	}
}

func (m *model) exit() {
	t := m.pick(func(t *modelTask) bool { return t.obeys && t.end == nil })
	if t == nil {
		return
	}
	want := m.rand.IntN(256)
	m.tell(m.tb, t.owner, t.id, fmt.Sprintf("x%d", want))
	r := m.awaitEnd(m.tb, t.owner, t.id)
	if r.Status != exec.StatusCompleted || *r.ExitCode != want {
		m.fatalf("exit %d: %+v", want, r)
	}
	m.settled(t, r)
}

func (m *model) killOne() {
	t := m.pick(anyTask)
	if t == nil {
		return
	}
	outcome, _, err := m.Kill(m.tb.Context(), t.owner, exec.Background, t.id, "model")
	if err != nil || (outcome == exec.AlreadyFinished) != (t.end != nil) {
		m.fatalf("kill: %s %v", outcome, err)
	}
	if t.end == nil {
		r := m.awaitEnd(m.tb, t.owner, t.id)
		if r.Status != exec.StatusKilled || r.Cause != exec.CauseKill {
			m.fatalf("killed: %+v", r)
		}
		m.settled(t, r)
	}
}

func (m *model) wait() {
	if t := m.pick(running); t != nil {
		if r, err := m.Wait(m.tb.Context(), t.owner, t.id, time.Millisecond); err != nil || r.Status != exec.StatusRunning {
			m.fatalf("wait: %s %v", r.Status, err)
		}
	}
}

func (m *model) delete() {
	t := m.pick(anyTask)
	if t == nil {
		return
	}
	err := m.Delete(m.tb.Context(), t.owner, t.id)
	switch {
	case t.end == nil && code(err) != exec.CodeConflict, t.end != nil && err != nil:
		m.fatalf("delete: %v", err)
	case t.end != nil:
		t.deleted = true
	}
}

// endLife has all that runs end with the server, in order or not.
func (m *model) endLife(crash bool) {
	m.cut.off.Store(crash)
	shut(m.Manager)
	m.checkEvents(crash)
	m.cut.off.Store(false)
	m.again(m.fixture)
	m.life++
	for _, t := range m.tasks {
		if t.end != nil {
			continue
		}
		r, err := m.Get(t.owner, exec.Background, t.id)
		if crash && (r.Status != exec.StatusFailed || r.Detail != lostTask || r.ExitCode != nil) || !crash && (r.Status != exec.StatusKilled || r.Cause != exec.CauseShutdown) || err != nil {
			m.fatalf("after the end of the server, crash %v: %+v %v", crash, r, err)
		}
		m.settled(t, r)
	}
}

// check compares everything that can be looked at without changing it.
func (m *model) check() {
	m.tb.Helper()
	for _, c := range modelCallers {
		var want []string
		for _, t := range slices.Backward(m.tasks) {
			if !t.deleted && (t.owner == c || t.owner == none) {
				want = append(want, t.id)
			}
		}
		if got := m.fixture.tasks(m.tb, c); !slices.Equal(got, want) {
			m.fatalf("%q lists %q, want %q", c.Owner, got, want)
		}
	}
	for _, t := range m.tasks {
		r, err := m.Get(t.owner, exec.Background, t.id)
		switch {
		case t.deleted:
			if code(err) != exec.CodeNotFound {
				m.fatalf("deleted: %v", err)
			}
		case err != nil:
			m.fatalf("get: %v", err)
		case t.end == nil && r.Status != exec.StatusRunning:
			m.fatalf("running: %+v", r)
		case t.end != nil && !same(*t.end, r):
			m.fatalf("a settled task changed:\n%+v\n%+v", comparable(*t.end), comparable(r))
		}
	}
	if t := m.pick(func(t *modelTask) bool { return t.owner != none }); t != nil {
		other := bob
		if t.owner == bob {
			other = alice
		}
		m.triesInVain(m.tb, other, t.id)
	}
}

// checkEvents looks for the settlements of a life, after its end: one each.
func (m *model) checkEvents(crash bool) {
	m.tb.Helper()
	heard := map[string]int{}
	m.events.mu.Lock()
	for id, e := range m.events.runs {
		heard[id] = len(e)
	}
	m.events.mu.Unlock()
	want := map[string]int{}
	for _, t := range m.tasks {
		if t.end == nil || t.life == m.life {
			want[t.id] = 1
		}
	}
	// What the crash took had settled in the old life all the same, and was told there as unrecorded.
	if !maps.Equal(heard, m.recovered(want)) {
		m.fatalf("crash %v: settlements %v, want %v", crash, heard, want)
	}
}

// recovered leaves out of want what was settled by the start of this life, of which nobody hears.
func (m *model) recovered(want map[string]int) map[string]int {
	for _, t := range m.tasks {
		if t.end != nil && t.life == m.life && (t.end.Detail == lostTask || t.end.Cause == exec.CauseShutdown) {
			delete(want, t.id)
		}
	}
	return want
}

// TestModel does random things and compares the answers with a model's. A seed gives the same steps again.
func TestModel(t *testing.T) {
	for i, seed := range []uint64{1, 2, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			c := &cut{}
			change, again := cuttable(c), func(f *fixture) { f.open(t) }
			if i == 0 {
				change, again = onDisk(t, c)
			}
			m := &model{tb: t, rand: rand.New(rand.NewPCG(seed, 0)), cut: c, again: again}
			m.fixture = newFixture(t, func(s *exec.Settings) {
				s.MaxOutputBytes, s.MaxTasksPerOwner, s.MaxRunning = modelOutput, modelTasks, 100
			}, change)
			m.walk(200)
		})
	}
}

// walk takes so many steps.
func (m *model) walk(steps int) {
	m.tb.Helper()
	actions := []struct {
		weight int
		name   string
		do     func()
	}{
		{12, "start", m.start},
		{25, "print", m.print},
		{25, "output", m.output},
		{15, "consume", m.consume},
		{4, "exit", m.exit},
		{4, "kill", m.killOne},
		{4, "wait", m.wait},
		{3, "delete", m.delete},
		{4, "yield", m.yield},
		{2, "crash", func() { m.endLife(true) }},
		{2, "restart", func() { m.endLife(false) }},
	}
	var names []string
	for range steps {
		n := m.rand.IntN(100)
		for _, a := range actions {
			if n -= a.weight; n < 0 {
				names = append(names, a.name)
				a.do()
				break
			}
		}
		m.check()
		if m.tb.Failed() {
			m.fatalf("after %s", strings.Join(names, " "))
		}
	}
	shut(m.Manager)
	m.checkEvents(false)
}
