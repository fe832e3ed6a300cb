package main

import (
	"fmt"
	"slices"
	"strings"

	"bashd/internal/sandbox"
	"bashd/internal/sandbox/prober"
)

// probeReport is what `bashd probe` prints, and its JSON.
type probeReport struct {
	Tier         string         `json:"tier"`
	ABI          int            `json:"abi"` // of Landlock
	Cleanup      string         `json:"cleanup"`
	RunAs        bool           `json:"runAs"`
	UID          uint32         `json:"uid"` // of commands
	ProcessLimit string         `json:"processLimit"`
	MemoryLimit  bool           `json:"memoryLimit"`
	Stronger     []string       `json:"stronger"` // why stronger tiers cannot be used
	DefaultMode  sandbox.Mode   `json:"defaultMode"`
	Modes        []probedMode   `json:"modes"`
	Effects      []probedEffect `json:"effects"`
}

type probedMode struct {
	Mode        sandbox.Mode `json:"mode"`
	Enforcement string       `json:"enforcement,omitempty"` // empty: see unavailable
	Gaps        []string     `json:"gaps"`
	Unavailable string       `json:"unavailable,omitempty"`
}

type probedEffect struct {
	Name  string                         `json:"name"`
	Class prober.Class                   `json:"class"`
	Text  string                         `json:"text"`
	Modes map[sandbox.Mode]probedOutcome `json:"modes"`
}

type probedOutcome struct {
	Did      bool   `json:"did"`
	Errno    string `json:"errno,omitempty"`
	Skipped  string `json:"skipped,omitempty"`
	ClosedBy string `json:"closedBy"`
}

// refusal says why commands of the default mode would be refused; empty: they would not.
func (p *probeReport) refusal() string {
	for _, m := range p.Modes {
		if m.Mode == p.DefaultMode {
			return m.Unavailable
		}
	}
	return ""
}

// What the report's words mean, for people.
var (
	tierWords = map[string]string{
		sandbox.TierNamespaces: "a file tree, process ids and IPC of the command's own, and Landlock",
		sandbox.TierUser:       "a user of the command's own, and Landlock",
		sandbox.TierLandlock:   "Landlock, as bashd's own user",
		sandbox.TierOld:        "an old Landlock, as bashd's own user",
		sandbox.TierNone:       "nothing here can confine commands",
	}
	cleanupWords = map[string]string{
		sandbox.CleanupNamespace: "the kernel ends everything in the command's pid namespace",
		sandbox.CleanupDomain:    "one signal to everything in the command's Landlock domain",
		sandbox.CleanupSubreaper: "descendants, until none is left",
	}
	processWords = map[string]string{
		sandbox.ProcessesCgroup:    "exactly, by a control group",
		sandbox.ProcessesUserNS:    "exactly, in a user namespace of the command's own",
		sandbox.ProcessesPidNS:     "up to 300 more, in a pid namespace of the command's own",
		sandbox.ProcessesUser:      "together with what their user runs besides",
		sandbox.ProcessesUnlimited: "not at all: uid 0 has no limit",
	}
)

// classes are those of effects, in the order in which they are printed.
var classes = []struct {
	class prober.Class
	text  string
}{
	{prober.ClassWrite, "changing files and names outside"},
	{prober.ClassTruncate, "truncating files outside"},
	{prober.ClassMetadata, "changing modes, owners and attributes outside"},
	{prober.ClassTimestamps, "changing times outside"},
	{prober.ClassHidden, "reading or writing hidden files"},
	{prober.ClassHiddenNames, "listing hidden directories"},
	{prober.ClassHiddenSockets, "reaching hidden sockets and metadata"},
	{prober.ClassDevices, "opening devices"},
	{prober.ClassDeviceIoctl, "reaching drivers by ioctl"},
	{prober.ClassInherited, "using descriptors that were not given"},
	{prober.ClassSignals, "signalling others' processes"},
	{prober.ClassSecrets, "looking into others' processes"},
	{prober.ClassScheduling, "limiting and slowing others' processes"},
	{prober.ClassCommandLines, "reading others' command lines"},
	{prober.ClassAbstractSockets, "reaching abstract unix sockets"},
	{prober.ClassPrivilege, "privileges, and calls without business"},
	{prober.ClassProcessLimit, "exceeding the limit on processes"},
	{prober.ClassWorks, "what commands need"},
}

// text is the report for people. With all, every effect has a line.
func (p *probeReport) text(all bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tier %s: %s\n\n", p.Tier, tierWords[p.Tier])
	row := func(name, value string) { fmt.Fprintf(&b, "  %-20s%s\n", name, value) }
	row("Landlock ABI", fmt.Sprint(p.ABI))
	user := fmt.Sprintf("uid %d, bashd's own", p.UID)
	if p.RunAs {
		user = fmt.Sprintf("uid %d (BASHD_RUN_AS)", p.UID)
	}
	row("commands run as", user)
	row("trees are killed", p.Cleanup+": "+cleanupWords[p.Cleanup])
	row("processes limited", p.ProcessLimit+": "+processWords[p.ProcessLimit])
	memory := "no: that takes a delegated cgroup v2 subtree"
	if p.MemoryLimit {
		memory = "where BASHD_MAX_MEMORY_BYTES is set"
	}
	row("memory limited", memory)
	for _, why := range p.Stronger {
		row("not used", why)
	}
	for _, m := range p.Modes {
		p.writeMode(&b, m)
	}
	p.writeNotable(&b)
	if all {
		p.writeEffects(&b)
	} else if len(p.Effects) > 0 {
		fmt.Fprintf(&b, "\n%d effects were tried in each mode; bashd probe -v shows each of them.\n", len(p.Effects))
	}
	return b.String()
}

