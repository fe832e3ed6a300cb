package main

import (
	"bytes"
	"context"
	"os"
	osexec "os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"bashd/internal/config"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// between is the part of the README between two markers.
func between(t *testing.T, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(readme(t), "<!-- "+name+" -->\n")
	part, _, ok2 := strings.Cut(rest, "<!-- /"+name+" -->")
	if !ok || !ok2 {
		t.Fatalf("the README has no %s section", name)
	}
	return part
}

// TestReadmeConfig: the table in the README is the one that the code prints. Run with
// UPDATE_README=1 to write it.
func TestReadmeConfig(t *testing.T) {
	var table bytes.Buffer
	config.WriteMarkdown(&table)
	have := between(t, "config")
	if have == table.String() {
		return
	}
	if os.Getenv("UPDATE_README") == "" {
		t.Fatal("the table of the configuration in README.md is not what the code prints; mend it with: UPDATE_README=1 go test -run TestReadmeConfig ./cmd/server")
	}
	updated := strings.Replace(readme(t), "<!-- config -->\n"+have, "<!-- config -->\n"+table.String(), 1)
	if err := os.WriteFile("../../README.md", []byte(updated), 0o644); err != nil {
		t.Fatal(err)
	}
}

// example is one command of the tour and what it must print.
type example struct {
	command string
	output  strings.Builder
}

// tour collects the examples: in console blocks, a line after "$ " is a command, and what
// follows until the next one is its output.
func tour(t *testing.T) (examples []*example) {
	t.Helper()
	inside := false
	for line := range strings.Lines(between(t, "tour")) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.HasPrefix(line, "```console")
		case !inside:
		case strings.HasPrefix(line, "$ "):
			examples = append(examples, &example{command: strings.TrimSuffix(line[2:], "\n")})
		default:
			examples[len(examples)-1].output.WriteString(line)
		}
	}
	return examples
}

// TestReadmeTour runs every example of the README, in order, in one shell, against a
// daemon on another port.
func TestReadmeTour(t *testing.T) {
	if _, err := osexec.LookPath("curl"); err != nil {
		t.Skip("the tour needs curl")
	}
	if out, _ := osexec.Command("curl", "--help", "all").Output(); !strings.Contains(string(out), "--json") {
		t.Skip("this curl does not know --json (before 7.82)")
	}
	d := start(t)
	d.needsSandbox(t)
	examples := tour(t)
	if len(examples) < 15 {
		t.Fatalf("only %d examples were found", len(examples))
	}
	const end = "\n--end of example--\n"
	var script strings.Builder
	for _, e := range examples {
		script.WriteString(strings.ReplaceAll(e.command, "localhost:8080", d.addr) + "\nprintf '" + strings.ReplaceAll(end, "\n", `\n`) + "'\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := osexec.CommandContext(ctx, "bash", "-c", script.String())
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "no_proxy=*")
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, tail(string(out), 500))
	}
	outputs := strings.Split(string(out), end)
	if len(outputs) != len(examples)+1 {
		t.Fatalf("%d examples gave %d outputs", len(examples), len(outputs)-1)
	}
	for i, e := range examples {
		got, want := strings.TrimRight(outputs[i], "\n"), strings.TrimRight(e.output.String(), "\n")
		pattern := "^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + ")$"
		if !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("$ %s\nprints\n%s\nand the README says\n%s", e.command, got, want)
		}
	}
}
