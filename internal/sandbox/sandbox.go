package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/cgroup"
	"bashd/internal/sandbox/prober"
	"bashd/internal/sandbox/runner"
)

// Config is what a Sandbox is made with.
type Config struct {
	Shell     string   // path of bash
	Scratch   string   // an existing directory of the daemon's, in which the probe makes and removes its own; always hidden
	Hidden    []string // further absolute paths that no confined command may read
	Warm      int      // runners kept started; 0: none
	Subreaper bool     // adopt, kill and reap what a lost runner leaves; for a process that has no other children
	Limits    Limits
	RunAs     *Credential // whom commands run as; nil: as the daemon. Only for a daemon that is root
	TempBytes uint64      // size of a command's /tmp and /dev/shm together where they are private; 0: see defaultTemp
	Groups    bool        // use control groups where this process may make some. It may move into a leaf of its own then, so this is for a process without children
	Tier      string      // only this tier; empty: the strongest that this host allows. Anything but empty is for tests
	Logger    *slog.Logger
}

// Sandbox starts confined commands. Safe for concurrent use.
type Sandbox struct {
	cfg        Config
	abi        int
	report     Report
	tier       string          // the one in use, or being probed; not changed after New
	layers     readLayers      // of tiers without namespaces
	filter     map[bool]string // the system call filters, by whether metadata may be changed; none where this host has none
	domain     *ruleset        // the sweeper's; nil where trees are killed without one
	effects    map[Mode][]prober.Result
	groups     *cgroup.Tree // nil: no control groups
	groupCount atomic.Uint64

	looking sync.Mutex // held while refresh looks
	seen    uint64     // guarded by looking: the state of the mounts that hidden is of

	mu       sync.Mutex
	hidden   []string         // guarded by mu: Config.Hidden, and where else it can be seen
	profiles map[Mode]profile // guarded by mu
	family   family
	pool     *pool
	reaper   *reaper
	closed   sync.Once
}

// startTimeout bounds how long a runner may take to start a command, so that a
// working directory on a dead network file system costs one request and no more.
const startTimeout = 10 * time.Second

// New probes the host and starts the waiting runners. A host that can confine nothing is no error: the
// report says so, and confined commands are refused. What is asked for and cannot be had is one.
func New(ctx context.Context, cfg Config) (*Sandbox, error) {
	return newSandbox(ctx, cfg, landlockABI)
}

// newSandbox is New with a kernel whose Landlock is what abi says.
func newSandbox(ctx context.Context, cfg Config, landlock func() (int, error)) (_ *Sandbox, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.RunAs != nil && os.Geteuid() != 0 {
		return nil, errors.New("commands can run as another user only where the daemon is root")
	}
	if cfg.RunAs != nil && (cfg.RunAs.UID == 0 || cfg.RunAs.GID == 0) {
		return nil, errors.New("commands cannot be told to run as root")
	}
	hidden := []string{"/dev", canonical(cfg.Scratch)}
	for _, h := range cfg.Hidden {
		hidden = append(hidden, canonical(h))
	}
	slices.Sort(hidden) // a directory before what lies in it, which is hidden with it
	cfg.Hidden = slices.Compact(hidden)
	if cfg.TempBytes == 0 {
		cfg.TempBytes = defaultTemp()
	}
	cfg.Limits = cfg.Limits.capped()
	s := &Sandbox{cfg: cfg}
	if cfg.Groups {
		if s.groups, err = cgroup.Open(cfg.Logger); err != nil {
			cfg.Logger.Debug("no control groups", "reason", err)
		}
	}
	if cfg.Limits.MemoryBytes > 0 && (s.groups == nil || !s.groups.Memory()) {
		return nil, errors.Join(ErrNoMemoryLimit, err)
	}
	s.family.profile = func(m Mode) profile {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.profiles[m]
	}
	s.tier = TierNone
	s.describe()
	s.effects = map[Mode][]prober.Result{}
	s.pool = newPool(&s.family, cfg.Warm, cfg.Logger)
	s.report = s.choose(ctx, landlock)
	if cfg.Subreaper {
		r, err := newReaper(&s.family, cfg.Logger)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.reaper = r
	}
	if s.report.Tier != TierNone {
		s.pool.want(ReadOnly)
	}
	return s, nil
}

