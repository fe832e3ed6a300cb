package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"bashd/internal/config"
)

// checkPlaces refuses directories that lie in each other where commands must not get from one to the other. Package config has looked
// at the strings; here is what they lead to, once all of it exists.
func checkPlaces(cfg config.Config) error {
	state, workspace := resolved(cfg.StateDir), resolved(cfg.Workspace)
	if below(state, workspace) || below(workspace, state) {
		return fmt.Errorf("BASHD_WORKSPACE: %s and BASHD_STATE_DIR=%s lead into each other; choose others", cfg.Workspace, cfg.StateDir)
	}
	if cfg.TokensFile != "" && below(resolved(cfg.TokensFile), workspace) {
		return fmt.Errorf("BASHD_TOKENS_FILE: leads into %s, where commands may write", cfg.Workspace)
	}
	for _, path := range cfg.HidePaths {
		if err := checkHidden(path, workspace); err != nil {
			return fmt.Errorf("BASHD_HIDE_PATHS: %w", err)
		}
	}
	return nil
}

// checkHidden refuses what cannot be hidden for good.
func checkHidden(path, workspace string) error {
	switch to := resolved(path); {
	case to != path:
		// It may lead somewhere else tomorrow, and then that would have to be hidden.
		return fmt.Errorf("%s leads through a symbolic link, which can be changed; hide %s, where it leads to", path, to)
	case below(path, workspace):
		return fmt.Errorf("%s lies in the workspace, which is the commands' own", path)
	case below(path, "/dev"), below(path, "/proc"):
		return fmt.Errorf("%s: of /dev and /proc commands see no more than they need; there is nothing to hide", path)
	}
	return nil
}

// resolved resolves the links of as much of path as exists.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	// A link that leads nowhere yet is one all the same.
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		return to
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return path
}

// below reports that path is dir or lies in it. Both are clean.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
