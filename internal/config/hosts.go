package config

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Hosts are names in lower case without a final dot, and IP addresses in their
// canonical form without brackets; never with a port, so a Host header is
// compared without its own. In the environment they are separated by ",".
type Hosts []string

// UnmarshalText replaces h by the hosts in text.
func (h *Hosts) UnmarshalText(text []byte) error {
	var hosts Hosts
	for _, item := range splitTrim(string(text)) {
		name, isBracketed := unbracket(item)
		host, ok := canonicalHost(name)
		if !ok || isBracketed && !strings.Contains(host, ":") {
			return errors.New("must list names or addresses without a port, got " + quote(item))
		}
		hosts = append(hosts, host)
	}
	*h = hosts
	return nil
}

// String returns the form that UnmarshalText reads.
func (h Hosts) String() string { return strings.Join(h, ",") }

// Origins are in the form in which a browser sends them: scheme and host in
// lower case, the port only where it is not the scheme's own; or "*". In the
// environment they are separated by ",".
type Origins []string

// UnmarshalText replaces o by the origins in text. "null" is refused: every
// sandboxed frame and local file sends it.
func (o *Origins) UnmarshalText(text []byte) error {
	var origins Origins
	for _, item := range splitTrim(string(text)) {
		if strings.Contains(item, "@") { // what precedes it may be a password
			return errors.New("an origin has no user")
		}
		origin, ok := canonicalOrigin(item)
		if !ok {
			return errors.New("must list origins as scheme://host[:port] without a path, got " + quote(item))
		}
		origins = append(origins, origin)
	}
	*o = origins
	return nil
}

// String returns the form that UnmarshalText reads.
func (o Origins) String() string { return strings.Join(o, ",") }

// Any reports whether every origin is allowed.
func (o Origins) Any() bool { return slices.Contains(o, "*") }

// canonicalHost accepts an IP address without zone or brackets, and a DNS name.
// Underscores are not for DNS, but names of containers have them.
func canonicalHost(s string) (string, bool) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.String(), ip.Zone() == ""
	}
	s = strings.TrimSuffix(s, ".")
	if len(s) > 253 {
		return "", false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || !consistsOf(label, lower+upper+digits+"-_") {
			return "", false
		}
	}
	return strings.ToLower(s), true
}

func canonicalOrigin(s string) (string, bool) {
	if s == "*" {
		return s, true
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !consistsOf(scheme, lower+upper+digits+"+-.") || strings.Contains(digits+"+-.", scheme[:1]) {
		return "", false
	}
	scheme = strings.ToLower(scheme)
	host, port, hasPort := cutPort(rest)
	host, isBracketed := unbracket(host)
	host, ok = canonicalHost(host)
	isIPv6 := strings.Contains(host, ":")
	if !ok || isIPv6 != isBracketed {
		return "", false
	}
	if isIPv6 {
		host = "[" + host + "]"
	}
	if hasPort {
		if port, ok = canonicalPort(scheme, port); !ok {
			return "", false
		}
	}
	return scheme + "://" + host + port, true
}

// canonicalPort returns the port with its colon, or nothing where a browser
// leaves it out because it is the scheme's own.
func canonicalPort(scheme, port string) (string, bool) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", false
	}
	if scheme == "http" && n == 80 || scheme == "https" && n == 443 {
		return "", true
	}
	return ":" + strconv.FormatUint(n, 10), true
}

// unbracket strips the brackets that an IPv6 address has where a port may follow.
func unbracket(s string) (inner string, isBracketed bool) {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1], true
	}
	return s, false
}

// cutPort cuts at the last colon that is not inside brackets.
func cutPort(s string) (host, port string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i < strings.LastIndexByte(s, ']') {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
