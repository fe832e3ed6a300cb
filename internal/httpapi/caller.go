package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"bashd/internal/exec"
)

// connection is one accepted connection and what was found about its other end.
type connection struct {
	net.Conn
	once    sync.Once
	command bool
	reason  string
}

type connKey struct{}

// ConnContext is for http.Server: it lets the checks below see the connection
// that a request came by.
func (s *Server) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, &connection{Conn: c})
}

func connOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connKey{}).(*connection)
	return c
}

// fromCommand reports whether the connection may be one of our commands'. The
// first request waits for the answer, later ones get the same: a socket
// changes hands between a stranger and a command only if the stranger helps.
// Asking here and not in the accept loop keeps a slow check off other clients.
func (c *connection) fromCommand(check func(net.Conn) (bool, string)) (command bool, reason string) {
	if c == nil || check == nil {
		return true, "the connection cannot be checked"
	}
	c.once.Do(func() {
		c.command, c.reason = true, "the check failed" // stands where check panics
		c.command, c.reason = check(c.Conn)
	})
	return c.command, c.reason
}

// refuseCommands keeps out the commands that we run: a confined one could
// otherwise ask for a wider mode. It is for open mode; in closed mode they lack a
// token.
func (s *Server) refuseCommands(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if command, reason := connOf(r).fromCommand(s.o.PeerCheck); command {
			s.log.LogAttrs(r.Context(), slog.LevelDebug, "refused a command as caller", requestIDAttr(r.Context()), slog.String("reason", reason))
			s.problem(w, r, &exec.Error{Code: codeForbidden, Message: "a command that this server runs may not call it"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseForwarded keeps out what passed a proxy: without API tokens it is the
// address of the caller that lets it in, and a proxy's says nothing. It is for open
// mode; in closed mode a gateway in front is usual.
func (s *Server) refuseForwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") {
				s.problem(w, r, &exec.Error{
					Code: codeForbidden,
					// name is one of ours or begins like one, and is a header name: printable.
					Message: "requests that passed a proxy (" + clip(name) + ") are refused while no API tokens are configured",
				})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses a Host that is neither loopback nor allowed, so that a
// name which an attacker lets resolve to us (DNS rebinding) leads nowhere. On
// a unix socket, which no browser reaches, any Host will do. So it will in closed
// mode unless hosts are listed: a page that rebinds a name has no token.
func (s *Server) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		anyHost := s.closed() && len(s.hosts) == 0 || onUnixSocket(r)
		if !anyHost && !s.hosts.allows(r.Host) {
			s.problem(w, r, &exec.Error{
				Code:    codeForbidden,
				Message: "this Host is not one that the server answers to; use a loopback name or address, or add it to BASHD_ALLOWED_HOSTS",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func onUnixSocket(r *http.Request) bool {
	c := connOf(r)
	return c != nil && c.LocalAddr().Network() == "unix"
}

// hostList holds names, lower-case, with a port where one was given.
type hostList map[string]bool

func newHostList(hosts []string) hostList {
	l := make(hostList, len(hosts))
	for _, h := range hosts {
		l[strings.ToLower(h)] = true
	}
	return l
}

// allows takes the value of a Host header.
func (l hostList) allows(host string) bool {
	name, _, ok := splitHost(host)
	return ok && (isLoopback(name) || l[name] || l["["+name+"]"] || l[strings.ToLower(host)])
}

func isLoopback(name string) bool {
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// splitHost splits host[:port] or [v6][:port]. The name comes in lower case,
// without brackets and without the dot that ends a fully qualified name.
func splitHost(host string) (name, port string, ok bool) {
	name, rest := host, ""
	if strings.HasPrefix(host, "[") {
		var closed bool
		if name, rest, closed = strings.Cut(host[1:], "]"); !closed {
			return "", "", false
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 {
		name, rest = host[:i], host[i:]
	}
	if rest != "" {
		if rest[0] != ':' || !isPort(rest[1:]) {
			return "", "", false
		}
		port = rest[1:]
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	return name, port, name != ""
}

func isPort(s string) bool {
	return len(s) >= 1 && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}
