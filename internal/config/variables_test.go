package config

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

// environ puts what is given before a home directory, which Load needs.
func environ(given ...string) []string {
	return append(given, "HOME=/home/u")
}

func mustLoad(t *testing.T, given ...string) Config {
	t.Helper()
	c, err := Load(environ(given...))
	if err != nil {
		t.Fatalf("Load(%q): %v", given, err)
	}
	return c
}

// wantError checks that Load refuses with one line that begins with name and
// contains text.
func wantError(t *testing.T, name, text string, given ...string) {
	t.Helper()
	c, err := Load(environ(given...))
	if err == nil {
		t.Fatalf("Load(%q) accepted it", given)
	}
	if !reflect.DeepEqual(c, Config{}) {
		t.Errorf("Load(%q) returned a configuration beside its error", given)
	}
	msg := err.Error()
	if !strings.HasPrefix(msg, name+": ") || !strings.Contains(msg, text) || strings.ContainsAny(msg, "\r\n") {
		t.Errorf("Load(%q): %q; want one line %s: …%s…", given, msg, name, text)
	}
}

// good are a value, what it is read as, and what else must be set for it.
type good struct {
	value string
	want  any
	with  []string
}

// variable are the values that one variable takes and refuses. A refused
// variable is read as want and then stops the start.
type variable struct {
	good []good
	bad  []string
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

var (
	badNumbers = []string{"", " ", "-1", "+1", "1.5", "1e3", "0x10", "1_000", "1 ", " 1", "1\n", "many", "9223372036854775808", "99999999999999999999999"}
	badChoices = []string{"", " ", "x", "true ", "\n"}
	badPaths   = []string{"relative", "./x", "~/x", "$HOME", "/a\x00b", "/" + strings.Repeat("a", 4096)}
	badMillis  = append([]string{"1s", "1ms", "2147483648"}, badNumbers...)
	badModes   = append([]string{"READ-ONLY", "Read-Only", "readonly", "read_only", "full"}, badChoices...)
	badBools   = append([]string{"1", "yes", "TRUE", "True", "on"}, badChoices...)
	badListen  = []string{
		"8080", "localhost", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1",
		"example.org:80", "::1:80", "127.1:80", "0127.0.0.1:80", "http://127.0.0.1:80", " 127.0.0.1:80",
		"unix:", "unix:relative", "unix:/", "unix:@abstract", "unix:/" + strings.Repeat("a", 107), "unix:/a\x00",
	}
)

// beyond is what open mode needs beyond loopback.
var beyond = []string{"BASHD_ALLOW_OPEN=true", "BASHD_ALLOWED_HOSTS=h"}

var variables = map[string]variable{
	"BASHD_LISTEN": {
		good: []good{
			{"127.0.0.2:0", Address{"tcp", "127.0.0.2:0"}, nil},
			{"[::1]:65535", Address{"tcp", "[::1]:65535"}, nil},
			{"[::ffff:127.0.0.1]:1", Address{"tcp", "[::ffff:127.0.0.1]:1"}, nil},
			{"LocalHost:80", Address{"tcp", "127.0.0.1:80"}, nil},
			{":80", Address{"tcp", ":80"}, beyond},
			{"0.0.0.0:80", Address{"tcp", "0.0.0.0:80"}, beyond},
			{"unix:/run//bashd/../s", Address{"unix", "/run/s"}, nil},
			{"unix:/" + strings.Repeat("a", 106), Address{"unix", "/" + strings.Repeat("a", 106)}, nil},
		},
		bad: append([]string{""}, badListen...),
	},
	"BASHD_ADMIN_LISTEN": {
		good: []good{{"", Address{}, nil}, {"127.0.0.1:9", Address{"tcp", "127.0.0.1:9"}, nil}},
		bad:  badListen,
	},
	"BASHD_STATE_DIR": {
		good: []good{{"/s/./x//", "/s/x", nil}, {"", "/home/u/.local/state/bashd", nil}},
		bad:  badPaths,
	},
	"BASHD_WORKSPACE": {
		good: []good{{"/w/a/../b", "/w/b", nil}, {"", "/home/u/.local/share/bashd/workspace", nil}},
		bad:  badPaths,
	},
	"BASHD_WORKSPACE_LAYOUT": {
		good: []good{{"owner", LayoutOwner, nil}, {"single", LayoutSingle, nil}},
		bad:  append([]string{"Owner"}, badChoices...),
	},
	"BASHD_ALLOWED_ROOTS": {
		good: []good{{"/a::/b/:", Paths{"/a", "/b"}, nil}, {"", Paths(nil), nil}, {":", Paths(nil), nil}},
		bad:  append([]string{"/", "/a:b", "/a:/b/.."}, badPaths...),
	},
	"BASHD_SANDBOX_MODE": {
		good: []good{
			{"read-only", ModeReadOnly, nil},
			{"workspace-write", ModeWorkspaceWrite, nil},
			{"danger-full-access", ModeDangerFullAccess, []string{"BASHD_SANDBOX_MAX_MODE=danger-full-access"}},
		},
		bad: badModes,
	},
	"BASHD_SANDBOX_MAX_MODE": {
		good: []good{
			{"read-only", ModeReadOnly, nil},
			{"workspace-write", ModeWorkspaceWrite, nil},
			{"danger-full-access", ModeDangerFullAccess, nil},
		},
		bad: badModes,
	},
	"BASHD_HIDE_PATHS": {
		good: []good{{"/etc/shadow:/root/", Paths{"/etc/shadow", "/root"}, nil}, {"", Paths(nil), nil}},
		bad:  append([]string{"/", "/etc,etc:b"}, badPaths...),
	},
	"BASHD_RUN_AS": {
		good: []good{
			{"", User(""), nil},
			{"nobody", User("nobody"), nil},
			{"65534", User("65534"), nil},
			{"1:4294967294", User("1:4294967294"), nil},
		},
		bad: []string{"root", "0", "0:1", "1:0", "00", "4294967295", "1:", ":1", "a:b", "a b", "-a", "a\n", strings.Repeat("a", 33)},
	},
	"BASHD_WARM_RUNNERS": {
		good: []good{{"0", 0, nil}, {"256", 256, nil}},
		bad:  append([]string{"257"}, badNumbers...),
	},
	"BASHD_TOKENS_FILE": {
		good: []good{{"", "", nil}, {"/etc/bashd/tokens", "/etc/bashd/tokens", nil}},
		bad:  badPaths,
	},
	"BASHD_APPROVER_TOKEN_FILE": {
		good: []good{{"", "", nil}, {"/t", "/t", nil}},
		bad:  badPaths,
	},
	"BASHD_ALLOW_OPEN": {
		good: []good{{"true", true, nil}, {"false", false, nil}},
		bad:  badBools,
	},
	"BASHD_ALLOWED_HOSTS": {
		good: []good{
			{"", Hosts(nil), nil},
			{"Example.ORG., my_box ,,10.0.0.1,[2001:DB8::0:1],::1", Hosts{"example.org", "my_box", "10.0.0.1", "2001:db8::1", "::1"}, nil},
		},
		bad: []string{
			"example.org:80", "10.0.0.1:80", "[::1]:80", "*", "*.example.org", "http://example.org", "a/b", "a..b", ".a", "a b", "[::1", "[a]",
			"fe80::1%eth0", "ü.example", "\u212a", strings.Repeat("a", 64), strings.Repeat("a.", 126) + "aa", "a\nb",
		},
	},
	"BASHD_ALLOWED_ORIGINS": {
		good: []good{
			{"", Origins(nil), nil},
			{"HTTPS://App.Example:443, http://x:80,http://x:8080", Origins{"https://app.example", "http://x", "http://x:8080"}, nil},
			{"http://[0:0::1]:8443,http://[::1],vscode-webview://id", Origins{"http://[::1]:8443", "http://[::1]", "vscode-webview://id"}, nil},
			{"https://x:80", Origins{"https://x:80"}, nil},
		},
		bad: []string{
			"null", "http://a,null", "example.org", "//x", "://x", "1http://x", "http:x", "http://", "http://x/", "http://x/p", "http://x?q", "http://x#f", "http://*.x",
			"http://x:", "http://x:0", "http://x:65536", "http://x:http", "http://::1", "http://[x]", "http://[::1", "http://u@x", "http://x\n",
			"file://", "\u212a://x", "http://x y",
		},
	},
	"BASHD_APPROVALS": {
		good: []good{{"on", "on", nil}, {"off", "off", nil}},
		bad:  append([]string{"true", "Off"}, badChoices...),
	},
	"BASHD_APPROVAL_TIMEOUT_MS": {
		good: []good{{"1", millis(1), nil}, {"2147483647", millis(2147483647), nil}},
		bad:  append([]string{"0"}, badMillis...),
	},
	"BASHD_TOOL_BACKGROUND": {
		good: []good{{"true", true, nil}, {"false", false, nil}},
		bad:  badBools,
	},
	"BASHD_CONSOLE": {
		good: []good{{"auto", "auto", nil}, {"on", "on", nil}, {"off", "off", nil}},
		bad:  append([]string{"Auto"}, badChoices...),
	},
	"BASHD_TIMEOUT_MS": {
		good: []good{
			{"1", millis(1), nil},
			{"600000", millis(600000), nil},
			{"2147483647", millis(2147483647), []string{"BASHD_MAX_TIMEOUT_MS=2147483647"}},
		},
		bad: append([]string{"0"}, badMillis...),
	},
	"BASHD_MAX_TIMEOUT_MS": {
		good: []good{{"120000", millis(120000), nil}, {"1", millis(1), []string{"BASHD_TIMEOUT_MS=1"}}, {"2147483647", millis(2147483647), nil}},
		bad:  append([]string{"0"}, badMillis...),
	},
	"BASHD_GRACE_MS": {
		good: []good{{"0", millis(0), nil}, {"60000", millis(60000), nil}},
		bad:  append([]string{"60001"}, badMillis...),
	},
	"BASHD_MAX_OUTPUT_BYTES": {
		good: []good{{"1", 1, nil}, {"8388608", 8388608, nil}},
		bad:  append([]string{"0", "8388609"}, badNumbers...),
	},
	"BASHD_MAX_SPILL_BYTES": {
		good: []good{{"0", int64(0), nil}, {"1099511627776", int64(1) << 40, nil}},
		bad:  append([]string{"1099511627777"}, badNumbers...),
	},
	"BASHD_MAX_TASKS_PER_OWNER": {
		good: []good{{"1", 1, nil}, {"65536", 65536, nil}},
		bad:  append([]string{"0", "65537"}, badNumbers...),
	},
	"BASHD_MAX_RUNNING": {
		good: []good{{"1", 1, nil}, {"65536", 65536, nil}},
		bad:  append([]string{"0", "65537"}, badNumbers...),
	},
	"BASHD_MAX_PROCESSES": {
		good: []good{{"1", 1, nil}, {"4194304", 4194304, nil}},
		bad:  append([]string{"0", "4194305"}, badNumbers...),
	},
	"BASHD_MAX_OPEN_FILES": {
		good: []good{{"16", 16, nil}, {"1048576", 1048576, nil}},
		bad:  append([]string{"15", "1048577"}, badNumbers...),
	},
	"BASHD_DSH_HOME": {
		good: []good{{"/d/", "/d", nil}, {"", "/home/u/.dsh", nil}, {"", "/own", []string{"DSH_HOME=/own/"}}},
		bad:  badPaths,
	},
	"BASHD_MAX_FILE_BYTES": {
		good: []good{{"1", int64(1), nil}, {"1099511627776", int64(1) << 40, nil}},
		bad:  append([]string{"0", "1099511627777"}, badNumbers...),
	},
	"BASHD_MAX_MEMORY_BYTES": {
		good: []good{{"0", int64(0), nil}, {"1", int64(1), nil}, {"1099511627776", int64(1) << 40, nil}},
		bad:  append([]string{"1099511627777"}, badNumbers...),
	},
	"BASHD_MAX_TEMP_BYTES": {
		good: []good{{"0", int64(0), nil}, {"67108864", int64(64 << 20), nil}, {"1099511627776", int64(1) << 40, nil}},
		bad:  append([]string{"1099511627777"}, badNumbers...),
	},
	"BASHD_MAX_CPU_SECONDS": {
		good: []good{{"0", 0, nil}, {"2147483647", 2147483647, nil}},
		bad:  append([]string{"2147483648"}, badNumbers...),
	},
	"BASHD_MAX_BODY_BYTES": {
		good: []good{{"1024", int64(1024), nil}, {"1073741824", int64(1) << 30, nil}},
		bad:  append([]string{"1023", "1073741825"}, badNumbers...),
	},
	"BASHD_RETENTION": {
		good: []good{{"1s", time.Second, nil}, {"1h30m", 90 * time.Minute, nil}, {"87600h", 87600 * time.Hour, nil}},
		bad:  []string{"", "0", "24", "24 h", "1d", "999ms", "-1h", "87601h", "forever", "9999999999999h", "1h\n"},
	},
	"BASHD_MAX_STATE_BYTES": {
		good: []good{{"1", int64(1), nil}, {"1125899906842624", int64(1) << 50, nil}},
		bad:  append([]string{"0", "1125899906842625"}, badNumbers...),
	},
	"BASHD_DRAIN_MS": {
		good: []good{{"0", millis(0), nil}, {"600000", millis(600000), nil}},
		bad:  append([]string{"600001"}, badMillis...),
	},
	"BASHD_ENV_KEEP": {
		good: []good{{"", Names(nil), nil}, {"MONKEY, _keyboard,,", Names{"MONKEY", "_keyboard"}, nil}},
		bad: []string{
			"1A", "A-B", "A B", "A=b", "*", "ä", "BASHD_TOKENS_FILE", "DSH_KEY", "BASH_FUNC_x", "LD_PRELOAD", "BASH_ENV", "A,ENV", "A\nB",
		},
	},
	"BASHD_MANAGED_ENV": {
		good: []good{
			{"", map[string]string(nil), nil},
			{",", map[string]string(nil), nil},
			{"DSH_A=x=y,,DSH_B_2=,DSH_C= z\n", map[string]string{"DSH_A": "x=y", "DSH_B_2": "", "DSH_C": " z\n"}, nil},
		},
		bad: []string{
			"DSH_A", "=x", "A=x", "DSH_=x", "DSH_a=x", "dsh_A=x", "DSH_A-B=x", "DSH_A=x, DSH_B=y", "DSH_A=x,DSH_A=x", "DSH_A=\x00",
			"DSH_HOME=/x", "DSH_SHELL=1", "DSH_SESSION_ID=x", "DSH_TASK_ID=x", "DSH_SESSION_JSONL=/x", "BASHD_A=x",
		},
	},
	"BASHD_LOG_LEVEL": {
		good: []good{{"debug", slog.LevelDebug, nil}, {"info", slog.LevelInfo, nil}, {"warn", slog.LevelWarn, nil}, {"error", slog.LevelError, nil}},
		bad:  append([]string{"INFO", "info+1", "warning", "0"}, badChoices...),
	},
	"BASHD_LOG_FORMAT": {
		good: []good{{"text", LogFormatText, nil}, {"json", LogFormatJSON, nil}},
		bad:  append([]string{"JSON", "logfmt"}, badChoices...),
	},
}

// notSupported is in the error for a good value of a refused variable.
const notSupported = "not supported by this version"

func TestEveryVariable(t *testing.T) {
	if len(variables) != len(fields()) {
		t.Errorf("the test knows %d variables, Config has %d", len(variables), len(fields()))
	}
	for _, f := range fields() {
		t.Run(f.name, func(t *testing.T) {
			v := variables[f.name]
			if len(v.good) < 2 || len(v.bad) == 0 {
				t.Fatal("needs good values and bad ones in this test")
			}
			for _, g := range v.good {
				checkGood(t, f, g)
			}
			for _, bad := range v.bad {
				wantError(t, f.name, "", f.name+"="+bad)
				if _, err := Load(environ(f.name + "=" + bad)); strings.Contains(err.Error(), notSupported) {
					t.Errorf("%q is a good value, refused only for want of an effect", bad)
				}
			}
		})
	}
}

func checkGood(t *testing.T, f field, g good) {
	t.Helper()
	given := append([]string{f.name + "=" + g.value}, g.with...)
	if f.effect == effectRefused && !reflect.ValueOf(g.want).IsZero() {
		wantError(t, f.name, notSupported, given...)
		return
	}
	got := reflect.ValueOf(mustLoad(t, given...)).Field(f.index).Interface()
	if m, ok := got.(ManagedEnv); ok {
		got = m.Map()
	}
	if !reflect.DeepEqual(got, g.want) {
		t.Errorf("%q: got %#v, want %#v", given, got, g.want)
	}
}
