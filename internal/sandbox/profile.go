package sandbox

import (
	"strconv"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/cgroup"
	"bashd/internal/sandbox/filter"
	"bashd/internal/sandbox/runner"
)

// How much nicer than the daemon commands are, and their OOM score, such that it outlives them.
const (
	nicer      = 5
	commandOOM = 500
)

func niceness() int {
	// The system call answers 20 less the niceness.
	if n, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		return min(20-n+nicer, 19)
	}
	return nicer
}

// describe works out what commands of each mode have in common, which follows from the tier, and from what is hidden with the mounts that
// were seen last. Callers hold looking, or are the only one.
func (s *Sandbox) describe() {
	profiles := map[Mode]profile{}
	for _, m := range modes {
		profiles[m] = s.profileOf(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.profiles = profiles
}

func (s *Sandbox) profileOf(m Mode) profile {
	p := profile{namespaced: s.namespaced(m), ruleset: -1, mounts: s.seen}
	setup := &runner.Setup{Nice: niceness(), Slack: timerSlack(), OOMScore: commandOOM}
	if c := s.cfg.RunAs; c != nil {
		setup.SetUser, setup.UID, setup.GID = true, c.UID, c.GID
	}
	if m.Confined() {
		setup.DropCaps, setup.NoNewPriv, setup.Filter = true, true, s.filterOf(m)
	}
	switch {
	case p.namespaced:
		setup.World = s.world()
	case m.Confined() && s.domain != nil:
		setup.Sweeper, p.ruleset = true, s.domain.fd
	}
	if s.grouped(m) {
		setup.Group, p.group = true, s.newGroup
	}
	p.setup = setup.Append(nil)
	return p
}

// grouped reports that commands of that mode have a control group: where one limits them, and where one is the only
// fast way to kill them.
func (s *Sandbox) grouped(m Mode) bool {
	l := s.cfg.Limits
	return s.groups != nil && (m == FullAccess || l.MemoryBytes > 0 || l.Processes > 0 && s.groups.Pids())
}

func (s *Sandbox) newGroup() (*cgroup.Group, error) {
	l := cgroup.Limits{MemoryBytes: s.cfg.Limits.MemoryBytes}
	if s.groups.Pids() {
		l.Processes = s.cfg.Limits.Processes
	}
	return s.groups.New("runner-"+strconv.FormatUint(s.groupCount.Add(1), 10), l)
}

// filters are the system call filters, by whether metadata may be changed; nil where the kernel takes none.
func filters() (map[bool]string, error) {
	if !filter.Usable() {
		return nil, nil
	}
	all := map[bool]string{}
	for _, metadata := range []bool{true, false} {
		program, err := filter.Program(filter.Options{Metadata: metadata})
		if err != nil {
			return nil, err
		}
		all[metadata] = string(program)
	}
	return all, nil
}

// filterOf is the filter for a mode. Where nothing but the filter protects the metadata of files, it refuses
// every change of them under read-only.
func (s *Sandbox) filterOf(m Mode) string {
	return s.filter[s.tier == TierNamespaces || m == WorkspaceWrite]
}
