package peer

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupDir makes a control group and opens it; it is removed when the test's processes are gone.
func cgroupDir(t *testing.T, parent, name string) (dir string, fd int) {
	t.Helper()
	dir = filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skipf("control groups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		// Busy until the last process of it is reaped.
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("control group %s is left behind", name)
	})
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return dir, fd
}

func ownCgroupDir(t *testing.T) string {
	t.Helper()
	c := newChecker(t, true)
	if c.cgroups.dir == "" {
		t.Skip("no cgroup v2 here")
	}
	return c.cgroups.dir
}

func TestControlGroups(t *testing.T) {
	base := ownCgroupDir(t)
	name := "peer-test-" + filepath.Base(t.TempDir()) + "-" + strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "")
	daemonDir, daemonFD := cgroupDir(t, base, name+"-daemon")
	_, belowFD := cgroupDir(t, daemonDir, "below")
	_, neighbourFD := cgroupDir(t, base, name+"-neighbour")

	daemon := startIn(t, daemonFD, "daemon")
	address := daemon.line(t)

	// verdict is the daemon's on a client of role in the group open as fd.
	verdict := func(t *testing.T, fd int, role string) string {
		startIn(t, fd, role, "tcp", address).expect(t, "ready")
		if _, err := io.WriteString(daemon.lifeline, "\n"); err != nil {
			t.Fatal(err)
		}
		return daemon.line(t)
	}
	tests := []struct {
		name, role string
		fd         int
		want       string
	}{
		{"a neighbour", "hold", neighbourFD, "false socket of another control group"},
		{"a neighbour whose socket nobody is seen to hold", "in-flight", neighbourFD, "false socket of another control group"},
		{"the daemon's group", "hold", daemonFD, "false socket held by pid"},
		{"the daemon's group, no holder", "in-flight", daemonFD, "true no process outside"},
		{"a group below", "hold", belowFD, "false socket held by pid"},
		{"a group below, no holder", "in-flight", belowFD, "true no process outside"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := verdict(t, tt.fd, tt.role); !strings.HasPrefix(got, tt.want) {
				t.Errorf("verdict %q, want %q", got, tt.want)
			}
		})
	}
}

// A group that is removed while a socket of it lives on is not taken for a neighbour's.
func TestRemovedControlGroup(t *testing.T) {
	base := ownCgroupDir(t)
	dir := filepath.Join(base, "peer-test-removed-"+filepath.Base(t.TempDir())+time.Now().Format("150405"))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skipf("control groups cannot be made here: %v", err)
	}
	id, err := inodeOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker(t, true).cgroups
	if below, err := c.contains(id); err != nil || !below {
		t.Errorf("group below not found: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if below, err := c.contains(id); err != nil || below {
		t.Errorf("removed group found: %v", err)
	}
	dying, err := dyingDescendants(filepath.Join(c.dir, "cgroup.stat"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.mayBeOurs(id); dying > 0 && !got {
		t.Error("cleared by its group while removed groups live on")
	}
}
