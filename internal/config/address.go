package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Address is where a listener is opened, in the terms of net.Listen. The zero
// value means none.
type Address struct {
	Network string // "tcp" or "unix"
	Addr    string // host:port with a numeric host or none; or an absolute path
}

// UnmarshalText reads host:port or unix:/path. The host is an IP address, none
// for all interfaces, or localhost, which is taken as 127.0.0.1: no resolver
// gets to decide what counts as loopback. Port 0 lets the kernel choose one.
func (a *Address) UnmarshalText(text []byte) error {
	s := string(text)
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return a.setUnix(path)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("must be host:port or unix:/path, got " + quote(s))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535, got " + quote(port))
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return errors.New("the host must be an IP address, localhost or nothing, got " + quote(host))
		}
		host = ip.String()
	}
	*a = Address{Network: "tcp", Addr: net.JoinHostPort(host, port)}
	return nil
}

func (a *Address) setUnix(path string) error {
	const sunPath = 108 // bytes of sockaddr_un.sun_path, the final NUL included
	path, ok := cleanPath(path)
	if !ok || path == "/" || len(path) >= sunPath {
		return errors.New("unix: must be followed by an absolute path of at most 107 bytes")
	}
	*a = Address{Network: "unix", Addr: path}
	return nil
}

// String returns the form that UnmarshalText reads, or "" for no address.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Addr
	}
	return a.Addr
}

// Loopback reports whether only this host can connect. A unix socket counts:
// its file permissions say who may.
func (a Address) Loopback() bool {
	if a.Network == "unix" {
		return true
	}
	ap, err := netip.ParseAddrPort(a.Addr)
	return err == nil && ap.Addr().IsLoopback()
}
