package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	c := mustLoad(t)
	want := Config{
		Listen:           Address{"tcp", "127.0.0.1:8080"},
		StateDir:         "/home/u/.local/state/bashd",
		Workspace:        "/home/u/.local/share/bashd/workspace",
		WorkspaceLayout:  "owner",
		SandboxMode:      "read-only",
		SandboxMaxMode:   "workspace-write",
		WarmRunners:      2,
		Approvals:        "on",
		ApprovalTimeout:  5 * time.Minute,
		ToolBackground:   true,
		Console:          "auto",
		Timeout:          2 * time.Minute,
		MaxTimeout:       10 * time.Minute,
		Grace:            3 * time.Second,
		MaxOutputBytes:   64000,
		MaxSpillBytes:    64 << 20,
		MaxTasksPerOwner: 10,
		MaxRunning:       256,
		MaxProcesses:     512,
		MaxOpenFiles:     4096,
		DSHHome:          "/home/u/.dsh",
		MaxFileBytes:     4 << 30,
		MaxBodyBytes:     8 << 20,
		Retention:        24 * time.Hour,
		MaxStateBytes:    10 << 30,
		Drain:            4 * time.Second,
		LogFormat:        "text",
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if !c.Open() {
		t.Error("not open without a token file")
	}
	if (Config{TokensFile: "/t"}).Open() {
		t.Error("open with a token file")
	}
}

func TestDerivedDirectories(t *testing.T) {
	tests := []struct {
		name                      string
		environ                   []string
		state, workspace, dshHome string
		fails                     string // the variable named
	}{
		{name: "home", environ: []string{"HOME=/h/"}, state: "/h/.local/state/bashd", workspace: "/h/.local/share/bashd/workspace", dshHome: "/h/.dsh"},
		{
			name:    "xdg",
			environ: []string{"HOME=/h", "XDG_STATE_HOME=/xs/", "XDG_DATA_HOME=/xd", "DSH_HOME=/d"},
			state:   "/xs/bashd", workspace: "/xd/bashd/workspace", dshHome: "/d",
		},
		{
			name:    "relative xdg is ignored",
			environ: []string{"HOME=/h", "XDG_STATE_HOME=xs", "XDG_DATA_HOME=./xd", "DSH_HOME="},
			state:   "/h/.local/state/bashd", workspace: "/h/.local/share/bashd/workspace", dshHome: "/h/.dsh",
		},
		{
			name:    "first of two counts, as for os.Getenv",
			environ: []string{"HOME=/h", "HOME=/other"},
			state:   "/h/.local/state/bashd", workspace: "/h/.local/share/bashd/workspace", dshHome: "/h/.dsh",
		},
		{
			name:    "no home needed",
			environ: []string{"BASHD_STATE_DIR=/s", "BASHD_WORKSPACE=/w", "BASHD_DSH_HOME=/d"},
			state:   "/s", workspace: "/w", dshHome: "/d",
		},
		{name: "no home", environ: nil, fails: "BASHD_STATE_DIR"},
		{name: "relative home", environ: []string{"HOME=h"}, fails: "BASHD_STATE_DIR"},
		{name: "no home for the workspace", environ: []string{"XDG_STATE_HOME=/s"}, fails: "BASHD_WORKSPACE"},
		{name: "no home for DSH_HOME", environ: []string{"XDG_STATE_HOME=/s", "XDG_DATA_HOME=/d"}, fails: "BASHD_DSH_HOME"},
		{name: "relative DSH_HOME", environ: []string{"HOME=/h", "DSH_HOME=d"}, fails: "BASHD_DSH_HOME"},
		{name: "NUL in home", environ: []string{"HOME=/h\x00"}, fails: "BASHD_STATE_DIR"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Load(test.environ)
			if test.fails != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.fails+": ") {
					t.Errorf("got error %v, want one that names %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.StateDir != test.state || c.Workspace != test.workspace || c.DSHHome != test.dshHome {
				t.Errorf("got %q, %q, %q", c.StateDir, c.Workspace, c.DSHHome)
			}
		})
	}
}

