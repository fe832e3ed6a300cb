package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

const prefix = "BASHD_"

// collect returns the BASHD_* variables of environ, all of them known. A name
// that occurs twice with different values is refused: which of them counts
// would depend on who reads.
func collect(environ []string) (map[string]string, error) {
	known := make(map[string]bool)
	for _, f := range fields() {
		known[f.name] = true
	}
	given := make(map[string]string)
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !strings.HasPrefix(name, prefix) || fromKubernetes(name) {
			continue
		}
		if !known[name] {
			return nil, unknown(name)
		}
		if earlier, ok := given[name]; ok && earlier != value {
			return nil, fmt.Errorf("%s: set twice, to different values", name)
		}
		given[name] = value
	}
	return given, nil
}

// fromKubernetes reports whether name is one that Kubernetes puts into every
// pod of a namespace with a Service called bashd.
func fromKubernetes(name string) bool {
	name = strings.TrimPrefix(name, prefix)
	if name == "SERVICE_HOST" || name == "PORT" || strings.HasPrefix(name, "SERVICE_PORT") {
		return true
	}
	rest, ok := strings.CutPrefix(name, "PORT_")
	if !ok {
		return false
	}
	number, _, ok := strings.Cut(rest, "_")
	return ok && consistsOf(number, digits)
}

// unknown names the variable that was probably meant, if there is one.
func unknown(name string) error {
	shown := name
	if len(name) > 64 || !consistsOf(name, upper+digits+"_") {
		shown = quote(name)
	}
	if meant := closest(name); meant != "" {
		return fmt.Errorf("%s: unknown variable; did you mean %s?", shown, meant)
	}
	return fmt.Errorf("%s: unknown variable; bashd help lists the known ones", shown)
}

// closest returns the known name that is fewest edits away from name, else the
// only one that begins with it, else "".
func closest(name string) string {
	const tooLong = 64 // longer than every known name and its typing mistakes
	if len(name) > tooLong {
		return ""
	}
	word := strings.TrimPrefix(name, prefix)
	best, fewest := "", 4
	for _, f := range fields() {
		candidate := strings.TrimPrefix(f.name, prefix)
		if d := distance(word, candidate); d < fewest && d*2 < len(candidate) {
			best, fewest = f.name, d
		}
	}
	if best != "" {
		return best
	}
	for _, f := range fields() {
		if strings.HasPrefix(f.name, name) {
			if best != "" {
				return "" // several begin like that
			}
			best = f.name
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// derived computes the defaults that depend on who runs the daemon.
var derived = map[string]func(environ []string) (string, error){
	"BASHD_STATE_DIR": func(environ []string) (string, error) {
		return xdg(environ, "XDG_STATE_HOME", ".local/state", "bashd")
	},
	"BASHD_WORKSPACE": func(environ []string) (string, error) {
		return xdg(environ, "XDG_DATA_HOME", ".local/share", "bashd/workspace")
	},
	"BASHD_DSH_HOME": func(environ []string) (string, error) {
		dir := lookup(environ, "DSH_HOME")
		if dir == "" {
			return inHome(environ, ".dsh")
		}
		if !filepath.IsAbs(dir) {
			return "", errors.New("must be set, or DSH_HOME be an absolute path")
		}
		return dir, nil
	},
}

// xdg joins name to a base directory of the XDG Base Directory Specification,
// which says that a relative value is to be ignored.
func xdg(environ []string, variable, fallback, name string) (string, error) {
	if base := lookup(environ, variable); filepath.IsAbs(base) {
		return filepath.Join(base, name), nil
	}
	return inHome(environ, filepath.Join(fallback, name))
}

func inHome(environ []string, name string) (string, error) {
	home := lookup(environ, "HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("must be set, since HOME is not an absolute path")
	}
	return filepath.Join(home, name), nil
}

// lookup returns the first value of name, as os.Getenv does, or "".
func lookup(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
