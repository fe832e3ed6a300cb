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
	"time"

	"golang.org/x/sys/unix"

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
	Logger    *slog.Logger
}

// Sandbox starts confined commands. Safe for concurrent use.
type Sandbox struct {
	cfg    Config
	abi    int
	report Report
	layers readLayers
	filter string   // the system call filter of confined commands; empty where this host has none
	domain *ruleset // the sweeper's; nil where trees are killed without one
	family family
	pool   *pool
	reaper *reaper
	closed sync.Once
}

// startTimeout bounds how long a runner may take to start a command, so that a
// working directory on a dead network file system costs one request and no more.
const startTimeout = 10 * time.Second

// New probes the host and starts the waiting runners. A host that can confine nothing is no error: the
// report says so, and confined commands are refused.
func New(ctx context.Context, cfg Config) (*Sandbox, error) {
	return newSandbox(ctx, cfg, landlockABI)
}

// newSandbox is New with a kernel whose Landlock is what abi says.
func newSandbox(ctx context.Context, cfg Config, landlock func() (int, error)) (*Sandbox, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	hidden := []string{"/dev", canonical(cfg.Scratch)}
	for _, h := range cfg.Hidden {
		hidden = append(hidden, canonical(h))
	}
	cfg.Hidden = hidden
	s := &Sandbox{cfg: cfg}
	if cfg.Subreaper {
		r, err := newReaper(&s.family, cfg.Logger)
		if err != nil {
			return nil, err
		}
		s.reaper = r
	}
	s.pool = newPool(&s.family, cfg.Warm, cfg.Logger)
	abi, err := landlock()
	s.abi = abi
	s.layers.abi, s.layers.hidden = abi, cfg.Hidden
	if err != nil {
		s.report = unavailable(err.Error())
		return s, nil
	}
	if s.domain, err = sweeperDomain(abi); err != nil {
		s.report = unavailable(err.Error())
		return s, nil
	}
	if seccompUsable() {
		filter, err := buildFilter()
		if err != nil {
			s.report = unavailable(err.Error())
			return s, nil
		}
		s.filter = string(filter)
	}
	s.report = s.probe(ctx)
	return s, nil
}

// Limits are the limits that every command gets.
func (s *Sandbox) Limits() Limits { return s.cfg.Limits }

// Report tells what is enforced on this host.
func (s *Sandbox) Report() Report { return s.report }

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
		if s.reaper != nil {
			s.reaper.close()
		}
	})
}

// Policy makes the policy for one command. root and temp must exist and be
// canonical; readable are the directories inside hidden ones that stay readable, one
// of which holds temp.
func (s *Sandbox) Policy(mode Mode, root, temp string, readable []string) (Policy, error) {
	if !slices.Contains(modes, mode) {
		return Policy{}, fmt.Errorf("unknown mode %q", mode)
	}
	p := Policy{mode: mode, root: root, temp: temp, readable: readable, hidden: s.cfg.Hidden}
	if mode == FullAccess {
		return p, nil
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
}

// Start starts c and returns when its program was executed. Errors:
// [UnavailableError], [StartError], [WorkdirError], or ctx's.
func (s *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	if reason := s.report.unavailable(c.Policy.mode); reason != "" {
		return nil, &UnavailableError{"probe", reason}
	}
	return s.start(ctx, c)
}

// start is Start without a look at the report, which the probe is still making.
func (s *Sandbox) start(ctx context.Context, c Command) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := &launch{}
	defer l.release()
	job, err := s.prepare(l, c)
	if err != nil {
		return nil, err
	}
	h, err := s.engage(s.sort(c.Policy), job, l.fds)
	if err != nil {
		return nil, &StartError{spawnKind(err), err}
	}
	pid, err := awaitExec(h)
	if err != nil {
		h.dismiss()
		var failed *runner.StartError
		if errors.As(err, &failed) {
			return nil, startFailure(c.Policy.mode, c.Workdir, failed)
		}
		if c.Policy.mode.Confined() {
			return nil, &UnavailableError{"runner", err.Error()}
		}
		return nil, &StartError{KindInternal, err}
	}
	p := &Process{Stdin: l.stdin, Stdout: l.stdout, Stderr: l.stderr, h: h, give: s.pool.give, pid: pid, exited: make(chan struct{}), gone: make(chan struct{})}
	l.stdin, l.stdout, l.stderr = nil, nil, nil
	go p.watch()
	return p, nil
}

// sort names the commands that a runner may serve one after another. Without
// the system call filter a command can do things to its runner from outside, so that none serves twice.
func (s *Sandbox) sort(p Policy) string {
	if s.filter == "" {
		return ""
	}
	return p.sort()
}

// engage hands the job to a waiting runner; one that died while it waited is
// no reason to fail.
func (s *Sandbox) engage(sort string, job *runner.Job, fds []int) (*handle, error) {
	h, err := s.pool.take(sort)
	if err != nil {
		return nil, err
	}
	if err = h.assign(job, fds); err == nil {
		return h, nil
	}
	h.dismiss()
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return nil, err
	}
	if h, err = s.family.spawn(); err != nil {
		return nil, err
	}
	if err = h.assign(job, fds); err != nil {
		h.dismiss()
		return nil, err
	}
	return h, nil
}

func spawnKind(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return cloneKind(errno)
	}
	return KindInternal
}

// awaitExec waits for the record that says that the command runs, or why not.
func awaitExec(h *handle) (pid int, err error) {
	rec, err := h.receive(time.Now().Add(startTimeout))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, fmt.Errorf("the runner did not start the command within %v", startTimeout)
	case err != nil:
		return 0, fmt.Errorf("the runner ended before the command ran: %w", err)
	case rec.Kind == runner.KindFailed:
		return 0, &runner.StartError{Stage: runner.Stage(rec.A), Errno: unix.Errno(rec.B)}
	case rec.Kind != runner.KindExec:
		return 0, fmt.Errorf("the runner sent an unexpected record %q", rec.Kind)
	}
	return int(rec.A), nil
}

// dismissAll ends every runner.
func (f *family) dismissAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.members {
		h.dismiss()
	}
}