// choose finds the strongest tier that this host allows, by trying.
func (s *Sandbox) choose(ctx context.Context, landlock func() (int, error)) Report {
	abi, err := landlock()
	if err != nil {
		return unavailable(err.Error())
	}
	s.abi, s.layers.abi = abi, abi
	s.seen = s.pool.mounts.state()
	if err := s.look(); err != nil {
		return unavailable(err.Error())
	}
	if s.domain, err = sweeperDomain(abi); err != nil {
		return unavailable(err.Error())
	}
	if s.filter, err = filters(); err != nil {
		return unavailable(err.Error())
	}
	var stronger []string
	report := unavailable("no tier was tried")
	for _, tier := range s.tiers() {
		s.tier = tier
		s.describe()
		if report = s.probe(ctx); report.Tier != TierNone {
			break
		}
		stronger = append(stronger, fmt.Sprintf("tier %s: %s", tier, report.ReadOnly.Unavailable))
	}
	report.Stronger = stronger
	return report
}

// tiers lists what to try, the strongest first.
func (s *Sandbox) tiers() []string {
	if s.cfg.Tier != "" {
		return []string{s.cfg.Tier}
	}
	if s.cfg.RunAs != nil {
		return []string{TierNamespaces, TierUser}
	}
	return []string{TierNamespaces, TierLandlock}
}

// namespaced reports that commands of that mode have namespaces of their own.
func (s *Sandbox) namespaced(m Mode) bool { return m.Confined() && s.tier == TierNamespaces }

// PrivateTemp reports that commands of that mode find /tmp and /dev/shm private, and need no temporary directory made for
// them.
func (s *Sandbox) PrivateTemp(m Mode) bool { return s.namespaced(m) }

// Limits are the limits that every command gets.
func (s *Sandbox) Limits() Limits { return s.cfg.Limits }

// Report tells what is enforced on this host.
func (s *Sandbox) Report() Report { return s.report }

// Effects tells what the probe tried under a confined mode and what became of it; nil where it did not come to its end.
func (s *Sandbox) Effects(m Mode) []prober.Result { return slices.Clone(s.effects[m]) }

// Trees lists the pids of the runners; every process of a command is below one of them.
func (s *Sandbox) Trees() []int { return s.family.pids() }

// Close ends every runner and so every command, and waits for them.
func (s *Sandbox) Close() {
	s.closed.Do(func() {
		s.pool.close()
		s.family.dismissAll()
		s.family.wg.Wait()
		s.layers.close()
		s.domain.close()
		if s.groups != nil {
			if err := s.groups.Close(); err != nil {
				s.cfg.Logger.Warn("a control group is left behind", "error", err)
			}
		}
		if s.reaper != nil {
			s.reaper.close()
		}
	})
}

// Policy makes the policy for one command. root and temp must exist and be
// canonical (temp only where [Sandbox.PrivateTemp] does not hold); readable are the directories inside hidden ones that stay readable, one
// of which holds temp.
func (s *Sandbox) Policy(mode Mode, root, temp string, readable []string) (Policy, error) {
	if !slices.Contains(modes, mode) {
		return Policy{}, fmt.Errorf("unknown mode %q", mode)
	}
	p := Policy{mode: mode, root: root, temp: temp, readable: readable}
	if mode == FullAccess {
		return p, nil
	}
	if err := s.followMounts(); err != nil {
		return Policy{}, err
	}
	p.hidden = s.hiddenNow()
	if s.PrivateTemp(mode) {
		p.temp, p.private = "", privateDirs
	}
	for _, dir := range p.private {
		if within(dir, root) {
			return Policy{}, fmt.Errorf("%q cannot be a workspace: commands have a %s of their own", root, dir)
		}
	}
	for _, dir := range p.writable() {
		if !filepath.IsAbs(dir) || dir == "/" {
			return Policy{}, fmt.Errorf("%q cannot be a writable root", dir)
		}
		for _, h := range p.hidden {
			if dir != h && within(h, dir) {
				return Policy{}, fmt.Errorf("%q cannot be a writable root: it holds the hidden path %q", dir, h)
			}
		}
	}
	return p, nil
}

// Command is what Start runs.
type Command struct {
	Policy      Policy
	Script      string   // the command, 1 byte to 1 MiB, without NUL
	Workdir     string   // absolute
	Env         []string // NAME=value, complete
	WantStdin   bool     // else the command reads /dev/null
	MergeStderr bool     // both streams through one pipe

	program *program // instead of Script; of the probe only
}

