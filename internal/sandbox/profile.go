package sandbox

import "bashd/internal/sandbox/runner"

// Niceness and OOM score of commands, such that the daemon outlives them.
const (
	commandNice = 5
	commandOOM  = 500
)

// use makes a tier the one in use: what commands of each mode have in common follows from it.
func (s *Sandbox) use(tier string) {
	s.tier, s.profiles = tier, map[Mode]profile{}
	for _, m := range modes {
		s.profiles[m] = s.profileOf(m)
	}
}

func (s *Sandbox) profileOf(m Mode) profile {
	p := profile{namespaced: s.namespaced(m), ruleset: -1}
	setup := &runner.Setup{Nice: commandNice, OOMScore: commandOOM}
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
	p.setup = setup.Append(nil)
	return p
}
