package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Role is something that a token may do. Roles do not include each other.
type Role string

// The roles.
const (
	RoleRun        Role = "run"         // everything under /v1
	RoleApprove    Role = "approve"     // decide approvals of its own name
	RoleApproveAll Role = "approve-all" // decide those of any name
	RoleMetrics    Role = "metrics"     // read /metrics
)

var allRoles = []Role{RoleRun, RoleApprove, RoleApproveAll, RoleMetrics}

// Identity is what is known of a caller by its token.
type Identity struct {
	Name  string // of the tenant, 1 to 64 of A-Z a-z 0-9 . _ -
	Roles []Role // at least one; shared, not to be changed
	// ID tells tokens of one name apart: the SHA-256 of the token, 64 lower-case
	// hex digits. It is no secret of the caller's and still nobody else's business.
	ID string
}

// Has reports whether the token has the role r.
func (i Identity) Has(r Role) bool { return slices.Contains(i.Roles, r) }

// maxName is the length of a name, in bytes, at most.
const maxName = 64

func checkName(name string) error {
	odd := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("the name must be 1 to %d of A-Z a-z 0-9 . _ -", maxName)
	}
	return nil
}

func checkRoles(roles []Role) error {
	for i, r := range roles {
		switch {
		case !slices.Contains(allRoles, r):
			return fmt.Errorf("role %d is unknown; the roles are %s, %s, %s and %s", i+1, allRoles[0], allRoles[1], allRoles[2], allRoles[3])
		case slices.Contains(roles[:i], r):
			return fmt.Errorf("role %d is there twice", i+1)
		}
	}
	return nil
}
