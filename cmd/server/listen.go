package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/config"
)

// listen opens the listener. A unix socket is 0600, and one that nobody listens
// on any more is replaced.
func listen(ctx context.Context, a config.Address) (net.Listener, error) {
	if a.Network == "unix" {
		if err := removeStaleSocket(ctx, a.Addr); err != nil {
			return nil, fmt.Errorf("BASHD_LISTEN: %w", err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, a.Network, a.Addr)
	if err != nil {
		return nil, fmt.Errorf("BASHD_LISTEN: %w", err)
	}
	if a.Network == "unix" {
		// Until here it was the umask's 0700, which lets nobody else connect either.
		if err := os.Chmod(a.Addr, 0o600); err != nil {
			l.Close()
			return nil, fmt.Errorf("BASHD_LISTEN: %w", err)
		}
	}
	return l, nil
}

func removeStaleSocket(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("%s is in use by another server", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// healthcheck asks the server that this configuration describes whether it is alive.
func healthcheck(ctx context.Context, a config.Address) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	target := dialTarget(a)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, a.Network, target)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: /healthz answered %s", resp.Status)
	}
	return nil
}

// dialTarget is where a listener on that address can be reached from this host.
func dialTarget(a config.Address) string {
	if a.Network != "tcp" {
		return a.Addr
	}
	host, port, err := net.SplitHostPort(a.Addr)
	if err != nil {
		return a.Addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
