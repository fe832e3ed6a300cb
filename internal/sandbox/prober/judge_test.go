package prober

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A prober that claims to have been refused everything is convicted by the objects.
func TestLyingProber(t *testing.T) {
	s := prepare(t, ownIDs())
	list := probes()
	outcomes, err := parse(runProber(t, s, ownIDs()), list, s.nonce)
	if err != nil {
		t.Fatal(err)
	}
	lies := slices.Clone(outcomes)
	for i := range lies {
		lies[i] = outcome{state: refused, errno: unix.EACCES}
	}
	results, err := s.Judge(format(list, lies, s.nonce))
	if err != nil {
		t.Fatal(err)
	}
	caught := byName(results)
	for i, p := range list {
		onObject := slices.Contains([]Class{ClassWrite, ClassTruncate, ClassMetadata, ClassTimestamps}, p.Class) || p.needs&needVictim != 0
		if p.Name == "open-direct" || p.Name == "chmod-stdin" || p.Name == "utimens-stdin" {
			continue
		}
		if onObject && (outcomes[i].state == did || outcomes[i].state == unseen) && !caught[p.Name].Did {
			t.Errorf("%s: a lie was believed", p.Name)
		}
	}
	if !caught["victim-changed"].Did {
		t.Error("the victim changed, and nobody is found to have done it")
	}
	if caught["outside-changed"].Did || caught["victim-ended"].Did {
		t.Error("more is seen than was done")
	}
}

// honest is an output of a prober that was refused everything.
func honest(s *Scene) ([]probe, []outcome) {
	list := probes()
	outcomes := make([]outcome, len(list))
	for i := range outcomes {
		outcomes[i] = outcome{state: refused, errno: unix.EACCES}
	}
	return list, outcomes
}

func TestNothingDone(t *testing.T) {
	s := prepare(t, ownIDs())
	list, outcomes := honest(s)
	results, err := s.Judge(format(list, outcomes, s.nonce))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Did {
			t.Errorf("%s was not done", r.Effect.Name)
		}
	}
}

