package rules

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNumbers: the numbers are those of golang.org/x/sys/unix, and all of them. When that learns a new call, this fails until
// the call has its number and verdict here.
func TestNumbers(t *testing.T) {
	amd64, arm64 := numbersOf(t, "amd64"), numbersOf(t, "arm64")
	lookup := func(m map[string]int, name string) int {
		if n, ok := m[name]; ok {
			return n
		}
		return none
	}
	for name, n := range numbers {
		if x, a := lookup(amd64, name), lookup(arm64, name); n.amd64 != x || n.arm64 != a {
			t.Errorf("%s is %d and %d here, %d and %d there", name, n.amd64, n.arm64, x, a)
		}
		delete(amd64, name)
		delete(arm64, name)
	}
	for name := range amd64 {
		t.Errorf("%s of amd64 is not here", name)
	}
	for name := range arm64 {
		t.Errorf("%s of arm64 is not here", name)
	}
}

// numbersOf reads the calls of an architecture from the source of golang.org/x/sys/unix.
func numbersOf(t *testing.T, arch string) map[string]int {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil || len(strings.TrimSpace(string(out))) == 0 {
		t.Skipf("the source of golang.org/x/sys cannot be found: %v", err)
	}
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+arch+".go"))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	found := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, number, ok := strings.Cut(strings.TrimSpace(s.Text()), "=")
		if !ok || !strings.HasPrefix(name, "SYS_") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil {
			t.Fatal(err)
		}
		found[strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "SYS_")))] = n
	}
	if len(found) < 300 {
		t.Fatalf("%d calls of %s found", len(found), arch)
	}
	return found
}

// TestEveryCallHasOneVerdict: the lists do not contradict each other, and nothing is unjudged.
func TestEveryCallHasOneVerdict(t *testing.T) {
	lists := map[string]int{}
	for _, list := range []string{allowed, refused, unknown, metadata} {
		for name := range strings.FieldsSeq(list) {
			lists[name]++
		}
	}
	for name := range queues {
		lists[name]++
	}
	changes := " " + strings.Join(strings.Fields(metadata), " ") + " "
	for name := range judged {
		if !strings.Contains(changes, " "+name+" ") {
			lists[name]++
		}
	}
	for name := range numbers {
		if lists[name] != 1 {
			t.Errorf("%s is in %d lists", name, lists[name])
		}
	}
	for name := range lists {
		if _, ok := numbers[name]; !ok {
			t.Errorf("%s has no number", name)
		}
	}
}
