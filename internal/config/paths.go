package config

import (
	"errors"
	"path/filepath"
	"strings"
)

// Paths are absolute and cleaned; none is "/". In the environment they are
// separated by ":", so no path can contain one. Empty items are dropped.
type Paths []string

// UnmarshalText replaces p by the paths in text.
func (p *Paths) UnmarshalText(text []byte) error {
	var paths Paths
	for _, item := range split(string(text), ":") {
		path, ok := cleanPath(item)
		if !ok {
			return errors.New("must list absolute paths, got " + quote(item))
		}
		if path == "/" {
			return errors.New("cannot list /, which is everything")
		}
		paths = append(paths, path)
	}
	*p = paths
	return nil
}

// String returns the form that UnmarshalText reads.
func (p Paths) String() string { return strings.Join(p, ":") }

// cleanPath returns the shortest form of an absolute path that the kernel can
// be given.
func cleanPath(s string) (string, bool) {
	const pathMax = 4096 // PATH_MAX, the final NUL included
	if !filepath.IsAbs(s) || len(s) >= pathMax || strings.ContainsRune(s, 0) {
		return "", false
	}
	return filepath.Clean(s), true
}

// within reports whether path is dir or lies in it, by name only: a symbolic
// link can make it so all the same, which is for the sandbox to find out.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
