package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bashd"
	"bashd/internal/config"
	"bashd/internal/exec"
	"bashd/internal/httpapi"
	"bashd/internal/metrics"
	"bashd/internal/output"
	"bashd/internal/peer"
	"bashd/internal/sandbox"
)

// serve builds the service from the bottom up, serves until a signal or the end
// of ctx, and takes it down in reverse.
func serve(ctx context.Context, cfg config.Config, environ []string, signals <-chan os.Signal, stderr io.Writer) error {
	log := newLogger(cfg, stderr)
	tokens, err := loadTokens(cfg)
	if err != nil {
		return err
	}
	defer reloadOnHangup(tokens, log)()
	commands, err := commandsUser(cfg.RunAs)
	if err != nil {
		return err
	}
	if err := keepToItself(); err != nil {
		return err
	}
	st, err := openState(cfg.StateDir, commands, log)
	if err != nil {
		return err
	}
	defer st.close()
	if err := prepareWorkspace(cfg, commands, log); err != nil {
		return err
	}
	if err := checkPlaces(cfg); err != nil {
		return err
	}
	if err := checkReach(cfg, commands); err != nil {
		return err
	}
	sb, err := newSandbox(ctx, sandboxConfig(cfg, commands, filepath.Join(cfg.StateDir, scratchName), log))
	if err != nil {
		return err
	}
	defer sb.Close()
	met := metrics.New(version())
	announce(sb.Report(), met, log)
	sealer, err := output.NewSealer(st.key)
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, environ, exec.Settings{RunAs: commands, Sandbox: sb, Store: st.db, Sealer: sealer, Metrics: met, Logger: log})
	if err != nil {
		return err
	}
	defer mgr.Close()
	checker, err := peer.New(sb.Trees, commandUIDs(commands))
	if err != nil {
		return err
	}
	defer checker.Close()
	srv := httpapi.New(httpapi.Options{
		Runner: mgr, Tokens: tokens, Metrics: met, Logger: log, Sealer: sealer, Version: version(), OpenAPI: bashd.OpenAPI,
		PeerCheck: func(c net.Conn) (bool, string) { v := checker.Check(c); return v.Command, v.Reason },
		Ready:     mgr.Ready, AllowedHosts: cfg.AllowedHosts, AllowedOrigins: cfg.AllowedOrigins, MaxBodyBytes: cfg.MaxBodyBytes,
	}).HTTPServer()
	l, err := listen(ctx, cfg.Listen)
	if err != nil {
		mgr.Shutdown(ctx)
		return err
	}
	mode := "closed"
	if tokens == nil {
		mode = "open"
	}
	log.Info("listening", "address", l.Addr().String(), "mode", mode, "version", version())
	return untilStopped(ctx, cfg, srv, l, mgr, signals, log)
}

// untilStopped serves on l, and shuts down when asked to. A second signal skips the
// waiting.
func untilStopped(ctx context.Context, cfg config.Config, srv *http.Server, l net.Listener, mgr *exec.Manager, signals <-chan os.Signal, log *slog.Logger) error {
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		mgr.Shutdown(canceled())
		return fmt.Errorf("serving: %w", err)
	case sig := <-signals:
		log.Info("shutting down", "signal", sig.String())
	case <-ctx.Done():
		log.Info("shutting down")
	}
	hurry, skip := context.WithCancel(context.Background())
	defer skip()
	go func() {
		select {
		case <-signals:
			log.Info("shutting down at once")
			skip()
		case <-hurry.Done():
		}
	}()
	// The listener stays while runs drain: /readyz has to be able to say so.
	mgr.Shutdown(hurry)
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil {
		srv.Close()
	}
	<-served
	log.Info("stopped")
	return nil
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == config.LogFormatJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// keepToItself shuts others of the same user out of what this process makes and is.
func keepToItself() error {
	// What this process makes is for its own eyes; commands get 022.
	unix.Umask(0o077)
	// Its memory and environment are not for other processes of the same user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	return nil
}

