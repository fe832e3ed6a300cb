package output

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

const (
	// KeyBytes is the length of a Sealer's key, at least.
	KeyBytes = 32

	sealVersion = 1
	macBytes    = 16
	maxNums     = 8
	maxToken    = 128 // more than any token needs: 1 + 8 × 9 + 16 bytes in base64
)

// ErrBadCursor is the one answer to every token that this key did not seal for
// this scope. It does not say what was wrong.
var ErrBadCursor = errors.New("invalid cursor")

// Sealer makes cursors: short, URL-safe tokens that hold a few numbers and that
// nobody without the key can make or change. The numbers are not secret. A
// Sealer may be used from any goroutine.
type Sealer struct {
	mac func() hash.Hash // holds the key, out of reach of %v
}

// NewSealer returns a Sealer. The key must be random and at least KeyBytes long;
// tokens are valid as long as it stays the same.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) < KeyBytes {
		return nil, fmt.Errorf("cursor key: %d bytes, need at least %d", len(key), KeyBytes)
	}
	key = append([]byte(nil), key...)
	return &Sealer{mac: func() hash.Hash { return hmac.New(sha256.New, key) }}, nil
}

// Seal returns the token of nums in scope: what the cursor is for and whose it
// is, such as owner and task. Like an index out of range, more than 8 numbers or a
// negative one is a mistake of the caller's code and panics.
//
// A token is the version, each number as a varint, and the first 128 bits of the
// HMAC-SHA256, in unpadded base64url.
func (s *Sealer) Seal(scope string, nums ...int64) string {
	if len(nums) > maxNums {
		panic("output: too many numbers in a cursor")
	}
	token := []byte{sealVersion}
	for _, n := range nums {
		if n < 0 {
			panic("output: negative number in a cursor")
		}
		token = binary.AppendUvarint(token, uint64(n))
	}
	token = append(token, s.sum(scope, token)...)
	return base64.RawURLEncoding.EncodeToString(token)
}

// sum authenticates body, which begins with the version, in scope. The length
// in between keeps apart what belongs to which.
func (s *Sealer) sum(scope string, body []byte) []byte {
	mac := s.mac()
	mac.Write(binary.AppendUvarint(nil, uint64(len(body))))
	mac.Write(body)
	mac.Write([]byte(scope))
	return mac.Sum(nil)[:macBytes]
}

// Open returns the numbers of a token that Seal made for scope, else ErrBadCursor.
//
// A token is good if and only if it is, character for character, what Seal makes
// of the numbers in it. So no two tokens mean the same, and no looseness of
// base64 (line breaks, spare bits) or of varints (leading zeros) needs a rule.
func (s *Sealer) Open(scope, token string) ([]int64, error) {
	nums, ok := numbers(token)
	if !ok || !hmac.Equal([]byte(s.Seal(scope, nums...)), []byte(token)) {
		return nil, ErrBadCursor
	}
	return nums, nil
}

// numbers reads the numbers of a token that is not verified yet.
func numbers(token string) (nums []int64, ok bool) {
	if len(token) > maxToken {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < 1+macBytes {
		return nil, false
	}
	for body := raw[1 : len(raw)-macBytes]; len(body) > 0; {
		v, n := binary.Uvarint(body)
		if n <= 0 || int64(v) < 0 || len(nums) == maxNums {
			return nil, false
		}
		nums, body = append(nums, int64(v)), body[n:]
	}
	return nums, true
}
