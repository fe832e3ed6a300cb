package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// command makes the command that starts bashd in these surroundings.
func (in surroundings) command(tb testing.TB, base string) *osexec.Cmd {
	tb.Helper()
	exe := "/proc/self/exe"
	if in.wrapper != nil || in.nobody {
		exe = copyOfSelf(tb, base)
	}
	if in.nobody {
		// testing makes the directory above for its own user only.
		if err := errors.Join(os.Chmod(filepath.Dir(base), 0o711), os.Chown(base, nobody, nobody)); err != nil {
			tb.Fatal(err)
		}
	}
	argv := slices.Clone(in.wrapper)
	if in.nobody && in.wrapper != nil {
		argv = append(argv, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
	}
	argv = append(argv, exe)
	cmd := osexec.Command(argv[0], argv[1:]...)
	if in.nobody && in.wrapper == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

const nobody = 65534

// copyOfSelf copies the test binary to where any user may run it: go test keeps it in a
// directory of its own user's.
func copyOfSelf(tb testing.TB, dir string) string {
	tb.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		tb.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(dir, "bashd")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err2 := to.Close(); err != nil || err2 != nil {
		tb.Fatal(err, err2)
	}
	return path
}

// wrapped finds the daemon below its wrapper: the first descendant that is the copy
// of this binary.
func wrapped(tb testing.TB, wrapper int) int {
	tb.Helper()
	for level := []int{wrapper}; len(level) > 0; {
		var next []int
		for _, pid := range level {
			cmdline, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
			argv0, _, _ := bytes.Cut(cmdline, []byte{0})
			if filepath.Base(string(argv0)) == "bashd" {
				return pid
			}
			next = append(next, childrenOf(pid)...)
		}
		level = next
	}
	tb.Fatalf("no daemon below %d", wrapper)
	return 0
}

// childrenOf lists the children of a process, zombies too.
func childrenOf(parent int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if ppid, _ := statOf(path); ppid == parent {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// statOf reads the parent and the state letter from /proc/<pid>/stat; 0 where
// the process is gone.
func statOf(path string) (ppid int, state string) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0, ""
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0, ""
	}
	ppid, _ = strconv.Atoi(fields[1])
	return ppid, fields[0]
}

// quick posts a run and looks at nothing but the result. Any goroutine may call
// it, and for hundreds of runs it is quicker than run, which validates each answer.
func (d *daemon) quick(body in) (r result, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return r, err
	}
	resp, err := http.Post(d.url+"/v1/runs", "application/json", bytes.NewReader(text))
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || resp.StatusCode != http.StatusOK {
		return r, fmt.Errorf("%v: %s %w", body, resp.Status, err)
	}
	return r, nil
}

// underRace is set where the race detector, which makes each start of a process some ten times
// as expensive, is part of this binary.
var underRace bool

// long is set where there is time for the long forms of the tests: with BASHD_TEST_LONG=1.
var long = os.Getenv("BASHD_TEST_LONG") != ""

// times is how often a case repeats something: as often as it says in its long form, else a fifth of it.
func times(n int) int {
	if long && !underRace {
		return n
	}
	return n / 5
}

// restart starts a daemon on the state directory and workspace of a former one.
func (d *daemon) restart(tb testing.TB, env ...string) *daemon {
	tb.Helper()
	again := d.relaunch(tb, env...)
	tb.Cleanup(func() { again.stop(tb) })
	return again
}

// relaunch is restart without the stop, for tests that end that daemon themselves.
func (d *daemon) relaunch(tb testing.TB, env ...string) *daemon {
	tb.Helper()
	again := launch(tb, append([]string{"BASHD_STATE_DIR=" + d.state, "BASHD_WORKSPACE=" + d.ws}, env...)...)
	again.state, again.ws, again.out = d.state, d.ws, d.out
	return again
}

// crash kills the daemon with SIGKILL.
func (d *daemon) crash(tb testing.TB) {
	tb.Helper()
	if err := syscall.Kill(d.pid, syscall.SIGKILL); err != nil {
		tb.Fatal(err)
	}
	<-d.done
}

// info is what the tests look at of GET /v1/info.
type info struct {
	Sandbox struct {
		Tier                     string
		ABI                      int
		ReadOnly, WorkspaceWrite modeInfo
	}
}

type modeInfo struct {
	Enforcement, Unavailable string
	Gaps                     []string
}

func (d *daemon) info(tb testing.TB) (i info) {
	tb.Helper()
	d.getJSON(tb, "/v1/info", &i)
	return i
}

// getJSON decodes the answer to a GET, which must be 200, into v.
func (d *daemon) getJSON(tb testing.TB, path string, v any, headers ...string) {
	tb.Helper()
	status, raw := d.request(tb, "GET", path, "", headers...)
	if status != http.StatusOK {
		tb.Fatalf("GET %s: %d %s", path, status, raw)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		tb.Fatalf("GET %s: %v: %.500s", path, err, raw)
	}
}

// list is the runs that the caller may see, newest first.
func (d *daemon) list(tb testing.TB, headers ...string) []listedRun {
	tb.Helper()
	var page struct{ Runs []listedRun }
	d.getJSON(tb, "/v1/runs?limit=200", &page, headers...)
	return page.Runs
}

type listedRun struct{ ID, Status, Command string }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// needsTool skips the test where a program is not installed.
func needsTool(tb testing.TB, name string) {
	tb.Helper()
	if _, err := osexec.LookPath(name); err != nil {
		tb.Skipf("%s is not installed", name)
	}
}

// write makes a file for a test.
func write(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// content reads a file; a missing one has none.
func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// shared is the workspace of runs without an owner.
func (d *daemon) shared() string { return filepath.Join(d.ws, "shared") }
