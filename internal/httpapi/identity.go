package httpapi

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"

	"bashd/internal/exec"
)

const (
	ownerHeader   = "X-Owner-Token"
	maxTokenBytes = 256
)

// identify finds out on whose behalf a request comes. No API tokens are
// configured in this mode, so everybody is accepted, and whoever names an owner
// token is that owner. A header that is there but odd is refused and never
// taken for "no owner".
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := identity(r.Header)
		if err != nil {
			s.problem(w, r, err)
			return
		}
		stateOf(r).caller = caller
		next.ServeHTTP(w, r)
	})
}

// identity checks both headers, even where the first one decides.
func identity(h http.Header) (exec.Caller, error) {
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
		return "the token is longer than 256 characters"
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
