package sandbox_test

import (
	"os"
	"strings"
	"testing"

	"bashd/internal/sandbox"
)

// TestPromise12Denied: a failure is told to be the sandbox's where it is, and only there. FORBIDDEN is a file that the
// command's user could write without the sandbox, $WS/secret one that nobody may read, $WS/plain one that is no program.
func TestPromise12Denied(t *testing.T) {
	t.Parallel()
	everyTier(t, func(t *testing.T, f *fixture) {
		must(t, os.WriteFile(f.ws+"/secret", []byte("x"), 0))
		must(t, os.WriteFile(f.ws+"/plain", []byte("true\n"), 0o644))
		must(t, os.WriteFile(f.out+"/file", []byte("x"), 0o644))
		f.grant(t, f.ws)
		f.grant(t, f.out)
		for _, mode := range confinedModes {
			t.Run(string(mode), func(t *testing.T) {
				f.needs(t, mode)
				testNotDenied(t, f, mode)
				testDenied(t, f, mode)
			})
		}
	})
}

func testNotDenied(t *testing.T, f *fixture, mode sandbox.Mode) {
	for name, script := range map[string]string{
		"false":                 `false`,
		"no match":              `grep nothing-like-it /etc/passwd`,
		"the runner's text":     `echo "bashd-runner: landlock: permission denied" >&2; exit 125`,
		"a phrase":              `echo "permission denied" >&2; exit 1`,
		"another's phrase":      `echo "git@example.org: Permission denied (publickey)." >&2; exit 255`,
		"unreadable":            `cat "$WS/secret"`,
		"unreadable script":     `. "$WS/secret"`,
		"not executable":        `"$WS/plain"`,
		"missing":               `cat "$WS/no-such-file"`,
		"missing outside":       `cat /no-such-directory/file`,
		"clean":                 `touch "$OUT/new"; exit 0`,
		"killed":                `touch "$OUT/new"; kill -9 $$`,
		"another user's file":   `cat /etc/shadow-of-nobody; echo x >/proc/1/comm; exit 1`,
		"what works everywhere": `echo x >"$TMPDIR/x"; cat "$TMPDIR"; exit 1`,
	} {
		if strings.HasPrefix(name, "unreadable") && f.owner().UID == 0 && f.Report().Tier == sandbox.TierNone {
			continue // root reads it
		}
		t.Run("not/"+name, func(t *testing.T) {
			c := f.command(t, mode, script)
			c.Env = append(c.Env, "LC_ALL=C.UTF-8")
			got := f.run(t, c)
			if d, ok := f.Denied(c.Policy, c.Workdir, got.status.ExitStatus(), got.status.Signaled(), []byte(got.stderr)); ok {
				t.Errorf("%+v is told to be denied: %+v", got, d)
			}
		})
	}
}

// locales are those in which a case is tried: the words of a denial do not depend on the mode or on what was denied.
func locales(name string) []string {
	if name == "remove" {
		return []string{"LANG=C.UTF-8", "LANG=de_DE.UTF-8"}
	}
	return []string{"LANG=C.UTF-8"}
}

func testDenied(t *testing.T, f *fixture, mode sandbox.Mode) {
	type denied struct{ script, path string }
	cases := map[string]denied{
		"touch":       {`touch "$OUT/new"`, f.out + "/new"},
		"redirection": {`echo x >"$OUT/new"`, f.out + "/new"},
		"append":      {`echo x >>"$OUT/file"`, f.out + "/file"},
		"remove":      {`rm -f "$OUT/file"`, f.out + "/file"},
		"mkdir":       {`mkdir "$OUT/new"`, f.out + "/new"},
		"relative":    {`cd "$OUT"; touch "$OUT/new"`, f.out + "/new"},
		"dd":          {`dd if=/dev/zero of="$OUT/file" bs=1 count=1 conv=notrunc status=none`, f.out + "/file"},
	}
	if f.owner().UID == 0 {
		cases["/etc"] = denied{`touch /etc/bashd-test-new`, "/etc/bashd-test-new"}
	}
	if mode == sandbox.ReadOnly {
		cases["workspace"] = denied{`touch "$WS/new"`, f.ws + "/new"}
	}
	before := facts(t, f.out)
	for name, d := range cases {
		for _, locale := range locales(name) {
			t.Run("denied/"+name+"/"+locale, func(t *testing.T) {
				c := f.command(t, mode, d.script)
				// As the daemon sets it where the request says nothing else.
				c.Env = append(c.Env, locale, "LC_MESSAGES=C.UTF-8")
				got := f.run(t, c)
				was, ok := f.Denied(c.Policy, c.Workdir, got.status.ExitStatus(), got.status.Signaled(), []byte(got.stderr))
				if !ok || was.Path != d.path || was.Evidence == "" {
					t.Errorf("%+v is told to be denied %v: %+v", got, ok, was)
				}
				if _, err := os.Lstat("/etc/bashd-test-new"); err == nil {
					t.Error("it was made")
					_ = os.Remove("/etc/bashd-test-new")
				}
			})
		}
	}
	unchanged(t, before, facts(t, f.out))
}
