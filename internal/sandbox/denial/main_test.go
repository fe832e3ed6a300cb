package denial

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/landlock-lsm/go-landlock/landlock"
	"go.uber.org/goleak"
)

// childEnv makes the test binary a child that confines itself and runs bash:
// "landlock" with only the workspace writable, or "none".
const childEnv = "DENIAL_TEST_CONFINE"

// nobody is the uid and gid that commands run as when the tests run as root.
const nobody = 65534

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		if err := runChild(how, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(125)
		}
	}
	goleak.VerifyTestMain(m)
}

// runChild takes the workspace, or "" if nothing is to be writable, and the
// command. It gives up root, confines itself and becomes bash.
func runChild(how string, args []string) error {
	workspace, command := args[0], args[1]
	if os.Getuid() == 0 {
		for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
			if err != nil {
				return err
			}
		}
	}
	if how == "landlock" {
		rules := []landlock.Rule{landlock.RODirs("/"), landlock.RWFiles("/dev/null")}
		if workspace != "" {
			rules = append(rules, landlock.RWDirs(workspace).WithRefer())
		}
		if err := landlock.V3.RestrictPaths(rules...); err != nil {
			return err
		}
	}
	return syscall.Exec("/bin/bash", []string{"bash", "-c", command}, os.Environ())
}

// arena is a workspace and a directory outside it, both owned by the user that
// commands run as.
type arena struct {
	t       *testing.T
	ws, out string
	cred    Cred
}

func newArena(t *testing.T) *arena {
	t.Helper()
	base := t.TempDir()
	a := &arena{t: t, ws: filepath.Join(base, "ws"), out: filepath.Join(base, "out")}
	a.cred = Cred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if a.cred.UID == 0 {
		a.cred = Cred{UID: nobody, GID: nobody}
	} else {
		groups, err := os.Getgroups()
		must(t, err)
		for _, g := range groups {
			a.cred.Groups = append(a.cred.Groups, uint32(g))
		}
	}
	// The parents of TempDir are private; another uid must get through.
	for dir := base; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	for _, dir := range []string{a.ws, a.out} {
		must(t, os.Mkdir(dir, 0o755))
		a.own(dir)
	}
	a.put(filepath.Join(a.out, "f"), "content", 0o644)
	t.Cleanup(func() { _ = os.Chmod(a.out, 0o755) }) // or TempDir cannot be removed
	return a
}

func (a *arena) own(path string) {
	a.t.Helper()
	must(a.t, os.Lchown(path, int(a.cred.UID), int(a.cred.GID)))
}

func (a *arena) put(path, content string, mode os.FileMode) {
	a.t.Helper()
	must(a.t, os.WriteFile(path, []byte(content), 0o644))
	a.own(path)
	must(a.t, os.Chmod(path, mode))
}

// run runs command under the child's confinement and returns what is known of
// its end. In the environment, $OUT and $WS name the two directories.
func (a *arena) run(how string, writable bool, command string, env ...string) Evidence {
	a.t.Helper()
	workspace := ""
	if writable {
		workspace = a.ws
	}
	self, err := os.Executable()
	must(a.t, err)
	cmd := exec.CommandContext(a.t.Context(), self, workspace, command)
	cmd.Dir = a.ws
	cmd.Env = append([]string{
		childEnv + "=" + how, "OUT=" + a.out, "WS=" + a.ws, "HOME=" + a.ws,
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8",
	}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		a.t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if code == 125 && strings.HasPrefix(stderr.String(), "child: ") {
		a.t.Skipf("this host cannot confine the test's child: %s", stderr.String())
	}
	return a.evidence(code, stderr.String(), writable)
}

// evidence is that of a command in a mode that allows writes in the workspace
// or nowhere, and reads everywhere but in out/secret.
func (a *arena) evidence(code int, stderr string, writable bool) Evidence {
	return Evidence{
		ExitCode: code,
		Stderr:   []byte(stderr),
		Workdir:  a.ws,
		Errnos:   []syscall.Errno{syscall.EACCES, syscall.EPERM},
		Cred:     a.cred,
		Forbidden: func(path string, op Op) bool {
			if op == Read {
				return under(path, filepath.Join(a.out, "secret"))
			}
			return path != "/dev/null" && (!writable || !under(path, a.ws))
		},
	}
}

func under(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
