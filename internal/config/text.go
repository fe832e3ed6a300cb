package config

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// consistsOf reports whether s is not empty and has no byte that chars lacks.
func consistsOf(s, chars string) bool { return s != "" && strings.Trim(s, chars) == "" }

// isEnvName reports whether s is a name that a shell can expand.
func isEnvName(s string) bool {
	return consistsOf(s, upper+lower+digits+"_") && !strings.Contains(digits, s[:1])
}

// split drops empty items.
func split(s, separator string) []string {
	return slices.DeleteFunc(strings.Split(s, separator), func(item string) bool { return item == "" })
}

// splitTrim splits at commas, drops blanks around items, then empty items.
func splitTrim(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.Trim(item, " \t"); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// quote makes a piece of a value fit for a one-line error: control characters
// and bytes that are no UTF-8 are escaped, and what is too long is cut.
func quote(s string) string {
	const limit = 64
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	cut := limit
	for cut > limit-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

// list spells two or more alternatives as "a, b or c".
func list(items []string) string {
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " or " + items[last]
}
