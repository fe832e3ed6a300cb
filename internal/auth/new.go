package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

const (
	tokenPrefix = "bashd_" // lets scanners for leaked secrets find it
	tokenBytes  = 32
)

// New makes a token of 256 random bits, "bashd_" and 43 characters of base64url,
// and the line by which the tokens file knows it. Without roles it is one for
// running commands. Nothing keeps the token: it cannot be had again. It is an
// error where the name or a role is none.
func New(name string, roles []Role) (token, line string, err error) {
	if err := checkName(name); err != nil {
		return "", "", err
	}
	if err := checkRoles(roles); err != nil {
		return "", "", err
	}
	secret := make([]byte, tokenBytes)
	rand.Read(secret) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	return token, formatLine(name, sha256.Sum256([]byte(token)), roles), nil
}
