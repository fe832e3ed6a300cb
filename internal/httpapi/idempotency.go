package httpapi

import (
	"crypto/sha256"
	"net/http"
	"strings"

	"bashd/internal/exec"
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// handleKeyed makes a handler of an endpoint that starts a command. With an idempotency key the
// request carries that key and the hash of the body, byte for byte as it came: a body that says the
// same in other words is another one.
func handleKeyed(s *Server, decode func([]byte) (exec.Request, error), e func(*http.Request, exec.Request) (reply, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := idempotencyKey(r.Header)
		if err != nil {
			s.problem(w, r, err)
			return
		}
		handleBody(s, func(body []byte) (exec.Request, error) {
			in, err := decode(body)
			if key != nil {
				key.Body = sha256.Sum256(body)
				in.Key = key
			}
			return in, err
		}, e)(w, r)
	}
}

// idempotencyKey returns nil without a key. One that is there but odd is refused and never taken
// for none: its sender relies on it.
func idempotencyKey(h http.Header) (*exec.Key, error) {
	values := h.Values(keyHeader)
	switch {
	case len(values) == 0:
		return nil, nil
	case len(values) > 1:
		return nil, invalid(keyHeader, "must be given once")
	}
	name := values[0]
	if name == "" || len(name) > exec.MaxKeyBytes || strings.IndexFunc(name, func(c rune) bool { return c < '!' || c > '~' }) >= 0 {
		return nil, invalid(keyHeader, "must be 1 to 255 visible ASCII characters")
	}
	return &exec.Key{Name: name}, nil
}

// replay marks an answer that repeats an earlier one.
func replay(replayed bool, answer reply) reply {
	if !replayed {
		return answer
	}
	return withHeader(replayedHeader, "true", answer)
}
