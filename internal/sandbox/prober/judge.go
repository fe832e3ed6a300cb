package prober

import (
	"fmt"
	"slices"
	"syscall"
)

// Judge tells what the prober did, from what it printed and from what is seen on the scene: a change of an object marks the effect
// that it belongs to, whatever the prober says of it, and what must work has to have left its trace. The results are those of
// [Effects], in that order. The prober must have ended.
//
// An error means that nothing can be said: the prober did not run to its end, printed nonsense, or the scene cannot be looked at.
func (s *Scene) Judge(printed []byte) ([]Result, error) {
	list := probes()
	outcomes, err := parse(printed, list, s.nonce)
	if err != nil {
		return nil, err
	}
	seen, err := s.observe()
	if err != nil {
		return nil, fmt.Errorf("looking at what the prober did: %w", err)
	}
	results := make([]Result, len(list))
	for i, p := range list {
		results[i] = s.judgeOne(i, p, outcomes[i], seen)
	}
	explained := func(names []string) bool {
		return slices.ContainsFunc(results, func(r Result) bool { return r.Did && slices.Contains(names, r.Effect.Name) })
	}
	return append(
		results,
		Result{Effect: outsideChanged, Did: seen.unknown(list)},
		Result{Effect: victimChanged, Did: slices.ContainsFunc(seen.victim, func(names []string) bool { return !explained(names) })},
		Result{Effect: victimEnded, Did: seen.ended},
	), nil
}

func (s *Scene) judgeOne(index int, p probe, o outcome, seen *observation) Result {
	r := Result{Effect: p.Effect, Did: o.state == did, Errno: o.errno, Skipped: o.why}
	signalled := p.needs&needVictim != 0 && seen.signals[byte(signalOf(index))]
	switch {
	case p.Class == ClassWorks:
		// Of the temporary directory, which can be out of sight, the prober's word has to do.
		if p.needs&needTrace != 0 && r.Did {
			r.Did = seen.workspace[p.Name]
		}
	case signalled || seen.outside[p.Name] || seen.workspace[p.Name] && !s.Workspace:
		r.Did = true
	}
	if r.Did {
		r.Errno, r.Skipped = 0, ""
	}
	return r
}

// signalOf is the signal of the probe with that index.
func signalOf(index int) syscall.Signal { return firstSignal + syscall.Signal(index%signals) }

// observation is what is seen on the scene after a run.
type observation struct {
	outside   map[string]bool // probes whose objects outside or hidden have changed
	workspace map[string]bool // the same for those in the workspace
	stray     bool            // a change that belongs to no probe
	signals   map[byte]bool   // those that the victim got
	victim    [][]string      // for each change of the victim, the effects that would explain it
	ended     bool            // the victim has ended
}

// unknown reports a change that belongs to no probe.
func (o *observation) unknown(list []probe) bool {
	if o.stray {
		return true
	}
	for name := range o.outside {
		if !slices.ContainsFunc(list, func(p probe) bool { return p.Name == name }) {
			return true
		}
	}
	return false
}

// tops are the directories that are looked at.
func (s *Scene) tops() []string { return []string{s.Outside(), s.Hidden(), s.Root()} }

func (s *Scene) look() (map[string]snapshot, error) {
	all := map[string]snapshot{}
	for _, top := range s.tops() {
		var err error
		if all[top], err = take(top); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *Scene) observe() (*observation, error) {
	o := &observation{outside: map[string]bool{}, signals: map[byte]bool{}}
	s.observeVictim(o)
	now, err := s.look()
	if err != nil {
		return nil, err
	}
	for _, top := range s.tops() {
		changed := s.before[top].changes(now[top])
		switch {
		case top == s.Root():
			o.workspace = changed
			o.stray = o.stray || changed[""] && !s.Workspace
			continue
		case changed[""]:
			o.stray = true
		}
		delete(changed, "")
		for name := range changed {
			o.outside[name] = true
		}
	}
	return o, nil
}

func (s *Scene) observeVictim(o *observation) {
	numbers, ok := s.victim.signals()
	for _, n := range numbers {
		o.signals[n] = true
	}
	now, err := s.victim.state()
	if !ok || err != nil {
		o.ended = true
		return
	}
	before := s.victim.before
	for _, c := range []struct {
		changed bool
		by      []string
	}{
		{before.nice != now.nice, []string{"victim-nice-lower", "victim-setpriority", "victim-schedattr"}},
		{before.policy != now.policy, []string{"victim-scheduler", "victim-schedattr"}},
		{before.ioprio != now.ioprio, []string{"victim-ioprio-lower", "victim-ioprio"}},
		{before.limits != now.limits, []string{"victim-limit-lower"}},
		{before.processors != now.processors, []string{"victim-affinity"}},
		{before.oom != now.oom || before.slack != now.slack || before.name != now.name, nil},
	} {
		if c.changed {
			o.victim = append(o.victim, c.by)
		}
	}
}
