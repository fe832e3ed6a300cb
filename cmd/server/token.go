package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"bashd/internal/auth"
	"bashd/internal/config"
)

const tokenUsage = `usage: bashd token NAME [ROLE…]

It makes an API token and prints it once, on stderr, and the line that the file of
BASHD_TOKENS_FILE needs for it, alone on stdout. So this adds the line and shows the
token:

       bashd token ci >>/etc/bashd/tokens

The server reads the file when it starts and on SIGHUP. The file has the token's hash
only: keep the token itself, it cannot be had again. To revoke it, delete its line.

NAME is the tenant, 1 to 64 of A-Z a-z 0-9 . _ -; tokens of one name see the same runs.
ROLE is what it may do, run if none is given:

       run          everything under /v1
       metrics      read /metrics
       approve      decide approvals of its own name
       approve-all  decide approvals of any name
`

// makeToken is `bashd token`. The line goes to stdout by itself, so that it can be
// appended to the file as it is; the token goes to stderr, so that by doing so nobody
// puts it into a file that is meant to hold no secret.
func makeToken(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("token needs a name; see bashd token --help")
	}
	if args[0] == "-h" || args[0] == "--help" {
		_, err := fmt.Fprint(stdout, tokenUsage)
		return err
	}
	roles := make([]auth.Role, len(args)-1)
	for i, role := range args[1:] {
		roles[i] = auth.Role(role)
	}
	if strings.HasPrefix(args[0], "-") { // it would be a name, but nobody means it as one
		return errors.New("token has no options; see bashd token --help")
	}
	token, line, err := auth.New(args[0], roles)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	// The token first: a line whose token nobody has seen would only be in the way.
	if _, err := fmt.Fprintf(stderr, "The token, for the client; it is shown this once:\n%s\nIts line for the file of BASHD_TOKENS_FILE goes to stdout:\n", token); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	if _, err := fmt.Fprintln(stdout, line); err != nil {
		return fmt.Errorf("token: its line could not be written, so it is of no use: %w", err)
	}
	return nil
}

// loadTokens reads the tokens file; nil in open mode.
func loadTokens(cfg config.Config) (*auth.Tokens, error) {
	if cfg.Open() {
		return nil, nil
	}
	tokens, err := auth.Load(cfg.TokensFile)
	if err != nil {
		return nil, fmt.Errorf("BASHD_TOKENS_FILE: %w", err)
	}
	return tokens, nil
}

// reloadOnHangup has the tokens file read again at every SIGHUP, until stop. In open mode there is
// nothing to read, and the signal means the end.
func reloadOnHangup(tokens *auth.Tokens, log *slog.Logger) (stop func()) {
	if tokens == nil {
		return func() {}
	}
	hangups := make(chan os.Signal, 1) // one that waits will read what is there by then
	signal.Notify(hangups, syscall.SIGHUP)
	var wg sync.WaitGroup
	wg.Go(func() {
		guard := time.NewTicker(time.Second)
		defer guard.Stop()
		for {
			select {
			case _, more := <-hangups:
				if !more {
					return
				}
				reload(tokens, log)
			case <-guard.C:
				if mended, err := tokens.Guard(); mended {
					log.Warn("others had been let write the tokens file, which was mended; a command did that, or somebody else of this user", "error", err)
				}
			}
		}
	})
	return func() {
		// Not given back: one more must not end what is being shut down in order. After this
		// nothing is sent to hangups.
		signal.Ignore(syscall.SIGHUP)
		close(hangups)
		wg.Wait()
	}
}

func reload(tokens *auth.Tokens, log *slog.Logger) {
	removed, err := tokens.Reload()
	switch n := tokens.Len(); {
	case err != nil:
		log.Error("the tokens file was not taken; no token was added", "error", err, "tokens", n, "removed", removed)
	case n == 0:
		log.Warn("the tokens file has no token any more; nobody is served", "removed", removed)
	default:
		log.Info("tokens read again", "tokens", n, "removed", removed)
	}
}
