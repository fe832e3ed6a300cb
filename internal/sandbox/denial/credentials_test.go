package denial

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRootWithoutCapabilities: uid 0 is judged by the modes of files, too.
func TestRootWithoutCapabilities(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	a := newArena(t)
	must(t, os.Chmod(a.out, 0o700))
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "locked"), nil, 0))
	for _, tt := range []struct {
		file string
		cred Cred
		want bool
	}{
		{root + "/n", Cred{}, true},
		{root + "/locked", Cred{}, false},
		{a.out + "/n", Cred{}, false}, // not without CAP_DAC_OVERRIDE
		{a.out + "/n", Cred{UID: nobody, GID: nobody}, true},
		{a.out + "/n", Cred{UID: nobody - 1, GID: nobody}, false},
	} {
		e := a.evidence(1, "touch: cannot touch '"+tt.file+"': Permission denied", true)
		e.Cred = tt.cred
		if d, denied := Classify(e); denied != tt.want {
			t.Errorf("%s as %+v: denied %v, want %v: %+v", tt.file, tt.cred, denied, tt.want, d)
		}
	}
	// Group and supplementary group count.
	must(t, os.Chmod(a.out, 0o070))
	must(t, os.Chown(a.out, 0, 4242))
	for _, cred := range []Cred{{UID: 1, GID: 4242}, {UID: 1, GID: 1, Groups: []uint32{7, 4242}}, {UID: 1, GID: 1}} {
		e := a.evidence(1, "touch: cannot touch '"+a.out+"/n': Permission denied", true)
		e.Cred = cred
		want := cred.GID == 4242 || len(cred.Groups) > 0
		if _, denied := Classify(e); denied != want {
			t.Errorf("%+v: denied %v, want %v", cred, denied, want)
		}
	}
}

// TestForeignCredentialsNeedPrivilege: who cannot take on the credentials
// gets no denial.
func TestForeignCredentialsNeedPrivilege(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs an unprivileged user")
	}
	a := newArena(t)
	e := a.evidence(1, "touch: cannot touch '"+a.out+"/n': Permission denied", true)
	e.Cred.UID++
	if d, denied := Classify(e); denied {
		t.Errorf("denial %+v", d)
	}
}

// TestCallerKeepsCredentials: the probing thread's credentials reach no other
// thread of the process, its main thread included, and it ends.
func TestCallerKeepsCredentials(t *testing.T) {
	threads := func() map[string]string {
		out := map[string]string{}
		tasks, err := filepath.Glob("/proc/self/task/*/status")
		must(t, err)
		for _, task := range tasks {
			status, err := os.ReadFile(task)
			if err != nil {
				continue // ended meanwhile
			}
			var creds []string
			for line := range strings.Lines(string(status)) {
				if f := strings.Fields(line); slices.Contains([]string{"Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:"}, f[0]) {
					creds = append(creds, strings.Join(f, " "))
				}
			}
			out[task] = strings.Join(creds, "; ")
		}
		return out
	}
	a := newArena(t)
	before := threads()[fmt.Sprintf("/proc/self/task/%d/status", os.Getpid())]
	for range 50 {
		if _, denied := Classify(a.evidence(1, "touch: cannot touch '"+a.out+"/n': Permission denied", true)); !denied {
			t.Fatal("no denial")
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for { // a thread is gone a moment after its goroutine
		odd := ""
		for task, creds := range threads() {
			if creds != before {
				odd = task + ": " + creds
			}
		}
		if odd == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s, before: %s", odd, before)
		}
		runtime.Gosched()
	}
}

// TestDumpableStaysCleared: taking on another uid must not let the process be
// traced again.
func TestDumpableStaysCleared(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0) })
	must(t, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	a := newArena(t)
	if _, denied := Classify(a.evidence(1, "touch: cannot touch '"+a.out+"/n': Permission denied", true)); !denied {
		t.Fatal("no denial")
	}
	if now, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || now != 0 {
		t.Errorf("dumpable %d, %v", now, err)
	}
}
