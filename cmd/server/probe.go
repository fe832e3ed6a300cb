package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"bashd/internal/config"
	"bashd/internal/sandbox"
)

const probeUsage = `usage: bashd probe [-v] [-json]

It tries on this host, with the configuration that the server would have, what the confined
modes forbid, and prints what is enforced, what is not, and what closed each effect. It
serves nothing, and needs no server and no state directory.

       -v      one line for each effect that was tried, not only for those that happened
       -json   all of it as JSON

Exit code: 0 if commands of the default mode can be confined, 1 if they cannot and so would be
refused, 2 if that could not be found out: wrong use, wrong configuration, an interruption.
`

// Exit codes of `bashd probe`, beside 0.
const (
	exitNotEnforced = 1
	exitNotProbed   = 2
)

// exitError is an error that ends the program with an exit code of its own.
type exitError struct {
	code int
	error
}

// Unwrap returns the error without its code.
func (e *exitError) Unwrap() error { return e.error }

// exitCode is the exit code that err ends the program with.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return 1
}

// probeHost is `bashd probe`.
func probeHost(ctx context.Context, args, environ []string, stdout io.Writer) error {
	notProbed := func(err error) error { return &exitError{exitNotProbed, fmt.Errorf("probe: %w", err)} }
	opts, err := parseProbe(args)
	if errors.Is(err, flag.ErrHelp) {
		_, err := fmt.Fprint(stdout, probeUsage)
		return err
	}
	if err != nil {
		return notProbed(fmt.Errorf("%w; see bashd probe --help", err))
	}
	cfg, err := config.Load(environ)
	if err != nil {
		return notProbed(err)
	}
	// An interruption removes the scratch directory like any other end.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	report, err := takeProbe(ctx, cfg)
	if err != nil {
		return notProbed(err)
	}
	if opts.json {
		e := json.NewEncoder(stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		_, err = io.WriteString(stdout, report.text(opts.verbose))
	}
	if err != nil {
		return notProbed(err)
	}
	if why := report.refusal(); why != "" {
		return &exitError{exitNotEnforced, fmt.Errorf("commands of the default mode, %s, would be refused here: %s", report.DefaultMode, why)}
	}
	return nil
}

type probeOptions struct{ json, verbose bool }

func parseProbe(args []string) (o probeOptions, err error) {
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.json, "json", false, "")
	f.BoolVar(&o.verbose, "v", false, "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, nil
}

// takeProbe makes the sandbox that the server would have, and a report of what its probe found. Of the state directory it uses at most
// a place in the one for probes, which needs no lock: a server that starts meanwhile empties it, and this probe fails.
func takeProbe(ctx context.Context, cfg config.Config) (*probeReport, error) {
	commands, err := commandsUser(cfg.RunAs)
	if err != nil {
		return nil, err
	}
	if err := keepToItself(); err != nil {
		return nil, err
	}
	scratch, err := probeScratch(cfg, commands)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	settings := sandboxConfig(cfg, commands, scratch, slog.New(slog.DiscardHandler))
	settings.Warm = 0
	sb, err := newSandbox(ctx, settings)
	if err != nil {
		return nil, err
	}
	defer sb.Close()
	if err := ctx.Err(); err != nil {
		return nil, errors.New("it was interrupted")
	}
	return reportProbe(sb, sandbox.Mode(cfg.SandboxMode), commands), nil
}

// probeScratch makes a directory for the probe, outside of what commands may have for their own: beside the server's own where there is
// one, so that the file system is the same, else wherever the commands' user can get to.
func probeScratch(cfg config.Config, commands *sandbox.Credential) (string, error) {
	var errs []error
	for _, parent := range []string{filepath.Join(cfg.StateDir, scratchName), os.TempDir(), "/var/tmp", "/var/lib", os.Getenv("HOME")} {
		dir, err := scratchIn(parent, commands)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("there is no place to try things in: %w", errors.Join(errs...))
}

// privateToCommands are the directories that a command may find another one in the place of.
var privateToCommands = []string{"/tmp", "/dev", "/run", "/proc"}

func scratchIn(parent string, commands *sandbox.Credential) (string, error) {
	parent, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(parent) {
		return "", fmt.Errorf("%q is no absolute path", parent)
	}
	for _, p := range privateToCommands {
		if parent == p || strings.HasPrefix(parent, p+"/") {
			return "", fmt.Errorf("%s is not what a command finds there", parent)
		}
	}
	dir, err := os.MkdirTemp(parent, "bashd-probe-")
	if err != nil || commands == nil {
		return dir, err
	}
	err = os.Chmod(dir, passedMode)
	if err == nil {
		if asErr := commands.Do(func() { err = access(dir, unix.X_OK) }); asErr != nil {
			err = asErr
		}
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("uid %d, which commands run as, cannot pass %s: %w", commands.UID, parent, err), os.Remove(dir))
	}
	return dir, nil
}

// reportProbe collects what sb found out.
func reportProbe(sb *sandbox.Sandbox, defaultMode sandbox.Mode, commands *sandbox.Credential) *probeReport {
	r := sb.Report()
	p := &probeReport{
		Tier: r.Tier, ABI: r.ABI, Cleanup: r.Cleanup, RunAs: r.RunAs, ProcessLimit: r.Processes, MemoryLimit: r.Memory,
		Stronger: append([]string{}, r.Stronger...), DefaultMode: defaultMode, UID: uint32(os.Geteuid()),
	}
	if commands != nil {
		p.UID = commands.UID
	}
	index := map[string]int{}
	for _, m := range sandbox.Modes() {
		if !m.Confined() {
			continue
		}
		mr := r.Mode(m)
		p.Modes = append(p.Modes, probedMode{m, string(mr.Enforcement), append([]string{}, mr.Gaps...), mr.Unavailable})
		if mr.Unavailable != "" {
			continue // what was tried in vain says nothing about how commands are confined
		}
		for _, e := range sb.Effects(m) {
			i, known := index[e.Effect.Name]
			if !known {
				i = len(p.Effects)
				index[e.Effect.Name] = i
				p.Effects = append(p.Effects, probedEffect{e.Effect.Name, e.Effect.Class, e.Effect.Text, map[sandbox.Mode]probedOutcome{}})
			}
			p.Effects[i].Modes[m] = probedOutcome{e.Did, unix.ErrnoName(e.Errno), e.Skipped, sb.ClosedBy(m, e)}
		}
	}
	return p
}
