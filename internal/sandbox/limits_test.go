package sandbox_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// TestThreadsAreLeft: where the user's processes are limited, commands cannot take them all, as the daemon needs threads.
func TestThreadsAreLeft(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &before); err != nil || before.Max < 4096 {
		t.Skipf("the limit is %v already (%v)", before, err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 4000, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NPROC, &before)
	f := newFixture(t, func(c *sandbox.Config) { c.Limits = sandbox.Limits{Processes: 1 << 20} })
	if got := f.run(t, f.command(t, sandbox.FullAccess, "ulimit -u")); got.stdout != "3936\n" {
		t.Errorf("got %+v, want 64 fewer than there are", got)
	}
}
