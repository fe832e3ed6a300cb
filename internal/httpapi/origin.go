package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"bashd/internal/exec"
)

// What a cross-origin caller may send and read, and for how long its browser
// may remember so (seconds).
const (
	corsMethods = "GET, POST, PUT, DELETE"
	corsHeaders = "Authorization, Content-Type, X-Owner-Token, X-Session-Id, X-Request-Id, Idempotency-Key, Last-Event-ID, Range, " +
		"Mcp-Session-Id, Mcp-Protocol-Version"
	corsExposed = "Location, Retry-After, X-Request-Id, Content-Range, Idempotency-Replayed, Mcp-Session-Id"
	corsMaxAge  = "600"
)

// origin is a web origin with its port made explicit, in lower case.
type origin struct{ scheme, host, port string }

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// parseOrigin takes scheme://host[:port] and nothing more; "null" and "*" are
// no origins.
func parseOrigin(s string) (origin, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || !strings.EqualFold(s, u.Scheme+"://"+u.Host) {
		return origin{}, false
	}
	name, port, ok := splitHost(u.Host)
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	return origin{u.Scheme, name, port}, ok
}

// originList are the origins that are allowed besides a request's own host.
type originList struct {
	listed map[origin]bool
	all    bool // "null" is none
}

// newOrigins leaves out what is no origin: such an entry allows nobody. "*" allows
// all in closed mode only, where a page can do nothing without a token; in
// open mode it is no origin like any other.
func newOrigins(list []string, closed bool) originList {
	l := originList{listed: make(map[origin]bool, len(list)), all: closed && slices.Contains(list, "*")}
	for _, s := range list {
		if o, ok := parseOrigin(s); ok {
			l.listed[o] = true
		}
	}
	return l
}

func (l originList) allows(o origin) bool { return l.all || l.listed[o] }

// isHost reports whether a page of this origin was served from host, the Host
// of the request at hand.
func (o origin) isHost(host string) bool {
	name, port, ok := splitHost(host)
	if port == "" {
		port = defaultPorts[o.scheme]
	}
	return ok && defaultPorts[o.scheme] != "" && o.host == name && o.port == port
}

// checkOrigin refuses what a foreign page sends, on every route, and answers
// preflights. Clients that are no browsers send no Origin.
func (s *Server) checkOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values("Origin")
		if len(values) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		o, ok := parseOrigin(values[0])
		if len(values) > 1 || !ok || !o.isHost(r.Host) && !s.origins.allows(o) {
			s.problem(w, r, &exec.Error{
				Code:    codeForbidden,
				Message: "this Origin is not allowed; BASHD_ALLOWED_ORIGINS lists those that are, besides the server's own",
			})
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", values[0])
		w.Header().Set("Access-Control-Expose-Headers", corsExposed)
		if isPreflight(r) {
			w.Header().Set("Access-Control-Allow-Methods", corsMethods)
			w.Header().Set("Access-Control-Allow-Headers", corsHeaders)
			w.Header().Set("Access-Control-Max-Age", corsMaxAge)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && slices.ContainsFunc(r.Header.Values("Access-Control-Request-Method"), func(m string) bool { return m != "" })
}