// Start starts c and returns when its program was executed. Errors:
// [UnavailableError], [StartError], [WorkdirError], or ctx's.
func (s *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	if reason := s.report.unavailable(c.Policy.mode); reason != "" {
		return nil, &UnavailableError{"probe", reason}
	}
	if c.Policy.mode.Confined() {
		if err := s.refresh(); err != nil {
			return nil, &UnavailableError{runner.StageMasks.String(), err.Error()}
		}
	}
	s.pool.want(c.Policy.mode)
	return s.start(ctx, s.sort(c.Policy), c)
}

// start is Start without a look at the report, which the probe is still making. sort names the commands whose runner may
// serve this one; empty: none.
func (s *Sandbox) start(ctx context.Context, sort string, c Command) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := &launch{}
	defer l.release()
	job, err := s.prepare(l, c)
	if err != nil {
		return nil, err
	}
	h, err := s.engage(c.Policy.mode, sort, job, l.fds)
	if err != nil {
		return nil, engageFailure(c, err)
	}
	p := &Process{Stdin: l.stdin, Stdout: l.stdout, Stderr: l.stderr, h: h, give: s.pool.give, exited: make(chan struct{}), gone: make(chan struct{})}
	l.stdin, l.stdout, l.stderr = nil, nil, nil
	go p.watch()
	return p, nil
}

// sort names the commands that a runner may serve one after another. Without
// the system call filter a command can do things to its runner from outside, so that none serves twice.
func (s *Sandbox) sort(p Policy) string {
	if s.filter == nil {
		return ""
	}
	return p.sort()
}

// engage has a runner start the job, a waiting one if there is one. One that was lost while it waited, or has lost what was to become the
// command, is no reason to fail: nothing ran.
func (s *Sandbox) engage(m Mode, sort string, job *runner.Job, fds []int) (*handle, error) {
	h, err := s.pool.take(m, sort)
	if err != nil {
		return nil, err
	}
	if err = h.begin(job, fds); err == nil {
		return h, nil
	}
	h.dismiss()
	if !lostWaiting(err) {
		return nil, err
	}
	if h, err = s.family.spawn(m); err != nil {
		return nil, err
	}
	h.served = sort
	if err = h.begin(job, fds); err != nil {
		h.dismiss()
		return nil, err
	}
	return h, nil
}

// lostWaiting reports that an error of begin says that runner or process were gone before.
func lostWaiting(err error) bool {
	if failed, ok := errors.AsType[*runner.StartError](err); ok {
		return failed.Stage == runner.StageClone && failed.Errno == unix.ECHILD
	}
	_, silent := errors.AsType[*silence](err)
	return !silent && (errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET))
}

// silence says that a runner that was given a job did not tell what became of it.
type silence struct{ why error }

func (e *silence) Error() string { return e.why.Error() }
func (e *silence) Unwrap() error { return e.why }

// begin gives the runner a job and waits for the record that says that the command runs, or why not. Errors are [runner.StartError],
// silence, or those of the socket; only after the second something may have run.
func (h *handle) begin(job *runner.Job, fds []int) error {
	if err := h.assign(job, fds); err != nil {
		return err
	}
	rec, err := h.receive(time.Now().Add(startTimeout))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &silence{fmt.Errorf("the runner did not start the command within %v", startTimeout)}
	case err != nil:
		return &silence{fmt.Errorf("the runner ended before the command ran: %w", err)}
	case rec.Kind == runner.KindFailed:
		return &runner.StartError{Stage: runner.Stage(rec.A), Errno: unix.Errno(rec.B)}
	case rec.Kind != runner.KindExec:
		return &silence{fmt.Errorf("the runner sent an unexpected record %q", rec.Kind)}
	}
	return nil
}

// engageFailure turns an error of engage into one of those that Start returns.
func engageFailure(c Command, err error) error {
	if failed, ok := errors.AsType[*runner.StartError](err); ok {
		return startFailure(c.Policy.mode, c.Workdir, failed)
	}
	if _, ok := errors.AsType[*silence](err); !ok {
		return &StartError{spawnKind(err), err}
	}
	if c.Policy.mode.Confined() {
		return &UnavailableError{"runner", err.Error()}
	}
	return &StartError{KindInternal, err}
}

func spawnKind(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return cloneKind(errno)
	}
	return KindInternal
}

// dismissAll ends every runner.
func (f *family) dismissAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.members {
		h.dismiss()
	}
}
