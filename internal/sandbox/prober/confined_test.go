package prober

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// confineIn names the environment variable that makes the test binary confine itself, to writing below the directories in
// it, and become the prober.
const confineIn = "PROBER_TEST_CONFINE_IN"

func TestMain(m *testing.M) {
	if dirs, ok := os.LookupEnv(confineIn); ok {
		fmt.Fprintln(os.Stderr, becomeConfined(strings.Fields(dirs)))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func becomeConfined(dirs []string) error {
	err := landlock.V3.RestrictPaths(
		landlock.RODirs("/"), landlock.RWDirs(dirs...).WithRefer(),
		landlock.RWFiles("/dev/null", "/dev/full", "/dev/tty").IgnoreIfMissing(),
	)
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, confineIn+"=") })
	return unix.Exec("/proc/self/exe", []string{Argv0}, env)
}

// Under Landlock alone the prober comes to its end, finds that everything works that has to, that nothing outside is written, and
// that metadata can be changed, for which Landlock has no right.
func TestUnderLandlock(t *testing.T) {
	for _, workspace := range []bool{false, true} {
		s := prepare(t, ownIDs())
		s.Workspace = workspace
		dirs := s.OwnTemp()
		if workspace {
			dirs += " " + s.Root()
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.SysProcAttr = append(s.Env(), confineIn+"="+dirs), credential(ownIDs())
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if strings.Contains(errs.String(), "landlock") {
			t.Skip("no Landlock of ABI 3: ", errs.String())
		}
		if err != nil {
			t.Fatal(err, errs.String())
		}
		results, err := s.Judge(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			switch r.Effect.Class {
			case ClassWorks:
				if !r.Did && r.Skipped == "" {
					t.Errorf("workspace %v: %s: %v", workspace, r.Effect.Name, r.Errno)
				}
			case ClassWrite, ClassTruncate:
				if r.Did {
					t.Errorf("workspace %v: %s", workspace, r.Effect.Name)
				}
			}
		}
		if m := byName(results); !m["chmod"].Did || !m["utimensat"].Did || !m["hidden-read"].Did || m["mknod-block-outside"].Did {
			t.Errorf("what Landlock alone does not refuse is refused: %+v", m["chmod"])
		}
	}
}
