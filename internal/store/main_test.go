package store

import (
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes a child of the test binary: it names what the child does and the path that it works on.
const childEnv = "BASHD_STORE_TEST_CHILD"

// childLimit ends a child that nobody ends.
const childLimit = time.Minute

var children = map[string]func(path string) error{
	"insert":  childInsert,
	"migrate": childMigrate,
	"fill":    childFill,
}

func TestMain(m *testing.M) {
	if role, path, is := strings.Cut(os.Getenv(childEnv), " "); is {
		time.AfterFunc(childLimit, func() { os.Exit(3) })
		if err := children[role](path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a command that runs the named child on path.
func child(t *testing.T, role, path string) *osexec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+role+" "+path)
	cmd.Stderr = os.Stderr
	return cmd
}

// killed waits for a child that was killed.
func killed(t *testing.T, cmd *osexec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the child was not killed: %v", cmd.ProcessState)
	}
}
