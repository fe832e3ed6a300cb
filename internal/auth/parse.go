package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// entry is one token of the file.
type entry struct {
	hash     [sha256.Size]byte
	identity Identity
}

// noToken is the hash of nothing: what a script writes whose variable was empty.
var noToken = sha256.Sum256(nil)

// parse reads the file's content. Its errors are one line, begin with the
// number of the line at fault, and do not depend on what else is in it.
func parse(content string) ([]entry, error) {
	var entries []entry
	seen := make(map[[sha256.Size]byte]int) // hash → number of its line
	number := 0
	for line := range strings.SplitSeq(content, "\n") {
		number++
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if first, twice := seen[e.hash]; twice {
			return nil, fmt.Errorf("line %d: the hash is that of line %d; a token has one name and one set of roles", number, first)
		}
		seen[e.hash] = number
		entries = append(entries, e)
	}
	return entries, nil
}

// parseLine reads name:hash or name:hash:role,role….
func parseLine(line string) (entry, error) {
	name, rest, ok := strings.Cut(line, ":")
	if !ok {
		return entry{}, errors.New("must be name:hash or name:hash:role,role…")
	}
	if err := checkName(name); err != nil {
		return entry{}, err
	}
	digits, list, hasRoles := strings.Cut(rest, ":")
	hash, err := hex.DecodeString(digits)
	if err != nil || len(hash) != sha256.Size {
		return entry{}, errors.New("the hash must be 64 hex digits, the SHA-256 of the token")
	}
	e := entry{hash: [sha256.Size]byte(hash), identity: Identity{Name: name, Roles: []Role{RoleRun}, ID: hex.EncodeToString(hash)}}
	if e.hash == noToken {
		return entry{}, errors.New("the hash is that of an empty token")
	}
	if !hasRoles {
		return e, nil
	}
	if e.identity.Roles, err = parseRoles(list); err != nil {
		return entry{}, err
	}
	return e, nil
}

func parseRoles(list string) ([]Role, error) {
	if list == "" {
		return nil, errors.New("no role follows the second colon; leave both out for the role run")
	}
	var roles []Role
	for r := range strings.SplitSeq(list, ",") {
		roles = append(roles, Role(r))
	}
	return roles, checkRoles(roles)
}

// formatLine is what parseLine reads. No roles at all means the default.
func formatLine(name string, hash [sha256.Size]byte, roles []Role) string {
	fields := []string{name, hex.EncodeToString(hash[:])}
	if len(roles) > 0 {
		names := make([]string, len(roles))
		for i, r := range roles {
			names[i] = string(r)
		}
		fields = append(fields, strings.Join(names, ","))
	}
	return strings.Join(fields, ":")
}
