package prober

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// own is whom the tests' commands run as: nobody, if the tests run as root.
func ownIDs() OwnIDs {
	if os.Geteuid() == 0 {
		return OwnIDs{65534, 65534}
	}
	return OwnIDs{uint32(os.Geteuid()), uint32(os.Getegid())}
}

func prepare(t testing.TB, who OwnIDs) *Scene {
	t.Helper()
	s, err := Prepare(passable(t), who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the scene: %v", err)
		}
		if list, err := os.ReadDir(s.dir); err != nil || len(list) > 0 {
			t.Errorf("the scene left %v (%v)", list, err)
		}
	})
	return s
}

// passable is an empty directory that other users can reach, as those of package testing cannot be.
func passable(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "prober-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// probeAs runs the prober without a sandbox and returns what it printed.
func runProber(t testing.TB, s *Scene, who OwnIDs) []byte {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env, cmd.SysProcAttr = s.Args(), s.Env(), credential(who)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("the prober: %v\n%s\n%s", err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

// credential is for running as somebody else, which root can.
func credential(who OwnIDs) *syscall.SysProcAttr {
	if os.Geteuid() != 0 || who.UID == 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.UID, Gid: who.GID}}
}

func byName(results []Result) map[string]Result {
	m := map[string]Result{}
	for _, r := range results {
		m[r.Effect.Name] = r
	}
	return m
}
