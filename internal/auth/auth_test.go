package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// hashOf is the hash of a token as the file has it.
func hashOf(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// load loads a file with that content.
func load(t *testing.T, content string) (tokens *Tokens, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tokens")
	write(t, path, content)
	tokens, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, path
}

func TestParse(t *testing.T) {
	a, b := hashOf("a"), hashOf("b")
	one := func(name, hash string, roles ...Role) Identity { return Identity{Name: name, Roles: roles, ID: hash} }
	long := strings.Repeat("n", 64)
	for content, want := range map[string][]Identity{
		"":                            nil,
		"\n\r\n# x\n#\r\n":            nil,
		"ci:" + a:                     {one("ci", a, RoleRun)},
		"ci:" + a + "\n":              {one("ci", a, RoleRun)},
		"ci:" + a + "\r\nci:" + b:     {one("ci", a, RoleRun), one("ci", b, RoleRun)},
		"#c\n\nA-b_c.9:" + a + ":run": {one("A-b_c.9", a, RoleRun)},
		"p:" + a + ":metrics":         {one("p", a, RoleMetrics)},
		"p:" + a + ":approve-all,run,metrics,approve": {one("p", a, RoleApproveAll, RoleRun, RoleMetrics, RoleApprove)},
		long + ":" + strings.ToUpper(a):               {one(long, a, RoleRun)},
	} {
		entries, err := parse(content)
		if err != nil {
			t.Errorf("%q: %v", content, err)
		}
		var got []Identity
		for _, e := range entries {
			got = append(got, e.identity)
			if hex.EncodeToString(e.hash[:]) != e.identity.ID {
				t.Errorf("%q: hash %x, ID %s", content, e.hash, e.identity.ID)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", content, got, want)
		}
	}
}

// badLines are lines that nobody may take for a token, and what is said of them.
var badLines = map[string]string{
	"canary":                             "must be name:hash",
	" ":                                  "must be name:hash",
	"\ufeff":                             "must be name:hash",
	" # canary":                          "must be name:hash",
	":" + hashOf("x"):                    "the name must be",
	" ci:" + hashOf("x"):                 "the name must be",
	"canary canary:" + hashOf("x"):       "the name must be",
	"can/ary:" + hashOf("x"):             "the name must be",
	"canäry:" + hashOf("x"):              "the name must be",
	"ci\r:" + hashOf("x"):                "the name must be",
	"ci\x00:" + hashOf("x"):              "the name must be",
	strings.Repeat("n", 65) + ":" + "00": "the name must be",
	"ci:":                                "64 hex digits",
	"ci:canary":                          "64 hex digits",
	"ci:" + hashOf("x")[1:]:              "64 hex digits",
	"ci:" + hashOf("x") + "0":            "64 hex digits",
	"ci:" + hashOf("x") + "00":           "64 hex digits",
	"ci:" + hashOf("x") + " ":            "64 hex digits",
	"ci: " + hashOf("x"):                 "64 hex digits",
	"ci:g" + hashOf("x")[1:]:             "64 hex digits",
	"ci:" + hashOf("x") + "  -":          "64 hex digits", // as sha256sum prints it
	"ci:" + hashOf(""):                   "of an empty token",
	"ci:" + hashOf("x") + ":":            "no role follows",
	"ci:" + hashOf("x") + ":canary":      "role 1 is unknown; the roles are run, approve, approve-all and metrics",
	"ci:" + hashOf("x") + ":Run":         "role 1 is unknown",
	"ci:" + hashOf("x") + ":run,":        "role 2 is unknown",
	"ci:" + hashOf("x") + ":run, run":    "role 2 is unknown",
	"ci:" + hashOf("x") + ":run ":        "role 1 is unknown",
	"ci:" + hashOf("x") + ":run\r\r":     "role 1 is unknown", // one CR ends a line, the other is part of it
	"ci:" + hashOf("x") + ":run:run":     "role 1 is unknown",
	"ci:" + hashOf("x") + ":run,run":     "role 2 is there twice",
	// Appended to a file whose last line had no end.
	"a:" + hashOf("x") + "b:" + hashOf("y"):     "64 hex digits",
	"a:" + hashOf("x") + ":runb:" + hashOf("y"): "role 1 is unknown",
}

func TestBadLinesAreNamedByNumber(t *testing.T) {
	for line, want := range badLines {
		entries, err := parse("# canary\nok:" + hashOf("ok") + "\n" + line + "\n")
		if err == nil || entries != nil || !strings.HasPrefix(err.Error(), "line 3: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want …%s…", line, entries, err, want)
			continue
		}
		for _, private := range []string{"canary", "\n", "\r", hashOf("x")[:8], hashOf("x")[56:]} {
			if strings.Contains(err.Error(), private) {
				t.Errorf("%q: the error quotes it: %v", line, err)
			}
		}
	}
}

func TestOneTokenTwice(t *testing.T) {
	a := hashOf("a")
	for _, again := range []string{"ci:" + a, "other:" + a, "ci:" + strings.ToUpper(a) + ":metrics"} {
		_, err := parse("ci:" + a + "\n\n" + again)
		if err == nil || !strings.HasPrefix(err.Error(), "line 3: the hash is that of line 1;") {
			t.Errorf("%q: %v", again, err)
		}
	}
}

func TestLookup(t *testing.T) {
	tokens, _ := load(t, "first:"+hashOf("one")+"\nmid:"+hashOf("two")+":metrics\nfirst:"+hashOf("three")+":run,approve\n")
	if tokens.Len() != 3 {
		t.Errorf("%d tokens", tokens.Len())
	}
	for token, want := range map[string]Identity{
		"one":   {"first", []Role{RoleRun}, hashOf("one")},
		"two":   {"mid", []Role{RoleMetrics}, hashOf("two")},
		"three": {"first", []Role{RoleRun, RoleApprove}, hashOf("three")},
	} {
		got, ok := tokens.Lookup(token)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v", token, got, ok)
		}
		for _, r := range allRoles {
			if got.Has(r) != slices.Contains(want.Roles, r) {
				t.Errorf("%s: has %s: %v", token, r, got.Has(r))
			}
		}
	}
	for _, token := range []string{"", "on", "onee", "One", "one ", "one\n", "first", hashOf("one"), strings.Repeat("x", 1<<16)} {
		if got, ok := tokens.Lookup(token); ok || !reflect.DeepEqual(got, Identity{}) {
			t.Errorf("%.20q: %+v %v", token, got, ok)
		}
	}
}