func TestLoadLooksAtItsArgumentOnly(t *testing.T) {
	t.Setenv("BASHD_LISTEN", "127.0.0.1:1")
	t.Setenv("BASHD_NO_SUCH_THING", "x")
	t.Setenv("XDG_STATE_HOME", "/elsewhere")
	if got, want := mustLoad(t), "/home/u/.local/state/bashd"; got.Listen.Addr != "127.0.0.1:8080" || got.StateDir != want {
		t.Errorf("the process's environment shows: %v, %v", got.Listen, got.StateDir)
	}
}

func TestUnknownNames(t *testing.T) {
	tests := []struct{ name, shown, meant string }{
		{"BASHD_LISTN", "BASHD_LISTN", "BASHD_LISTEN"},
		{"BASHD_LSITEN", "BASHD_LSITEN", "BASHD_LISTEN"},
		{"BASHD_TOKEN_FILE", "BASHD_TOKEN_FILE", "BASHD_TOKENS_FILE"},
		{"BASHD_TIMEOUT", "BASHD_TIMEOUT", "BASHD_TIMEOUT_MS"},
		{"BASHD_APPROVER", "BASHD_APPROVER", "BASHD_APPROVALS"},
		{"BASHD_RETENTION_MS", "BASHD_RETENTION_MS", "BASHD_RETENTION"},
		{"BASHD_HIDE", "BASHD_HIDE", "BASHD_HIDE_PATHS"},
		{"BASHD_MAX_", "BASHD_MAX_", ""}, // many begin like that
		{"BASHD_TLS_CERT", "BASHD_TLS_CERT", ""},
		{"BASHD_", "BASHD_", ""},
		{"BASHD_TEN", "BASHD_TEN", ""}, // near LISTEN in edits only
		{"BASHD_listen", `"BASHD_listen"`, ""},
		{"BASHD_A\nB", `"BASHD_A\nB"`, ""},
		{"BASHD_" + strings.Repeat("X", 5000), `"BASHD_` + strings.Repeat("X", 58) + `"…`, ""},
	}
	for _, test := range tests {
		wantError(t, test.shown, "unknown variable; ", test.name+"=very-secret")
		_, err := Load(environ(test.name + "=very-secret"))
		if strings.Contains(err.Error(), "very-secret") {
			t.Errorf("%q: the error shows the value", err)
		}
		if suggests := strings.Contains(err.Error(), "did you mean "); suggests != (test.meant != "") ||
			suggests && !strings.HasSuffix(err.Error(), "did you mean "+test.meant+"?") {
			t.Errorf("%q: want suggestion %q", err, test.meant)
		}
	}
}

func TestOtherNamesAreIgnored(t *testing.T) {
	for _, entry := range []string{"", "BASHD_LISTEN", "=x", "bashd_listen=x", "BASHDX=1", "XBASHD_LISTEN=x", "PATH=/bin"} {
		mustLoad(t, entry)
	}
}

func TestKubernetesNames(t *testing.T) {
	for _, name := range []string{
		"BASHD_SERVICE_HOST", "BASHD_SERVICE_PORT", "BASHD_SERVICE_PORT_HTTP", "BASHD_PORT",
		"BASHD_PORT_8080_TCP", "BASHD_PORT_8080_TCP_ADDR", "BASHD_PORT_8080_TCP_PORT", "BASHD_PORT_80_UDP_PROTO",
	} {
		mustLoad(t, name+"=tcp://10.0.0.1:8080")
	}
	for _, name := range []string{
		"BASHD_SERVICE", "BASHD_SERVICE_HOSTS", "BASHD_SERVICE_HOST_X", "BASHD_PORTS", "BASHD_PORT_", "BASHD_PORT__X",
		"BASHD_PORT_8080", "BASHD_PORT_X_TCP", "BASHD_PORT_80X_TCP",
	} {
		wantError(t, name, "unknown variable", name+"=x")
	}
}

func TestRepeatedName(t *testing.T) {
	wantError(t, "BASHD_LISTEN", "set twice", "BASHD_LISTEN=127.0.0.1:1", "BASHD_LISTEN=127.0.0.1:2")
	mustLoad(t, "BASHD_LISTEN=127.0.0.1:1", "BASHD_LISTEN=127.0.0.1:1")
}

