package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names are names of environment variables, separated by ",".
type Names []string

// alwaysScrubbed are the variables that no command inherits whatever the
// operator lists: to accept one of them would promise what does not happen.
var alwaysScrubbed = []string{
	"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND",
	"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH",
}

// UnmarshalText replaces n by the names in text.
func (n *Names) UnmarshalText(text []byte) error {
	var names Names
	for _, item := range splitTrim(string(text)) {
		if !isEnvName(item) {
			return errors.New("must list names of variables, got " + quote(item))
		}
		if strings.HasPrefix(item, prefix) || strings.HasPrefix(item, "DSH_") ||
			strings.HasPrefix(item, "BASH_FUNC_") || slices.Contains(alwaysScrubbed, item) {
			return fmt.Errorf("%s is never passed on to commands", quote(item))
		}
		names = append(names, item)
	}
	*n = names
	return nil
}

// String returns the form that UnmarshalText reads.
func (n Names) String() string { return strings.Join(n, ",") }

// User is whom commands run as: a name, a uid, or uid:gid. Neither id is 0, and
// neither is the one that means "no change" to the kernel.
type User string

// UnmarshalText checks the form only; whether the user exists is not known here.
func (u *User) UnmarshalText(text []byte) error {
	s := string(text)
	if !isUserName(s) && !isUIDGID(s) || s == "root" {
		return errors.New("must be a user's name, a uid or uid:gid, and not root, got " + quote(s))
	}
	*u = User(s)
	return nil
}

func isUserName(s string) bool {
	return len(s) <= 32 && consistsOf(s, lower+upper+digits+"_-.") && !strings.Contains(digits+"-.", s[:1])
}

func isUIDGID(s string) bool {
	uid, gid, hasGID := strings.Cut(s, ":")
	return isID(uid) && (!hasGID || isID(gid))
}

func isID(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n > 0 && n < 1<<32-1
}