// writeMode writes what is enforced of a mode, a line for each class.
func (p *probeReport) writeMode(b *strings.Builder, m probedMode) {
	name := string(m.Mode)
	if m.Mode == p.DefaultMode {
		name += " (the default)"
	}
	if m.Unavailable != "" {
		fmt.Fprintf(b, "\n%s: REFUSED, its commands do not run\n  %s\n", name, m.Unavailable)
		return
	}
	gaps := "no gaps"
	if len(m.Gaps) > 0 {
		gaps = "gaps: " + strings.Join(m.Gaps, ", ")
	}
	fmt.Fprintf(b, "\n%s: %s; %s\n", name, m.Enforcement, gaps)
	for _, c := range classes {
		var tally tally
		for _, e := range p.Effects {
			if o, tried := e.Modes[m.Mode]; tried && e.Class == c.class {
				tally.add(o.ClosedBy)
			}
		}
		if len(tally) > 0 {
			fmt.Fprintf(b, "  %-47s%s\n", c.text, tally)
		}
	}
}

// writeNotable writes a line for each effect that came out as it should not.
func (p *probeReport) writeNotable(b *strings.Builder) {
	heading := "\nWhat is not prevented:\n"
	for _, c := range classes {
		about := ""
		for _, e := range p.Effects {
			in := e.notableIn(p.Modes)
			if e.Class != c.class || in == "" {
				continue
			}
			if now := "  " + c.text + ", " + in + "\n"; now != about {
				fmt.Fprintf(b, "%s%s", heading, now)
				heading, about = "", now
			}
			fmt.Fprintf(b, "    %s\n", e.Text)
		}
	}
}

// notableIn names the modes in which an effect came out as it should not.
func (e probedEffect) notableIn(modes []probedMode) string {
	var in []string
	for _, m := range modes {
		if o, tried := e.Modes[m.Mode]; tried && notable(e, o) {
			in = append(in, string(m.Mode))
		}
	}
	if len(in) > 1 && len(in) == len(modes) {
		return "in both modes"
	}
	if len(in) == 0 {
		return ""
	}
	return "in " + strings.Join(in, ", ")
}

// notable reports that an effect came out as it should not.
func notable(e probedEffect, o probedOutcome) bool {
	if e.Class == prober.ClassWorks {
		return !o.Did && o.Skipped == ""
	}
	return o.ClosedBy == "HAPPENED"
}

// tally counts outcomes.
type tally []struct {
	outcome string
	n       int
}

func (t *tally) add(outcome string) {
	for i := range *t {
		if (*t)[i].outcome == outcome {
			(*t)[i].n++
			return
		}
	}
	*t = append(*t, struct {
		outcome string
		n       int
	}{outcome, 1})
}

// String tells the outcomes, the most frequent first: those that were refused together.
func (t tally) String() string {
	t = slices.Clone(t)
	slices.SortStableFunc(t, func(a, b struct {
		outcome string
		n       int
	},
	) int {
		return b.n - a.n
	})
	var refused, other []string
	total := 0
	for _, o := range t {
		if why, ok := strings.CutPrefix(o.outcome, "refused ("); ok {
			refused = append(refused, fmt.Sprintf("%d %s", o.n, strings.TrimSuffix(why, ")")))
			total += o.n
			continue
		}
		other = append(other, fmt.Sprintf("%d %s", o.n, o.outcome))
	}
	if total > 0 {
		other = append([]string{fmt.Sprintf("%d refused (%s)", total, strings.Join(refused, "; "))}, other...)
	}
	return strings.Join(other, ", ")
}

// writeEffects writes a line for each effect. Where the modes differ each has its outcome.
func (p *probeReport) writeEffects(b *strings.Builder) {
	for _, c := range classes {
		heading := "\n" + c.text + " [" + string(c.class) + "]\n"
		for _, e := range p.Effects {
			if e.Class == c.class {
				fmt.Fprintf(b, "%s  %-78s  %s\n", heading, e.Text, e.outcomes(p.Modes))
				heading = ""
			}
		}
	}
}

func (e probedEffect) outcomes(modes []probedMode) string {
	var each []string
	same := true
	for _, m := range modes {
		if o, ok := e.Modes[m.Mode]; ok {
			each = append(each, string(m.Mode)+": "+o.ClosedBy)
			same = same && o.ClosedBy == e.Modes[modes[0].Mode].ClosedBy
		}
	}
	if same {
		return e.Modes[modes[0].Mode].ClosedBy
	}
	return strings.Join(each, " · ")
}
