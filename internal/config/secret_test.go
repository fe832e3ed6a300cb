package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestManagedEnvErrorsRepeatNothing(t *testing.T) {
	for _, value := range []string{
		"canary", "DSH_A=x,canary", "DSH_A=x,canary=y", "DSH_A=canary,DSH_A=canary", "DSH_SHELL=canary", "DSH_A=canary\x00", "canary=DSH_A",
	} {
		_, err := Load(environ("BASHD_MANAGED_ENV=" + value))
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", value, err)
		}
	}
	wantError(t, "BASHD_MANAGED_ENV", "item 2 is not NAME=value", "BASHD_MANAGED_ENV=DSH_A=x,y")
	wantError(t, "BASHD_MANAGED_ENV", "item 3 has the name of an earlier one", "BASHD_MANAGED_ENV=DSH_A=x,DSH_B=y,DSH_A=z")
}

func TestOtherSecretsStayOutOfErrors(t *testing.T) {
	for _, entry := range []string{
		"BASHD_TOKENS_FILE=canary",         // a token where its file was to be named
		"BASHD_APPROVER_TOKEN_FILE=canary", //
		"BASHD_APPROVER_TOKEN_FILE=/canary",
		"BASHD_TOKENS_FILE=/home/u/.local/share/bashd/workspace/canary",
		"BASHD_ALLOWED_ORIGINS=https://u:canary@host",
		"BASHD_TOKEN=canary",
	} {
		if _, err := Load(environ(entry)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// inside stands for a struct of another package that keeps a Config: fmt does
// not call methods on what it reaches through an unexported field.
type inside struct{ c Config }

func TestManagedEnvIsNeverPrinted(t *testing.T) {
	c := mustLoad(t, "BASHD_MANAGED_ENV=DSH_B=canary,DSH_A=canary")
	if got := c.ManagedEnv.Map()["DSH_B"]; got != "canary" {
		t.Fatalf("Map: %q", got)
	}
	var out bytes.Buffer
	c.Write(&out)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, value := range []any{c, &c, c.ManagedEnv, &c.ManagedEnv, inside{c}, &inside{c}, []any{inside{c}}} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("start", "config", c, "managed", c.ManagedEnv)
	slog.New(slog.NewTextHandler(&out, nil)).Info("start", "config", c, "managed", c.ManagedEnv)
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(data)
	if s := out.String(); strings.Contains(s, "canary") || strings.Contains(s, fmt.Sprintf("%x", "canary")) {
		t.Errorf("a value shows:\n%s", s)
	}
	if !strings.Contains(out.String(), "BASHD_MANAGED_ENV='DSH_A=[redacted],DSH_B=[redacted]'\n") {
		t.Errorf("names are not shown:\n%s", out.String())
	}
}

func TestManagedEnvMapIsACopy(t *testing.T) {
	c := mustLoad(t, "BASHD_MANAGED_ENV=DSH_A=x")
	c.ManagedEnv.Map()["DSH_A"] = "changed"
	if got := c.ManagedEnv.Map()["DSH_A"]; got != "x" {
		t.Errorf("a caller changed it to %q", got)
	}
}