// Each change of an object is seen, and laid to whom it belongs to.
func TestChangesAreSeen(t *testing.T) {
	file := func(s *Scene, name string) string { return s.Outside() + "/" + name + ".file" }
	for name, c := range map[string]struct {
		do   func(s *Scene) error
		want string
	}{
		"content of the same length": {func(s *Scene) error {
			then := time.Now()
			f, err := os.OpenFile(file(s, "open-write"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("B")
			if err != nil {
				return err
			}
			return os.Chtimes(file(s, "open-write"), time.Time{}, then)
		}, "open-write"},
		"mode":             {func(s *Scene) error { return os.Chmod(file(s, "chmod"), 0o640) }, "chmod"},
		"times":            {func(s *Scene) error { return os.Chtimes(file(s, "futimens"), time.Time{}, time.Unix(1, 0)) }, "futimens"},
		"a new name":       {func(s *Scene) error { return os.Mkdir(s.Outside()+"/mkdir.new", 0o700) }, "mkdir"},
		"a lost name":      {func(s *Scene) error { return os.Remove(file(s, "unlink")) }, "unlink"},
		"a link elsewhere": {func(s *Scene) error { return os.Link(file(s, "link-out"), s.Root()+"/elsewhere") }, "link-out"},
		"a strange name":   {func(s *Scene) error { return os.WriteFile(s.Outside()+"/what", nil, 0o600) }, "outside-changed"},
		"the top's mode":   {func(s *Scene) error { return os.Chmod(s.Outside(), 0o711) }, "outside-changed"},
		"hidden":           {func(s *Scene) error { return os.Remove(s.Hidden() + "/hidden-unlink.file") }, "hidden-unlink"},
		"a hidden socket":  {func(s *Scene) error { return os.Remove(s.Hidden() + "/stream") }, "outside-changed"},
		"the workspace":    {func(s *Scene) error { return os.WriteFile(s.Root()+"/ws-create.new", nil, 0o600) }, "ws-create"},
		"the victim":       {func(s *Scene) error { return unix.Setpriority(unix.PRIO_PROCESS, s.VictimPID(), 7) }, "victim-changed"},
		"the victim's end": {func(s *Scene) error { return s.victim.process.Kill() }, "victim-ended"},
	} {
		t.Run(name, func(t *testing.T) {
			s := prepare(t, ownIDs())
			if err := c.do(s); err != nil {
				t.Fatal(err)
			}
			list, outcomes := honest(s)
			results, err := s.Judge(format(list, outcomes, s.nonce))
			if err != nil {
				t.Fatal(err)
			}
			if !byName(results)[c.want].Did {
				t.Errorf("%s is not found to have happened", c.want)
			}
		})
	}
}

// What is said to work has to have left its trace in the workspace.
func TestWorksLeavesTraces(t *testing.T) {
	s := prepare(t, ownIDs())
	s.Workspace = true
	list, outcomes := honest(s)
	for i, p := range list {
		if p.Class == ClassWorks {
			outcomes[i] = outcome{state: did}
		}
	}
	results, err := s.Judge(format(list, outcomes, s.nonce))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if strings.HasPrefix(r.Effect.Name, "ws-works-") && r.Did {
			t.Errorf("%s left no trace", r.Effect.Name)
		}
	}
}

func TestOutputMustBeWhole(t *testing.T) {
	s := prepare(t, ownIDs())
	list, outcomes := honest(s)
	whole := format(list, outcomes, s.nonce)
	if _, err := s.Judge(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := parse(whole[:n], list, s.nonce); err == nil {
			t.Fatalf("the first %d bytes of %d pass", n, len(whole))
		}
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	join := func(lines ...[]byte) []byte { return bytes.Join(lines, nil) }
	swapped := slices.Clone(lines)
	swapped[2], swapped[3] = swapped[3], swapped[2]
	for name, forged := range map[string][]byte{
		"nothing":          nil,
		"something before": append([]byte("x\n"), whole...),
		"something after":  append(slices.Clone(whole), "x\n"...),
		"a line less":      join(slices.Delete(slices.Clone(lines), 2, 3)...),
		"a line twice":     join(slices.Insert(slices.Clone(lines), 2, lines[2])...),
		"lines swapped":    join(swapped...),
		"a changed byte":   bytes.Replace(whole, []byte(" r 13"), []byte(" r 14"), 1),
		"twice":            append(slices.Clone(whole), whole...),
		"another scene's":  format(list, outcomes, "0123"),
		"fewer probes":     format(list[1:], outcomes[1:], s.nonce),
		"another order":    format(append(slices.Clone(list[1:]), list[0]), outcomes, s.nonce),
		"too much":         append(bytes.Repeat([]byte("x"), MaxOutput), whole...),
		"errno 0":          format(list, append([]outcome{{state: refused}}, outcomes[1:]...), s.nonce),
		"no reason":        format(list, append([]outcome{{state: skipped}}, outcomes[1:]...), s.nonce),
		"no state":         format(list, append([]outcome{{state: 'x'}}, outcomes[1:]...), s.nonce),
	} {
		if _, err := s.Judge(forged); err == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}

func TestProberThatFails(t *testing.T) {
	s := prepare(t, ownIDs())
	if err := os.Remove(s.Root() + "/ws-write.file"); err != nil {
		t.Fatal(err)
	}
	// As if it had been killed: what it printed until then is no result.
	_, err := s.Judge([]byte(Argv0 + " " + s.nonce + "\ninherited-write r 9\n"))
	if err == nil || !strings.Contains(err.Error(), "inherited-write r 9") {
		t.Errorf("a prober that was killed: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	dir := passable(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	s, err := Prepare(dir, ownIDs())
	if err != nil {
		t.Fatal(err)
	}
	pid := s.VictimPID()
	if syscall.Kill(pid, 0) != nil {
		t.Error("no victim")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the victim lives: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left: %v (%v)", list, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory's mode is %v (%v)", info.Mode(), err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors were open, and %d are", before, after)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestPrepareRefuses(t *testing.T) {
	full := passable(t)
	if err := os.WriteFile(full+"/x", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{full, "relative", full + "/x", full + "/none", full + "/../x", ""} {
		if s, err := Prepare(dir, ownIDs()); err == nil {
			s.Close()
			t.Errorf("%q was taken", dir)
		}
	}
	if _, err := os.Stat(full + "/x"); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	list := []probe{{Effect: Effect{Name: "one"}}, {Effect: Effect{Name: "two"}}, {Effect: Effect{Name: "three"}}}
	for _, o := range []outcome{{state: did}, {state: unseen}, {state: refused, errno: 13}, skip("not visible")} {
		f.Add(string(format(list, []outcome{o, o, {state: did}}, "n"))[len(Argv0)+3:])
	}
	f.Fuzz(func(t *testing.T, body string) {
		// With the first and the last line right, so that the lines between get their turn.
		printed := []byte(Argv0 + " n\n" + body)
		if i := bytes.LastIndex(printed, []byte("\nend ")); i >= 0 {
			printed = append(printed[:i+1], endLine(len(list), printed[:i+1])...)
		}
		outcomes, err := parse(printed, list, "n")
		if err == nil && !bytes.Equal(format(list, outcomes, "n"), printed) {
			t.Errorf("%q passes and means %q", printed, format(list, outcomes, "n"))
		}
	})
}
