package httpapi

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"

	"bashd/internal/auth"
	"bashd/internal/exec"
)

const (
	ownerHeader   = "X-Owner-Token"
	maxTokenBytes = 256
	tooLong       = "the token is longer than 256 characters"
)

// identify finds out on whose behalf a request comes. A header that is there but
// odd is refused and never taken for "no owner".
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		find := openCaller
		if s.closed() {
			find = s.closedCaller
		}
		caller, err := find(r.Header)
		if err != nil {
			s.unidentified(w, r, err)
			return
		}
		stateOf(r).caller = caller
		next.ServeHTTP(w, r)
	})
}

// closedCaller is who has an API token with the role run: always an owner, the
// token's name, of which an owner token makes one of its own. The owner token is
// looked at last, so that a stranger learns nothing from how it is taken.
func (s *Server) closedCaller(h http.Header) (exec.Caller, error) {
	id, err := s.authorize(h, auth.RoleRun)
	if err != nil {
		return exec.Caller{}, err
	}
	owner, _, problem := ownerToken(h)
	if problem != "" {
		return exec.Caller{}, invalid(ownerHeader, problem)
	}
	return exec.Caller{Owner: ownerKey(id.Name, owner)}, nil
}

// openCaller is everybody: without API tokens all are accepted, and whoever
// names an owner token is that owner. Both headers are checked, even where the
// first one decides.
func openCaller(h http.Header) (exec.Caller, error) {
	var errs fieldErrors
	owner, hasOwner, problem := ownerToken(h)
	if problem != "" {
		errs.add(ownerHeader, "%s", problem)
	}
	bearer, hasBearer, problem := bearerToken(h)
	if problem != "" {
		errs.add("Authorization", "%s", problem)
	}
	switch {
	case len(errs.list) > 0:
		return exec.Caller{}, errs.err()
	case hasOwner:
		return exec.Caller{Owner: ownerKey("", owner)}, nil
	case hasBearer:
		return exec.Caller{Owner: ownerKey("", bearer)}, nil
	}
	return exec.Caller{}, nil
}

func ownerToken(h http.Header) (token string, ok bool, problem string) {
	values := h.Values(ownerHeader)
	switch {
	case len(values) == 0:
		return "", false, ""
	case len(values) > 1:
		return "", false, "must be given once"
	}
	return values[0], true, checkToken(values[0])
}

func bearerToken(h http.Header) (token string, ok bool, problem string) {
	values := h.Values("Authorization")
	switch {
	case len(values) == 0:
		return "", false, ""
	case len(values) > 1:
		return "", false, "must be given once"
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false, "must use the scheme Bearer; no other is known here"
	}
	token = strings.TrimLeft(token, " ")
	return token, true, checkToken(token)
}

// checkToken says what is wrong with a token, without quoting it.
func checkToken(token string) (problem string) {
	switch {
	case token == "":
		return "the token is empty; leave the header out to have no owner"
	case len(token) > maxTokenBytes:
		return tooLong
	case strings.IndexFunc(token, func(c rune) bool { return c < '!' || c > '~' }) >= 0:
		return "the token must consist of visible ASCII characters"
	}
	return ""
}

// ownerKey names an owner without telling the token: the SHA-256 of the API
// token's name and the owner token. Each goes in behind its length, so that no
// two pairs are hashed alike.
func ownerKey(tokenName, ownerToken string) exec.Owner {
	h := sha256.New()
	for _, part := range []string{tokenName, ownerToken} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return exec.Owner(hex.EncodeToString(h.Sum(nil)))
}
