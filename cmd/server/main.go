// Command server is bashd, a bash executor as a service: it runs shell
// commands that come over HTTP, confined by the kernel, and tells what became of them.
//
// With no argument it serves, configured by BASHD_* environment variables alone. `bashd help`
// lists them. The same binary is also the runner of each command; that role is taken
// in package runner before main begins.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"bashd/internal/config"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bashd:", err)
		os.Exit(exitCode(err))
	}
}

const usage = `bashd runs shell commands that come over HTTP, confined by the kernel.

usage: bashd [serve]               serve until SIGTERM or SIGINT; SIGHUP reads the tokens file again, or without one ends it too
       bashd probe [-v] [-json]    try what this host enforces of the sandbox modes, and print it; bashd probe --help says more
       bashd token NAME [ROLE…]    make an API token for the tokens file; bashd token --help says more
       bashd healthcheck           ask a running server whether it is alive; exit 0 if so
       bashd config                print the effective configuration, secrets redacted
       bashd version               print the version
       bashd help                  print this

Everything is configured by environment variables:

`

// run is the program. It returns when the command is done, for serve after the
// shutdown that a signal or the end of ctx asked for.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	command := "serve"
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "token":
		return makeToken(args[1:], stdout, stderr)
	case "probe":
		return probeHost(ctx, args[1:], environ, stdout)
	}
	if len(args) > 1 {
		return fmt.Errorf("%s takes no arguments; see bashd help", command)
	}
	switch command {
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		config.WriteHelp(stdout)
		return nil
	case "version", "--version":
		fmt.Fprintf(stdout, "bashd %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	case "serve", "config", "healthcheck":
	default:
		return fmt.Errorf("unknown command %q; see bashd help", command)
	}
	cfg, err := config.Load(environ)
	if err != nil {
		return err
	}
	switch command {
	case "config":
		cfg.Write(stdout)
		return nil
	case "healthcheck":
		return healthcheck(ctx, cfg.Listen)
	}
	// A log that nobody reads any more must not end the service.
	signal.Ignore(syscall.SIGPIPE)
	// Never given back: a second signal in the last moment must not turn an orderly
	// end into a death by signal.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if cfg.Open() {
		signal.Notify(signals, syscall.SIGHUP) // the terminal is gone: an orderly end
	} else {
		signal.Ignore(syscall.SIGHUP) // until there are tokens to read again
	}
	return serve(ctx, cfg, environ, signals, stderr)
}

// version is the module's, or the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v += "-" + s.Value[:12]
			}
		}
	}
	return v
}
