package main

import (
	"os"
	"strings"
	"testing"
)

// TestPlacesByLinks: directories that lie in each other by symbolic links are refused like those that do so by name, and
// so is what cannot be hidden for good.
func TestPlacesByLinks(t *testing.T) {
	dir := t.TempDir()
	ws := dir + "/ws"
	for _, err := range []error{
		os.Mkdir(ws, 0o700), os.Symlink(ws, dir+"/wslink"), os.Mkdir(dir+"/state", 0o700), os.Symlink(dir+"/state", dir+"/statelink"),
		os.WriteFile(ws+"/tokens", nil, 0o600), os.Mkdir(dir+"/secret", 0o700), os.Symlink("secret", dir+"/link"), os.Symlink("none", dir+"/dangling"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	base := map[string]string{"HOME": dir, "PATH": os.Getenv("PATH"), "BASHD_LISTEN": "127.0.0.1:0", "BASHD_STATE_DIR": dir + "/state", "BASHD_WORKSPACE": ws}
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"state in workspace":       {map[string]string{"BASHD_STATE_DIR": dir + "/wslink/.state"}, "BASHD_WORKSPACE"},
		"state in an owner's":      {map[string]string{"BASHD_STATE_DIR": dir + "/wslink/shared/.state"}, "BASHD_WORKSPACE"},
		"workspace in state":       {map[string]string{"BASHD_WORKSPACE": dir + "/statelink/ws"}, "BASHD_WORKSPACE"},
		"tokens in workspace":      {map[string]string{"BASHD_TOKENS_FILE": dir + "/wslink/tokens"}, "BASHD_TOKENS_FILE"},
		"hidden by a link":         {map[string]string{"BASHD_HIDE_PATHS": dir + "/link"}, dir + "/secret"},
		"hidden behind a link":     {map[string]string{"BASHD_HIDE_PATHS": dir + "/link/x/y"}, dir + "/secret/x/y"},
		"hidden by a broken link":  {map[string]string{"BASHD_HIDE_PATHS": dir + "/dangling"}, "symbolic link"},
		"hidden in the workspace":  {map[string]string{"BASHD_HIDE_PATHS": ws + "/shared/vault"}, "in the workspace"},
		"hidden: what a device is": {map[string]string{"BASHD_HIDE_PATHS": "/dev/null"}, "BASHD_HIDE_PATHS"},
		"hidden: oneself":          {map[string]string{"BASHD_HIDE_PATHS": "/proc/self"}, "BASHD_HIDE_PATHS"},
	} {
		t.Run(name, func(t *testing.T) {
			var env []string
			for _, vars := range []map[string]string{base, c.env} {
				for name, value := range vars {
					env = append(env, name+"="+value)
				}
			}
			code, _, stderr := invoke(t, env, "serve")
			line := strings.TrimRight(stderr, "\n")
			if code == 0 || !strings.Contains(line, c.want) || !strings.Contains(line, "BASHD_") {
				t.Errorf("exit %d: %s", code, line)
			}
		})
	}
}
