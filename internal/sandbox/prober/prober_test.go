package prober

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEffects(t *testing.T) {
	classes := []Class{
		ClassWrite, ClassTruncate, ClassMetadata, ClassTimestamps, ClassHidden, ClassHiddenNames, ClassHiddenSockets, ClassDevices,
		ClassDeviceIoctl, ClassSignals, ClassScheduling, ClassSecrets, ClassPrivilege, ClassAbstractSockets, ClassCommandLines,
		ClassProcessLimit, ClassInherited, ClassWorks,
	}
	seen, used := map[string]bool{}, map[Class]bool{}
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`) // a dot would end the name in a path, a blank in the output
	for _, e := range Effects() {
		if seen[e.Name] {
			t.Errorf("two effects are called %s", e.Name)
		}
		if !name.MatchString(e.Name) || e.Text == "" || strings.ContainsAny(e.Text, "\n\t") || !slices.Contains(classes, e.Class) {
			t.Errorf("malformed: %+v", e)
		}
		seen[e.Name], used[e.Class] = true, true
	}
	if len(used) != len(classes) || len(seen) < 150 {
		t.Errorf("%d effects of %d classes", len(seen), len(used))
	}
	signals, calls := map[unix.Signal]string{}, 0
	for i, p := range probes() {
		if (p.try == nil) == (p.call == nil) {
			t.Errorf("%s: try or call?", p.Name)
		}
		if p.call != nil {
			calls++
		}
		if p.needs&needVictim != 0 {
			if other, taken := signals[signalOf(i)]; taken || signalOf(i) >= lastSignal {
				t.Errorf("%s has the signal of %s", p.Name, other)
			}
			signals[signalOf(i)] = p.Name
		}
	}
	if calls > maxCalls {
		t.Errorf("%d calls are too many", calls)
	}
}

// beyond are probes that fail although nothing confines the prober: the kernel itself refuses them, to whoever has no capability, or the host
// lacks what they are about.
var beyond = []string{
	"mmap-read-only", "ftruncate-read-only", "x32-truncate", "x32-chmod", "i386-chmod", "chmod-stdin", "utimens-stdin",
	"removexattrat", "setxattrat", "file-setattr", "fchmodat2", "fchmodat2-fd", "setversion", "setflags", "setxflags",
	"hidden-handle", "hidden-directory-rename",
}

// openTo is what an unconfined command of the same user can do on any host.
var openTo = []Class{
	ClassWrite, ClassTruncate, ClassMetadata, ClassTimestamps, ClassHidden, ClassHiddenNames, ClassHiddenSockets, ClassAbstractSockets,
	ClassCommandLines, ClassInherited, ClassWorks,
}

func TestUnconfined(t *testing.T) {
	for _, workspace := range []bool{false, true} {
		s := prepare(t, ownIDs())
		s.Workspace = workspace
		results, err := s.Judge(runProber(t, s, ownIDs()))
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range Effects() {
			if results[i].Effect != e {
				t.Fatalf("result %d is about %s instead of %s", i, results[i].Effect.Name, e.Name)
			}
		}
		for _, r := range results {
			if slices.Contains(openTo, r.Effect.Class) && !r.Did && r.Skipped == "" && r.Effect != outsideChanged && !slices.Contains(beyond, r.Effect.Name) {
				t.Errorf("%s (%s): %v", r.Effect.Name, r.Effect.Text, r.Errno)
			}
			if name, ok := strings.CutPrefix(r.Effect.Name, "victim-"); ok && !r.Did && name != "changed" && name != "ended" && name != "proc-clear-refs" {
				t.Errorf("%s: %v %s", r.Effect.Name, r.Errno, r.Skipped)
			}
			switch r.Effect {
			case outsideChanged, victimChanged, victimEnded:
				if r.Did {
					t.Errorf("%s, and nobody did it", r.Effect.Name)
				}
			}
			if r.Did && (r.Errno != 0 || r.Skipped != "") {
				t.Errorf("contradictory: %+v", r)
			}
		}
		wantSkipped(t, byName(results), workspace)
	}
}

// wantSkipped checks that a mode is held to what it allows, and to nothing else.
func wantSkipped(t *testing.T, results map[string]Result, workspace bool) {
	t.Helper()
	for name, r := range results {
		works, changes := strings.HasPrefix(name, "ws-works-"), strings.HasPrefix(name, "ws-")
		if works && (r.Skipped == "") != workspace || !works && changes && (r.Skipped == "") == workspace {
			t.Errorf("workspace %v: %s is skipped: %q", workspace, name, r.Skipped)
		}
	}
}

// What the prober says and what is seen agree, so that an effect which the prober cannot tell is seen all the same.
func TestObjectsAgree(t *testing.T) {
	s := prepare(t, ownIDs())
	list := probes()
	outcomes, err := parse(runProber(t, s, ownIDs()), list, s.nonce)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.observe()
	if err != nil {
		t.Fatal(err)
	}
	changes := []Class{ClassWrite, ClassTruncate, ClassMetadata, ClassTimestamps}
	// These read, or open and do not write; removexattr needs a file system with attributes.
	silent := []string{"open-direct", "chmod-stdin", "utimens-stdin"}
	count := 0
	for i, p := range list {
		changed := seen.outside[p.Name] || seen.workspace[p.Name]
		if outcomes[i].state == did && slices.Contains(changes, p.Class) && !changed && !slices.Contains(silent, p.Name) {
			t.Errorf("%s: said to be done, and nothing has changed", p.Name)
		}
		if changed && outcomes[i].state != did {
			t.Errorf("%s: it changed something and says %c", p.Name, outcomes[i].state)
		}
		if changed {
			count++
		}
		if p.needs&needVictim != 0 && !seen.signals[byte(signalOf(i))] {
			t.Errorf("%s: the victim got no signal", p.Name)
		}
	}
	if count < 80 {
		t.Errorf("only %d effects were seen on objects", count)
	}
	if len(seen.victim) == 0 || seen.ended || seen.stray {
		t.Errorf("the victim: %q, ended %v; stray %v", seen.victim, seen.ended, seen.stray)
	}
}

// Root holds every capability that the tests have, and does no harm with them.
func TestUnconfinedRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	before := hostState(t)
	s := prepare(t, OwnIDs{})
	results, err := s.Judge(runProber(t, s, OwnIDs{}))
	if err != nil {
		t.Fatal(err)
	}
	if after := hostState(t); after != before {
		t.Errorf("the host was\n%s\nand is\n%s", before, after)
	}
	m := byName(results)
	effective, _, _, err := capabilities()
	if err != nil {
		t.Fatal(err)
	}
	if !m["capabilities-effective"].Did || !m["new-privileges"].Did {
		t.Error("capabilities and their gain are not seen")
	}
	if effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		t.Skip("root without CAP_SYS_ADMIN")
	}
	for _, name := range []string{
		"mount", "mount-bind", "umount", "pivot-root", "mount-setattr", "open-tree", "move-mount", "fsopen", "unshare-mount", "unshare-pid", "setns-mnt",
		"sethostname", "setuid", "setgroups", "daemon-kill", "daemon-environ", "daemon-ptrace", "daemon-fd", "runner-kill",
	} {
		if !m[name].Did {
			t.Errorf("%s: %v %s", name, m[name].Errno, m[name].Skipped)
		}
	}
}

// hostState is what a careless probe would change.
func hostState(t *testing.T) string {
	t.Helper()
	var all []string
	for _, path := range []string{
		"/proc/self/mountinfo", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/kernel/core_pattern", "/proc/swaps",
		"/proc/self/limits", "/proc/self/oom_score_adj",
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Log(err)
		}
		all = append(all, string(b))
	}
	nice, err := niceOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var null unix.Stat_t
	if err := unix.Stat("/dev/null", &null); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n") + string(rune('A'+nice)) + os.FileMode(null.Mode).String()
}
