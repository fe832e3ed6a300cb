package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"bashd/internal/auth"
	"bashd/internal/exec"
)

// closed reports closed mode: API tokens are configured, and nobody is served
// without one. What open mode has to conclude from the connection, the token says.
func (s *Server) closed() bool { return s.o.Tokens != nil }

// authorize returns whose API token a request carries, where it may do what role
// stands for. A header that can mean two things, or is too long for any token, is
// 400; no token, or none that is known, 401; a token without the role, 403.
func (s *Server) authorize(h http.Header, role auth.Role) (auth.Identity, error) {
	token, err := apiToken(h)
	if err != nil {
		return auth.Identity{}, err
	}
	id, ok := s.o.Tokens.Lookup(token)
	switch {
	case !ok:
		return auth.Identity{}, &exec.Error{Code: codeUnauthenticated, Message: "this API token is not known here"}
	case !id.Has(role):
		return auth.Identity{}, &exec.Error{Code: codeForbidden, Message: "this API token lacks the role " + string(role)}
	}
	return id, nil
}

// apiToken is more lenient than bearerToken in what it calls wrong: whatever can be
// no API token is the lack of one, 401, which clients know how to mend.
func apiToken(h http.Header) (string, error) {
	const field = "Authorization"
	values := h.Values(field)
	if len(values) > 1 {
		return "", invalid(field, "must be given once")
	}
	scheme, token := "", ""
	if len(values) == 1 {
		scheme, token, _ = strings.Cut(values[0], " ")
		token = strings.TrimLeft(token, " ")
	}
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", &exec.Error{Code: codeUnauthenticated, Message: "this server wants an API token, as Authorization: Bearer <token>"}
	case len(token) > maxTokenBytes:
		return "", invalid(field, tooLong)
	}
	return token, nil
}

// needsMetrics lets whoever may read the metrics pass. Open mode knows no roles.
func (s *Server) needsMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.closed() {
			if _, err := s.authorize(r.Header, auth.RoleMetrics); err != nil {
				s.unidentified(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// guarded is for the answers of no route: under /v1 they are behind
// authentication like the routes, so that without a token all of it looks alike.
func (s *Server) guarded(h http.HandlerFunc) http.HandlerFunc {
	identified := s.identify(h)
	return func(w http.ResponseWriter, r *http.Request) {
		if s.closed() && (r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/")) {
			identified.ServeHTTP(w, r)
			return
		}
		h(w, r)
	}
}

// unidentified answers where identity or role are not what they must be.
func (s *Server) unidentified(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := errors.AsType[*exec.Error](err); ok && e.Code == codeUnauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	s.problem(w, r, err)
}