func TestErrorsSayWhatIsAccepted(t *testing.T) {
	tests := []struct{ entry, want string }{
		{"BASHD_GRACE_MS=3s", `BASHD_GRACE_MS: must be a whole number of milliseconds from 0 to 60000, got "3s"`},
		{"BASHD_MAX_RUNNING=0", `BASHD_MAX_RUNNING: must be a whole number from 1 to 65536, got "0"`},
		{"BASHD_MAX_CPU_SECONDS=", `BASHD_MAX_CPU_SECONDS: must be a whole number from 0 to 2147483647, got an empty value`},
		{"BASHD_RETENTION=1d", `BASHD_RETENTION: must be a duration with a unit from 1s to 87600h, got "1d"`},
		{"BASHD_SANDBOX_MODE=ro", `BASHD_SANDBOX_MODE: must be read-only, workspace-write or danger-full-access, got "ro"`},
		{"BASHD_STATE_DIR=a\nb", `BASHD_STATE_DIR: must be an absolute path, got "a\nb"`},
		{"BASHD_LISTEN=", `BASHD_LISTEN: must not be empty`},
		{"BASHD_LOG_LEVEL=" + strings.Repeat("é", 99), `BASHD_LOG_LEVEL: must be debug, info, warn or error, got "` + strings.Repeat("é", 32) + `"…`},
		{"BASHD_LOG_LEVEL=x" + strings.Repeat("é", 99), `BASHD_LOG_LEVEL: must be debug, info, warn or error, got "x` + strings.Repeat("é", 31) + `"…`},
		{"BASHD_LOG_LEVEL=" + strings.Repeat("\x80", 99), `BASHD_LOG_LEVEL: must be debug, info, warn or error, got "` + strings.Repeat(`\x80`, 60) + `"…`},
		{"BASHD_APPROVER_TOKEN_FILE=/a", `BASHD_APPROVER_TOKEN_FILE: not supported by this version, which refuses to start rather than ignore it`},
		{"BASHD_RUN_AS=root", `BASHD_RUN_AS: must be a user's name, a uid or uid:gid, and not root, got "root"`},
	}
	for _, test := range tests {
		if _, err := Load(environ(test.entry)); err == nil || err.Error() != test.want {
			t.Errorf("%q: got  %v\nwant %s", test.entry, err, test.want)
		}
	}
}