func TestNobodyHasNoRole(t *testing.T) {
	for _, r := range append(allRoles, "") {
		if (Identity{}).Has(r) {
			t.Errorf("nobody has %q", r)
		}
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "canary")
	good := "ci:" + hashOf("a") + "\n"
	refused := func(want string) {
		t.Helper()
		tokens, err := Load(path)
		if err == nil || tokens != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want …%s…", err, want)
		}
		if strings.Contains(strings.TrimSuffix(err.Error(), "chmod go-w "+path), "canary") {
			t.Errorf("%v repeats the path", err)
		}
	}
	refused("no such file")
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666, 0o660} {
		write(t, path, good)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		refused("chmod go-w " + path)
	}
	for _, mode := range []os.FileMode{0o600, 0o400, 0o640, 0o644, 0o444} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err != nil {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, empty := range []string{"", "\n", "# only a comment\r\n"} {
		write(t, path, empty)
		refused("bashd token")
	}
	write(t, path, "x")
	refused("line 1: ")
	fill := "#" + strings.Repeat("x", maxFileBytes-len(good)-2) + "\n"
	write(t, path, fill+good)
	if _, err := Load(path); err != nil {
		t.Errorf("exactly the bound: %v", err)
	}
	write(t, path, "#"+fill+good)
	refused("larger than 1048576 bytes")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("not a regular file")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("not a regular file")
}

