package config

import (
	"bytes"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// table is the contract: every variable in order, its default, and whether it
// has no effect yet (-) or stops the start (!).
const table = `
BASHD_LISTEN 127.0.0.1:8080
BASHD_ADMIN_LISTEN ! –
BASHD_STATE_DIR $XDG_STATE_HOME/bashd, else ~/.local/state/bashd
BASHD_WORKSPACE $XDG_DATA_HOME/bashd/workspace, else ~/.local/share/bashd/workspace
BASHD_WORKSPACE_LAYOUT owner
BASHD_ALLOWED_ROOTS - –
BASHD_SANDBOX_MODE read-only
BASHD_SANDBOX_MAX_MODE workspace-write
BASHD_HIDE_PATHS –
BASHD_RUN_AS –
BASHD_WARM_RUNNERS 2
BASHD_TOKENS_FILE –
BASHD_APPROVER_TOKEN_FILE ! –
BASHD_ALLOW_OPEN false
BASHD_ALLOWED_HOSTS –
BASHD_ALLOWED_ORIGINS –
BASHD_APPROVALS - on
BASHD_APPROVAL_TIMEOUT_MS - 300000
BASHD_TOOL_BACKGROUND - true
BASHD_CONSOLE - auto
BASHD_TIMEOUT_MS 120000
BASHD_MAX_TIMEOUT_MS 600000
BASHD_GRACE_MS 3000
BASHD_MAX_OUTPUT_BYTES 64000
BASHD_MAX_SPILL_BYTES 67108864
BASHD_MAX_TASKS_PER_OWNER 10
BASHD_MAX_RUNNING 256
BASHD_MAX_PROCESSES 512
BASHD_MAX_OPEN_FILES 4096
BASHD_DSH_HOME $DSH_HOME of the daemon, else ~/.dsh
BASHD_MAX_FILE_BYTES 4294967296
BASHD_MAX_MEMORY_BYTES –
BASHD_MAX_TEMP_BYTES 0
BASHD_MAX_CPU_SECONDS –
BASHD_MAX_BODY_BYTES 8388608
BASHD_RETENTION 24h
BASHD_MAX_STATE_BYTES 10737418240
BASHD_DRAIN_MS 4000
BASHD_ENV_KEEP –
BASHD_MANAGED_ENV –
BASHD_LOG_LEVEL info
BASHD_LOG_FORMAT text
`

func TestVarsAreTheTable(t *testing.T) {
	var got strings.Builder
	got.WriteByte('\n')
	for i, v := range Vars() {
		mark := map[string]string{"": "", effectNone: "- ", effectRefused: "! "}[fields()[i].effect]
		if v.Effect != (mark == "") {
			t.Errorf("%s: Effect %v", v.Name, v.Effect)
		}
		def := v.Default
		if def == "" {
			def = "–"
		}
		got.WriteString(v.Name + " " + mark + def + "\n")
		if v.Doc == "" || strings.ContainsAny(v.Doc, "\n\t|") {
			t.Errorf("%s: explanation %q", v.Name, v.Doc)
		}
	}
	if got.String() != table {
		t.Errorf("got:%s", got.String())
	}
}

func TestExplanationsNameUnitsBoundsAndChoices(t *testing.T) {
	for _, f := range fields() {
		doc := f.explanation()
		for _, choice := range f.choices {
			if !strings.Contains(doc, choice) && choice != "false" {
				t.Errorf("%s: %q does not mention %s", f.name, doc, choice)
			}
		}
		if f.hasBounds() && !strings.HasSuffix(doc, " ("+f.minText+" to "+f.maxText+")") {
			t.Errorf("%s: %q does not end in its bounds", f.name, doc)
		}
		for suffix, unit := range map[string]string{"_MS": "milliseconds", "_BYTES": "bytes", "_SECONDS": "seconds"} {
			if strings.HasSuffix(f.name, suffix) && !strings.Contains(doc, unit) {
				t.Errorf("%s: %q does not say %s", f.name, doc, unit)
			}
		}
	}
}

func TestWriteHelp(t *testing.T) {
	var out bytes.Buffer
	WriteHelp(&out)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(Vars()) {
		t.Fatalf("%d lines for %d variables", len(lines), len(Vars()))
	}
	column := strings.Index(lines[0], Vars()[0].Doc)
	for i, v := range Vars() {
		if !strings.HasPrefix(lines[i], "  "+v.Name+" ") || strings.Index(lines[i], v.Doc) != column ||
			!strings.Contains(lines[i], v.Default) || strings.Contains(lines[i], "(no effect yet") == v.Effect {
			t.Errorf("%+v is shown as %q", v, lines[i])
		}
	}
	for _, want := range []string{
		"  BASHD_GRACE_MS             time from SIGTERM to SIGKILL, in milliseconds (0 to 60000); default: 3000\n",
		" the web console: on, off, or auto for open mode only; default: auto (no effect yet)\n",
		"approver, absolute (no effect yet: setting it stops the start)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

func TestWriteMarkdown(t *testing.T) {
	var out bytes.Buffer
	WriteMarkdown(&out)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(Vars())+2 || lines[0] != "| variable | default | |" || lines[1] != "| --- | --- | --- |" {
		t.Fatalf("not a table of all variables:\n%s", out.String())
	}
	for i, v := range Vars() {
		line := lines[i+2]
		if !strings.HasPrefix(line, "| `"+v.Name+"` | ") || strings.Count(line, "|") != 4 || !strings.HasSuffix(line, " |") ||
			!strings.Contains(line, v.Default) || strings.Contains(line, "(no effect yet") == v.Effect {
			t.Errorf("%+v is shown as %q", v, line)
		}
	}
	for _, want := range []string{
		"| `BASHD_GRACE_MS` | 3000 | time from SIGTERM to SIGKILL, in milliseconds (0 to 60000) |\n",
		`; \* for all, in closed mode only |` + "\n",
		"| `BASHD_RUN_AS` | – | ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

// written returns what Write wrote, one entry a variable, as bash reads it.
func written(t *testing.T, c Config) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash to read the lines with")
	}
	var script bytes.Buffer
	script.WriteString("set -a\n")
	c.Write(&script)
	if got := strings.Count(script.String(), "\n"); got != len(Vars())+1 {
		t.Fatalf("%d lines for %d variables:\n%s", got-1, len(Vars()), script.String())
	}
	if strings.ContainsFunc(script.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		t.Errorf("control characters reach the terminal: %q", script.String())
	}
	script.WriteString("env -0\n")
	cmd := exec.CommandContext(t.Context(), bash, "-c", script.String())
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash cannot read it: %v\n%s", err, script.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestWriteCanBeReadBack(t *testing.T) {
	for _, given := range [][]string{
		nil,
		{
			"BASHD_LISTEN=unix:/run/a b", "BASHD_STATE_DIR=/it's\t\"$HOME\" `x` \\ \n\xff\x1b[0m", "BASHD_WORKSPACE=/wörk", "BASHD_HIDE_PATHS=/a:/b c:/d\x9be:/\u009b:/\x7f",
			"BASHD_ALLOWED_HOSTS=::1,a.b", "BASHD_ALLOWED_ORIGINS=http://[::1]:8443,https://a", "BASHD_ENV_KEEP=MONKEY,DONKEY",
			"BASHD_RETENTION=90m", "BASHD_LOG_LEVEL=warn", "BASHD_MAX_CPU_SECONDS=7", "BASHD_GRACE_MS=0", "BASHD_ALLOW_OPEN=true",
		},
		append([]string{"BASHD_LISTEN=:80"}, beyond...),
		{"BASHD_LISTEN=:80", "BASHD_TOKENS_FILE=/t o", "BASHD_ALLOWED_ORIGINS=*"},
	} {
		c := mustLoad(t, given...)
		again, err := Load(written(t, c))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%q: read back as\n%+v, %v; want\n%+v", given, again, err, c)
		}
	}
}

func TestShellQuote(t *testing.T) {
	tests := map[string]string{
		"":             "",
		"/a-b_c:1,2=3": "/a-b_c:1,2=3",
		"~/a":          "'~/a'",
		"$a b":         "'$a b'",
		"wörk":         "'wörk'",
		"it's":         `'it'\''s'`,
		"a\nb'\\":      `$'a\x0ab\'\\'`,
		"\x7f":         `$'\x7f'`,
		"\u009b":       `$'\xc2\x9b'`,
		"\xff1":        `$'\xff1'`,
	}
	for s, want := range tests {
		if got := shellQuote(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}

func TestWriteShowsEffectiveValues(t *testing.T) {
	var out bytes.Buffer
	mustLoad(t, "BASHD_LISTEN=localhost:1", "BASHD_HIDE_PATHS=/a b").Write(&out)
	for _, want := range []string{
		"BASHD_LISTEN=127.0.0.1:1\n", "BASHD_ADMIN_LISTEN=\n", "BASHD_STATE_DIR=/home/u/.local/state/bashd\n", "BASHD_HIDE_PATHS='/a b'\n",
		"BASHD_TIMEOUT_MS=120000\n", "BASHD_RETENTION=24h0m0s\n", "BASHD_MAX_MEMORY_BYTES=0\n", "BASHD_MANAGED_ENV=\n", "BASHD_LOG_LEVEL=info\n",
	} {
		if !strings.Contains("\n"+out.String(), "\n"+want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	Config{TokensFile: "/etc/tokens"}.Write(&out)
	if !strings.Contains(out.String(), "BASHD_TOKENS_FILE=/etc/tokens\n") {
		t.Errorf("the path of the token file is not shown:\n%s", out.String())
	}
}