func TestContradictions(t *testing.T) {
	const tokens = "BASHD_TOKENS_FILE=/t"
	tests := []struct {
		name  string
		text  string
		given []string
	}{
		{"BASHD_SANDBOX_MODE", "wider", []string{"BASHD_SANDBOX_MODE=danger-full-access"}},
		{"BASHD_SANDBOX_MODE", "wider", []string{"BASHD_SANDBOX_MODE=workspace-write", "BASHD_SANDBOX_MAX_MODE=read-only"}},
		{"BASHD_TIMEOUT_MS", "120000 is more than BASHD_MAX_TIMEOUT_MS=119999", []string{"BASHD_MAX_TIMEOUT_MS=119999"}},
		{"BASHD_WORKSPACE", "lie in each other", []string{"BASHD_WORKSPACE=/"}},
		{"BASHD_WORKSPACE", "lie in each other", []string{"BASHD_WORKSPACE=/home/u"}},
		{"BASHD_WORKSPACE", "lie in each other", []string{"BASHD_WORKSPACE=/d", "BASHD_STATE_DIR=/d/"}},
		{"BASHD_WORKSPACE", "lie in each other", []string{"BASHD_WORKSPACE=/d/w", "BASHD_STATE_DIR=/d"}},
		{"BASHD_WORKSPACE", "lie in each other", []string{"BASHD_STATE_DIR=/"}},
		{"BASHD_ALLOWED_ROOTS", "lie in each other", []string{"BASHD_ALLOWED_ROOTS=/ok:/home/u/.local"}},
		{"BASHD_LISTEN", "not loopback", []string{"BASHD_LISTEN=:80"}},
		{"BASHD_LISTEN", "not loopback", []string{"BASHD_LISTEN=:80", "BASHD_ALLOW_OPEN=true"}},
		{"BASHD_LISTEN", "not loopback", []string{"BASHD_LISTEN=:80", "BASHD_ALLOW_OPEN=true", "BASHD_ALLOWED_HOSTS=,"}},
		{"BASHD_LISTEN", "not loopback", []string{"BASHD_LISTEN=:80", "BASHD_ALLOWED_HOSTS=h"}},
		{"BASHD_LISTEN", "not loopback", []string{"BASHD_LISTEN=[::]:80"}},
		{"BASHD_LISTEN", "not loopback", []string{"BASHD_LISTEN=[::ffff:10.0.0.1]:80"}},
		{"BASHD_ALLOWED_ORIGINS", "open mode", []string{"BASHD_ALLOWED_ORIGINS=http://a,*"}},
		{"BASHD_ALLOWED_ORIGINS", "open mode", append([]string{"BASHD_ALLOWED_ORIGINS=*", "BASHD_LISTEN=:80"}, beyond...)},
		{"BASHD_APPROVER_TOKEN_FILE", "is for open mode", []string{tokens, "BASHD_APPROVER_TOKEN_FILE=/a"}},
		{"BASHD_ADMIN_LISTEN", "is BASHD_LISTEN already", []string{"BASHD_ADMIN_LISTEN=localhost:8080"}},
		{"BASHD_ADMIN_LISTEN", "not loopback", []string{"BASHD_ADMIN_LISTEN=:9"}},
		{"BASHD_ALLOW_OPEN", "contradicts BASHD_TOKENS_FILE", []string{tokens, "BASHD_ALLOW_OPEN=true"}},
		{"BASHD_ALLOW_OPEN", "contradicts BASHD_TOKENS_FILE", append([]string{tokens, "BASHD_LISTEN=:80"}, beyond...)},
		{"BASHD_TOKENS_FILE", "commands may write", []string{"BASHD_TOKENS_FILE=/home/u/.local/share/bashd/workspace/t"}},
		{"BASHD_TOKENS_FILE", "commands may write", []string{"BASHD_TOKENS_FILE=/w/t", "BASHD_WORKSPACE=/w"}},
		{"BASHD_TOKENS_FILE", "commands may write", []string{"BASHD_TOKENS_FILE=/w", "BASHD_WORKSPACE=/w"}},
		{"BASHD_TOKENS_FILE", `"/r"`, []string{"BASHD_TOKENS_FILE=/r/a/t", "BASHD_ALLOWED_ROOTS=/ok:/r"}},
		// Closed mode lifts what is forbidden in open mode; then the start is refused for what is not supported.
		{"BASHD_ADMIN_LISTEN", "not supported", []string{tokens, "BASHD_ADMIN_LISTEN=:9"}},
	}
	for _, test := range tests {
		wantError(t, test.name, test.text, test.given...)
	}
	mustLoad(t, "BASHD_WORKSPACE=/data/workspace", "BASHD_STATE_DIR=/data/work")
	mustLoad(t, "BASHD_LISTEN=unix:/run/s")
	mustLoad(t, tokens, "BASHD_LISTEN=:80", "BASHD_ALLOWED_ORIGINS=*")
	mustLoad(t, tokens, "BASHD_LISTEN=0.0.0.0:80", "BASHD_ALLOWED_HOSTS=h", "BASHD_ALLOW_OPEN=false", "BASHD_WORKSPACE=/tt")
	mustLoad(t, "BASHD_TOKENS_FILE=/home/u/.local/state/bashd/tokens")
}

func TestLoopback(t *testing.T) {
	tests := map[string]bool{
		"127.0.0.1:80": true, "127.255.0.9:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "localhost:80": true, "unix:/s": true,
		":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false, "[fe80::1%eth0]:80": false, "[::ffff:0.0.0.0]:80": false,
	}
	for text, want := range tests {
		var a Address
		if err := a.UnmarshalText([]byte(text)); err != nil || a.Loopback() != want {
			t.Errorf("%s: loopback %v, %v; want %v", text, a.Loopback(), err, want)
		}
	}
	if (Address{}).Loopback() {
		t.Error("no address at all counts as loopback")
	}
}