// sandboxConfig is what the sandbox that cfg asks for is made with. scratch is a directory for its probe.
func sandboxConfig(cfg config.Config, commands *sandbox.Credential, scratch string, log *slog.Logger) sandbox.Config {
	hidden := append(slices.Clone([]string(cfg.HidePaths)), cfg.StateDir)
	if cfg.WorkspaceLayout == config.LayoutOwner {
		hidden = append(hidden, cfg.Workspace)
	}
	if cfg.TokensFile != "" {
		hidden = append(hidden, cfg.TokensFile)
		// A secret that Kubernetes mounts is a link, and the next version will lie in a new directory beside it.
		if target, err := os.Readlink(cfg.TokensFile); err == nil && strings.HasPrefix(target, "..data/") {
			hidden = append(hidden, filepath.Dir(cfg.TokensFile))
		}
	}
	return sandbox.Config{
		Shell: shell(), Scratch: scratch, Hidden: hidden,
		Warm: cfg.WarmRunners, Subreaper: true, Groups: true, RunAs: commands, TempBytes: uint64(cfg.MaxTempBytes), Logger: log,
		Limits: sandbox.Limits{
			OpenFiles: uint64(cfg.MaxOpenFiles), FileBytes: uint64(cfg.MaxFileBytes), CPUSeconds: uint64(cfg.MaxCPUSeconds),
			Processes: uint64(cfg.MaxProcesses), MemoryBytes: uint64(cfg.MaxMemoryBytes),
		},
	}
}

// newSandbox makes a sandbox. A limit that this host cannot enforce is an error that names the variable.
func newSandbox(ctx context.Context, c sandbox.Config) (*sandbox.Sandbox, error) {
	sb, err := sandbox.New(ctx, c)
	if errors.Is(err, sandbox.ErrNoMemoryLimit) || err == nil && c.Limits.MemoryBytes > 0 && !sb.Report().Memory {
		if err == nil {
			sb.Close()
		}
		return nil, errors.New("BASHD_MAX_MEMORY_BYTES: this host lets bashd limit no command's memory; that takes a cgroup v2 subtree that is delegated to it, or unset the variable")
	}
	return sb, err
}

// shell is the bash that runs everything. Where there is none, each run says so.
func shell() string {
	if path, err := osexec.LookPath("bash"); err == nil && filepath.IsAbs(path) {
		return path
	}
	return "/bin/bash"
}

// announce tells the operator, once, what this host enforces.
func announce(r sandbox.Report, met *metrics.Metrics, log *slog.Logger) {
	strongest := r.ReadOnly.Enforcement
	if strongest == "" {
		strongest = "none"
	}
	met.SandboxInfo(r.Tier, string(strongest), r.ABI)
	log.Info("sandbox", "tier", r.Tier, "abi", r.ABI, "cleanup", r.Cleanup, "runAs", r.RunAs, "processLimit", r.Processes, "memoryLimit", r.Memory,
		"readOnly", r.ReadOnly.Summary(), "workspaceWrite", r.WorkspaceWrite.Summary(), "stronger", strings.Join(r.Stronger, "; "))
	for _, m := range []sandbox.Mode{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		if mr := r.Mode(m); mr.Unavailable != "" {
			log.Error("sandbox mode cannot be enforced; its commands are refused", "mode", m, "reason", mr.Unavailable)
		}
	}
	if os.Geteuid() == 0 && !r.RunAs {
		log.Warn("running as root without BASHD_RUN_AS: confined commands run as uid 0 without capabilities and can read what root's file permissions allow; set BASHD_RUN_AS to a user that owns nothing, or run bashd as a user of its own")
	}
}

// newManager completes s with the configuration.
func newManager(cfg config.Config, environ []string, s exec.Settings) (*exec.Manager, error) {
	var managed []exec.ManagedVar
	for name, value := range cfg.ManagedEnv.Map() {
		managed = append(managed, exec.ManagedVar{Name: name, Value: value})
	}
	slices.SortFunc(managed, func(a, b exec.ManagedVar) int { return strings.Compare(a.Name, b.Name) })
	s.StateDir, s.Workspace, s.WorkspaceShared = cfg.StateDir, cfg.Workspace, cfg.WorkspaceLayout == config.LayoutSingle
	s.DefaultMode, s.MaxMode = sandbox.Mode(cfg.SandboxMode), sandbox.Mode(cfg.SandboxMaxMode)
	s.Timeout, s.MaxTimeout, s.Grace, s.Drain = cfg.Timeout, cfg.MaxTimeout, cfg.Grace, cfg.Drain
	s.MaxOutputBytes, s.MaxSpillBytes = cfg.MaxOutputBytes, cfg.MaxSpillBytes
	s.MaxRunning, s.MaxTasksPerOwner = cfg.MaxRunning, cfg.MaxTasksPerOwner
	s.Retention, s.MaxStateBytes = cfg.Retention, cfg.MaxStateBytes
	s.Environ, s.EnvKeep, s.DSHHome, s.ManagedEnv = environ, cfg.EnvKeep, cfg.DSHHome, managed
	return exec.NewManager(s)
}
