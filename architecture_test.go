package bashd

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers say which packages of the project each package may import. Arrows point
// down only; what is not listed here does not exist. Each exists for a reason:
// what is below can be read, tested and replaced without what is above.
var layers = map[string][]string{
	"bashd":                               {},
	"bashd/cmd/server":                    {"bashd", "bashd/internal/auth", "bashd/internal/config", "bashd/internal/exec", "bashd/internal/httpapi", "bashd/internal/metrics", "bashd/internal/output", "bashd/internal/peer", "bashd/internal/reclaim", "bashd/internal/sandbox", "bashd/internal/sandbox/prober", "bashd/internal/store"},
	"bashd/internal/httpapi":              {"bashd/internal/auth", "bashd/internal/exec", "bashd/internal/metrics", "bashd/internal/output", "bashd/internal/sandbox", "bashd/internal/tool"},
	"bashd/internal/httpapi/apitest":      {"bashd"},
	"bashd/internal/tool":                 {"bashd/internal/exec", "bashd/internal/output", "bashd/internal/sandbox"},
	"bashd/internal/exec":                 {"bashd/internal/metrics", "bashd/internal/output", "bashd/internal/reclaim", "bashd/internal/sandbox"},
	"bashd/internal/sandbox":              {"bashd/internal/sandbox/cgroup", "bashd/internal/sandbox/denial", "bashd/internal/sandbox/filter", "bashd/internal/sandbox/prober", "bashd/internal/sandbox/runner"},
	"bashd/internal/sandbox/cgroup":       {},
	"bashd/internal/sandbox/denial":       {},
	"bashd/internal/sandbox/filter":       {},
	"bashd/internal/sandbox/filter/rules": {},
	"bashd/internal/sandbox/prober":       {},
	"bashd/internal/sandbox/runner":       {},
	"bashd/internal/output":               {},
	"bashd/internal/auth":                 {"bashd/internal/reclaim"},
	"bashd/internal/reclaim":              {},
	"bashd/internal/store":                {"bashd/internal/exec", "bashd/internal/sandbox"},
	"bashd/internal/store/storetest":      {"bashd/internal/exec", "bashd/internal/sandbox"},
	"bashd/internal/config":               {},
	"bashd/internal/metrics":              {},
	"bashd/internal/peer":                 {},
}

// runnerMayImport is what the runner may draw in from outside, directly or not. It
// has to start in a millisecond and stay small.
var runnerMayImport = []string{}

type listed struct {
	ImportPath    string
	Imports, Deps []string
}

func golist(t *testing.T, args ...string) (pkgs []listed) {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range golist(t, "./...") {
		seen[p.ImportPath] = true
		allowed, known := layers[p.ImportPath]
		if !known {
			t.Errorf("package %s has no place in the layers: add it to this test and to ARCHITECTURE.md", p.ImportPath)
		}
		for _, imp := range p.Imports {
			if (imp == "bashd" || strings.HasPrefix(imp, "bashd/")) && !slices.Contains(allowed, imp) {
				t.Errorf("%s must not import %s", p.ImportPath, imp)
			}
		}
	}
	for p := range layers {
		if !seen[p] {
			t.Errorf("package %s is listed here and does not exist", p)
		}
	}
}

func TestRunnerStaysSmall(t *testing.T) {
	for _, p := range golist(t, "./internal/sandbox/runner") {
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !slices.Contains(runnerMayImport, dep) {
				t.Errorf("the runner draws in %s", dep)
			}
			for _, heavy := range []string{"net", "fmt", "encoding/json", "crypto/tls", "log/slog", "os/exec"} {
				if dep == heavy {
					t.Errorf("the runner draws in %s", dep)
				}
			}
		}
	}
}
