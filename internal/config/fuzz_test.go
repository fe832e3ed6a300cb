package config

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// managedErrors are all that Load says about BASHD_MANAGED_ENV; nothing in them
// depends on the value but the number of an item.
var managedErrors = regexp.MustCompile(`^BASHD_MANAGED_ENV: item \d+ (` + strings.Join([]string{
	`is not NAME=value \(a value cannot contain a comma\)`,
	`has the name of an earlier one`,
	`has a name that does not match DSH_\[A-Z0-9_\]\+`,
	`has one of the names that are built in: DSH_HOME, DSH_SHELL, DSH_SESSION_ID, DSH_TASK_ID or DSH_SESSION_JSONL`,
	`has a value with a NUL byte`,
}, "|") + `)$`)

var managedName = regexp.MustCompile(`^DSH_[A-Z0-9_]+$`)

// FuzzLoad sets one variable, by number or by any other name, and a managed
// environment. Whatever they hold, Load says what is wrong in one short line
// that does not depend on the managed values, or returns what is safe to use.
func FuzzLoad(f *testing.F) {
	for i, field := range fields() {
		for _, bad := range variables[field.name].bad {
			f.Add(i, "", bad, "DSH_A=x")
		}
		for _, good := range variables[field.name].good {
			f.Add(i, "", good.value, "DSH_A=x,y")
		}
	}
	f.Add(-1, "BASHD_LISTN", "x", "DSH_HOME=x")
	f.Add(-1, "BASHD_PORT_80_TCP\n", "x", "\n")
	f.Fuzz(func(t *testing.T, number int, name, value, managed string) {
		if number >= 0 && number < len(fields()) {
			name = fields()[number].name
		}
		name, _, _ = strings.Cut(name, "=")
		given := environ(name + "=" + value)
		_, errWithout := Load(given)
		c, err := Load(append(given, "BASHD_MANAGED_ENV="+managed))
		if name == "BASHD_MANAGED_ENV" {
			if errWithout != nil && !managedErrors.MatchString(errWithout.Error()) {
				t.Errorf("error %q", errWithout)
			}
			return
		}
		if err != nil {
			checkLine(t, err.Error())
			if !managedErrors.MatchString(err.Error()) && (errWithout == nil || err.Error() != errWithout.Error()) {
				t.Errorf("error %q depends on the managed environment; without it: %v", err, errWithout)
			}
			return
		}
		c.Write(io.Discard)
		checkSafe(t, c)
	})
}

func checkLine(t *testing.T, line string) {
	t.Helper()
	if !strings.Contains(line, ": ") || len(line) > 1000 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("not one short line: %q", line)
	}
}

// checkSafe states again what users of a Config rely on.
func checkSafe(t *testing.T, c Config) {
	t.Helper()
	paths := append([]string{c.StateDir, c.Workspace, c.DSHHome}, c.HidePaths...)
	for _, path := range append(paths, c.AllowedRoots...) {
		if !filepath.IsAbs(path) || path != filepath.Clean(path) || strings.ContainsRune(path, 0) {
			t.Errorf("path %q", path)
		}
	}
	if c.RunAs != "" || c.MaxMemoryBytes != 0 || c.AdminListen != (Address{}) || c.ApproverTokenFile != "" {
		t.Errorf("accepted what has no effect: %+v", c)
	}
	if c.Open() && (!c.Listen.Loopback() || c.AllowedOrigins.Any()) {
		t.Errorf("open beyond loopback or to every origin by one variable: %+v", c)
	}
	if !c.Open() && (c.AllowOpen || !filepath.IsAbs(c.TokensFile) || within(c.TokensFile, c.Workspace)) {
		t.Errorf("closed, but not surely: %+v", c)
	}
	if c.SandboxMode == ModeDangerFullAccess || c.SandboxMode == "" || c.SandboxMaxMode == "" {
		t.Errorf("mode %q of at most %q", c.SandboxMode, c.SandboxMaxMode)
	}
	if c.Timeout < 1 || c.Timeout > c.MaxTimeout || c.MaxRunning < 1 || c.MaxProcesses < 1 || c.MaxBodyBytes < 1024 {
		t.Errorf("limits: %+v", c)
	}
	for name := range c.ManagedEnv.Map() {
		if !managedName.MatchString(name) {
			t.Errorf("managed name %q", name)
		}
	}
}
