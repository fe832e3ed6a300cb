package config

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// contradiction returns an error for the first values that cannot be meant
// together, each of which is valid by itself.
func (c Config) contradiction() error {
	for _, check := range []func() error{c.badDirectories, c.badModes, c.badTimeouts, c.badListeners, c.badOpenMode} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// badDirectories keeps what commands may write apart from the state, which no
// command may touch.
func (c Config) badDirectories() error {
	apart := func(name, dir string) error {
		if within(c.StateDir, dir) || within(dir, c.StateDir) {
			return fmt.Errorf("%s: %s and BASHD_STATE_DIR=%s must not lie in each other", name, quote(dir), quote(c.StateDir))
		}
		return nil
	}
	if err := apart("BASHD_WORKSPACE", c.Workspace); err != nil {
		return err
	}
	for _, root := range c.AllowedRoots {
		if err := apart("BASHD_ALLOWED_ROOTS", root); err != nil {
			return err
		}
	}
	return c.badTokensFile()
}

// badTokensFile keeps the tokens out of where commands write: whoever can replace
// the file lets himself in. The path is not repeated.
func (c Config) badTokensFile() error {
	for _, root := range append([]string{c.Workspace}, c.AllowedRoots...) {
		if !c.Open() && within(c.TokensFile, root) {
			return fmt.Errorf("BASHD_TOKENS_FILE: must not lie in %s, where commands may write", quote(root))
		}
	}
	return nil
}

func (c Config) badModes() error {
	order := []Mode{ModeReadOnly, ModeWorkspaceWrite, ModeDangerFullAccess}
	if slices.Index(order, c.SandboxMode) > slices.Index(order, c.SandboxMaxMode) {
		return fmt.Errorf("BASHD_SANDBOX_MODE: %s is wider than BASHD_SANDBOX_MAX_MODE=%s", c.SandboxMode, c.SandboxMaxMode)
	}
	return nil
}

func (c Config) badTimeouts() error {
	if c.Timeout > c.MaxTimeout {
		return fmt.Errorf("BASHD_TIMEOUT_MS: %d is more than BASHD_MAX_TIMEOUT_MS=%d",
			c.Timeout/time.Millisecond, c.MaxTimeout/time.Millisecond)
	}
	return nil
}

func (c Config) badListeners() error {
	if c.AdminListen == (Address{}) {
		return nil
	}
	if c.AdminListen == c.Listen {
		return fmt.Errorf("BASHD_ADMIN_LISTEN: %s is BASHD_LISTEN already", quote(c.Listen.String()))
	}
	if c.Open() && !c.AdminListen.Loopback() {
		return fmt.Errorf("BASHD_ADMIN_LISTEN: %s is not loopback, which open mode does not allow", quote(c.AdminListen.String()))
	}
	return nil
}

// badOpenMode holds what depends on whether tokens are configured.
func (c Config) badOpenMode() error {
	switch {
	case !c.Open() && c.ApproverTokenFile != "":
		return fmt.Errorf("BASHD_APPROVER_TOKEN_FILE: is for open mode; with BASHD_TOKENS_FILE give a token the role approve")
	case !c.Open() && c.AllowOpen:
		return fmt.Errorf("BASHD_ALLOW_OPEN: true contradicts BASHD_TOKENS_FILE, with which the server is closed")
	case !c.Open():
		return nil
	case c.AllowedOrigins.Any():
		return fmt.Errorf("BASHD_ALLOWED_ORIGINS: * would let every web page run commands in open mode")
	case !c.Listen.Loopback() && !(c.AllowOpen && len(c.AllowedHosts) > 0):
		return fmt.Errorf("BASHD_LISTEN: %s is not loopback; open mode there needs BASHD_ALLOW_OPEN=true and BASHD_ALLOWED_HOSTS",
			quote(c.Listen.String()))
	}
	return nil
}

// refused returns an error for a variable that has no effect in this version
// and whose absence of effect an operator would not notice until it hurts.
func (c Config) refused() error {
	v := reflect.ValueOf(c)
	for _, f := range fields() {
		if f.effect == effectRefused && !v.Field(f.index).IsZero() {
			return fmt.Errorf("%s: not supported by this version, which refuses to start rather than ignore it", f.name)
		}
	}
	return nil
}