// TestMountedSecret: Kubernetes mounts a file as a link to one in a directory
// that is a link itself, and replaces the latter.
func TestMountedSecret(t *testing.T) {
	dir := t.TempDir()
	for name, token := range map[string]string{"v1": "a", "v2": "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "tokens"), "ci:"+hashOf(token))
	}
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	path := filepath.Join(dir, "tokens")
	if err := os.Symlink("data/tokens", path); err != nil {
		t.Fatal(err)
	}
	tokens, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	link("v2")
	if removed, err := tokens.Reload(); removed != 1 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	if _, ok := tokens.Lookup("b"); !ok {
		t.Error("the new secret is not known")
	}
	// A link does not hide who may write what it leads to.
	if err := os.Chmod(filepath.Join(dir, "v2", "tokens"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Reload(); err == nil {
		t.Error("a file that all may write was taken through a link")
	}
}

func TestReload(t *testing.T) {
	line := func(token string, roles ...Role) string {
		return formatLine("ci", sha256.Sum256([]byte(token)), roles) + "\n"
	}
	tokens, path := load(t, line("a")+line("b")+line("c"))
	known := func(want ...string) {
		t.Helper()
		for _, token := range []string{"a", "b", "c", "d"} {
			if _, ok := tokens.Lookup(token); ok != slices.Contains(want, token) {
				t.Errorf("%s is known: %v", token, ok)
			}
		}
		if tokens.Len() != len(want) {
			t.Errorf("%d tokens, want %d", tokens.Len(), len(want))
		}
	}
	write(t, path, line("d")+line("b", RoleMetrics))
	if removed, err := tokens.Reload(); removed != 2 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	known("b", "d")
	if id, _ := tokens.Lookup("b"); id.Has(RoleRun) || !id.Has(RoleMetrics) {
		t.Errorf("roles are %v", id.Roles)
	}
	for _, bad := range []string{line("a") + "canary", line("a") + line("a")} {
		write(t, path, bad)
		if removed, err := tokens.Reload(); removed != 0 || err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("removed %d, %v", removed, err)
		}
		known("b", "d")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Reload(); err == nil {
		t.Error("a missing file is no error")
	}
	known("b", "d")
	// Others may write it: what is gone is gone, and nothing comes in.
	write(t, path, line("a")+line("b", RoleMetrics, RoleRun))
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if removed, err := tokens.Reload(); removed != 1 || err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("removed %d, %v", removed, err)
	}
	known("b")
	if id, _ := tokens.Lookup("b"); id.Has(RoleRun) || !id.Has(RoleMetrics) {
		t.Errorf("roles are %v", id.Roles)
	}
	for _, want := range []bool{true, false} {
		if mended, err := tokens.Guard(); mended != want || err != nil {
			t.Errorf("mended %v, %v", mended, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", st, err)
	}
	if removed, err := tokens.Reload(); removed != 0 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	known("a", "b")
	// Everybody out, and in again.
	write(t, path, "# nobody\n")
	if removed, err := tokens.Reload(); removed != 2 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	known()
	write(t, path, line("a"))
	if removed, err := tokens.Reload(); removed != 0 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	known("a")
}

// TestReloadWhileInUse: a token that stays is known at every moment.
func TestReloadWhileInUse(t *testing.T) {
	stays := "ci:" + hashOf("stays") + "\n"
	tokens, path := load(t, stays)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, ok := tokens.Lookup("stays"); !ok {
					t.Error("not known for a moment")
					return
				}
			}
		})
	}
	for i := range 50 {
		content := stays
		if i%2 == 0 {
			content = "x:" + hashOf("x") + "\n" + stays
		}
		write(t, path+".new", content)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := tokens.Reload(); err != nil {
				t.Error(err)
			}
		})
	}
	close(stop)
	wg.Wait()
}

func TestNew(t *testing.T) {
	seen := map[string]bool{}
	for _, roles := range [][]Role{nil, {RoleRun}, {RoleMetrics}, {RoleRun, RoleApprove, RoleApproveAll, RoleMetrics}} {
		token, line, err := New("A-b_c.9", roles)
		if err != nil {
			t.Fatal(err)
		}
		secret, isToken := strings.CutPrefix(token, "bashd_")
		if raw, err := base64.RawURLEncoding.DecodeString(secret); !isToken || len(secret) != 43 || err != nil || len(raw) != 32 || seen[token] {
			t.Errorf("token %q: %v", token, err)
		}
		seen[token] = true
		if strings.Contains(line, secret) || strings.ContainsAny(line, "\r\n") {
			t.Errorf("line %q", line)
		}
		tokens, _ := load(t, line)
		want := roles
		if want == nil {
			want = []Role{RoleRun}
		}
		if id, ok := tokens.Lookup(token); !ok || id.Name != "A-b_c.9" || !slices.Equal(id.Roles, want) {
			t.Errorf("%q is read as %+v %v", line, id, ok)
		}
	}
	for _, bad := range []struct {
		name  string
		roles []Role
		want  string
	}{
		{"", nil, "the name must be 1 to 64 of A-Z a-z 0-9 . _ -"},
		{"a b", nil, "the name"},
		{"a:b", nil, "the name"},
		{"#a", nil, "the name"},
		{strings.Repeat("n", 65), nil, "the name"},
		{"ci", []Role{"run", "canary"}, "role 2 is unknown; the roles are run, approve, approve-all and metrics"},
		{"ci", []Role{""}, "role 1 is unknown"},
		{"ci", []Role{"run,metrics"}, "role 1 is unknown"},
		{"ci", []Role{"metrics", "metrics"}, "role 2 is there twice"},
	} {
		token, line, err := New(bad.name, bad.roles)
		if err == nil || token != "" || line != "" || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %q, %q, %v", bad, token, line, err)
		}
	}
}
