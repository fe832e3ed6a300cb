package denial

import (
	"path"
	"strings"
	"syscall"
)

// trust says how sure it is that a text is a path, and so what must hold for
// it to count.
type trust int

const (
	sure  trust = iota // quoted, absolute, or where this program puts its paths
	word               // a word with a slash: it or its directory must exist
	maybe              // any word: it must exist
)

// name is a path as a message gives it.
type name struct {
	texts []string // its possible readings; the first that exists counts, else the first
	kind  kind
	trust trust
}

// claim is a message that says that an operation failed.
type claim struct {
	names []name // one, or the two of a rename or link, which must both have been allowed
	errno syscall.Errno
	line  string
}

// parse reads one message: head is the line before the errno's text, tail what
// follows it.
func parse(head, tail string, errno syscall.Errno, exitCode int) (claim, bool) {
	names := namesBehind(tail)
	if names == nil && endsMessage(tail) {
		names = namesBefore(head)
	}
	for i := range names {
		n := &names[i]
		if n.kind = n.kind.settle(errno, exitCode); n.kind == none || !n.plausible() {
			return claim{}, false
		}
	}
	return claim{names: names, errno: errno}, len(names) > 0
}

// plausible drops readings that cannot be a path of the file system and
// reports whether any is left.
func (n *name) plausible() bool {
	kept := n.texts[:0:0]
	for _, t := range n.texts {
		// The shell opens sockets, not files, under these two names.
		network := strings.HasPrefix(t, "/dev/tcp/") || strings.HasPrefix(t, "/dev/udp/")
		if t == "" || len(t) >= maxPathLen || network ||
			strings.Contains(t, "\x00") || strings.Contains(t, "://") {
			continue
		}
		kept = append(kept, t)
	}
	n.texts = kept
	return len(kept) > 0
}

// endsMessage reports whether tail is what may follow the errno's text when
// the path stands before it: nothing, a bracket, an error number, or Perl's
// position. "(publickey)" and "for table x" are not among it.
func endsMessage(tail string) bool {
	tail = strings.TrimRight(tail, "\r\t .)")
	if rest, ok := strings.CutPrefix(tail, " ("); ok {
		tail = strings.Trim(strings.TrimPrefix(rest, "os error "), "0123456789")
	}
	perl := strings.HasPrefix(tail, " at ") && strings.Contains(tail, " line ")
	return tail == "" || perl
}

// namesBehind reads the path that follows the errno's text: Python's
// ": 'x' -> 'y'", Node's ", open 'x'", Ruby's " @ rb_sysopen - x", and the
// ": /x" of zsh. It returns nil if none follows.
func namesBehind(tail string) []name {
	tail = strings.TrimRight(tail, "\r\t .)]}")
	k := unclear
	switch {
	case strings.HasPrefix(tail, ": /"):
		return []name{{texts: []string{tail[2:]}}}
	case strings.HasPrefix(tail, ": "):
		tail = tail[2:]
	case strings.HasPrefix(tail, ", "):
		call, rest, _ := strings.Cut(tail[2:], " ")
		known := false
		if k, known = calls[call]; !known {
			return nil
		}
		tail = rest
	case strings.HasPrefix(tail, " @ "):
		_, file, found := strings.Cut(tail, " - ")
		file, _, _ = strings.Cut(file, " (Errno::")
		if !found || !strings.Contains(file, "/") {
			return nil
		}
		return []name{{texts: []string{file}, trust: word}}
	default:
		return nil
	}
	if len(tail) < 2 || (tail[0] != '\'' && tail[0] != '"') || tail[len(tail)-1] != tail[0] {
		return nil
	}
	q := tail[:1]
	first, second, two := strings.Cut(tail[1:len(tail)-1], q+" -> "+q)
	if !two {
		return []name{{texts: meanings(first), kind: k}}
	}
	if k == unclear { // Python names two files only for renames and links
		k = entry
	}
	return []name{{texts: meanings(first), kind: k}, {texts: meanings(second), kind: k}}
}

// namesBefore reads the path that precedes the errno's text.
func namesBefore(head string) []name {
	head = strings.TrimRight(head, " (")
	head = strings.NewReplacer("：", ": ", " : ", ": ").Replace(head)
	head = strings.TrimRight(head, ": ")
	program, rest, found := strings.Cut(head, ": ")
	if !found {
		program, rest = "", head
	}
	if names, ok := shellNames(program, rest); ok {
		return names
	}
	k := kindOf(program, rest)
	if k == none {
		return nil
	}
	program = path.Base(program)
	if program != "tar" { // it names the path before the explanation, and quotes in the latter
		if q := quotedIn(rest); len(q) > 0 {
			return quotedNames(q, rest, program, k)
		}
	}
	segments := strings.Split(rest, ": ")
	for i := len(segments) - 1; i >= 0; i-- {
		if n := segmentName(segments[i], program, k); n != nil {
			return n
		}
	}
	return nil
}

// quotedNames picks the names that a message with quoted ones speaks of.
func quotedNames(q []quoted, text, program string, k kind) []name {
	last := q[len(q)-1]
	one := []name{{texts: last.texts, kind: k}}
	if len(q) < 2 {
		return one
	}
	first := q[len(q)-2]
	arrow := strings.Contains(text[first.end:last.start], ">")
	switch {
	case program == "ln" && strings.Contains(text, "symbolic"): // its target need not exist
		return []name{{texts: first.texts, kind: entry}}
	case program == "ln" || program == "link":
		return []name{{texts: first.texts, kind: entry}, {texts: last.texts, kind: link}}
	case program == "mv" || arrow:
		return []name{{texts: first.texts, kind: entry}, {texts: last.texts, kind: entry}}
	}
	return one
}

// segmentName reads the path in one part of a message without quotes.
func segmentName(segment, program string, k kind) []name {
	segment = strings.TrimSpace(segment)
	if file, lk, certain, found := cutLeadIn(segment); found {
		return []name{{texts: []string{file}, kind: lk, trust: trustOf(file, certain)}}
	}
	call, file, spaced := strings.Cut(segment, " ")
	if ck, known := calls[call]; known && spaced && program != "tar" { // "tar: x: open impossible"
		return callNames(ck, file)
	}
	if !spaced {
		_, known := programs[program]
		return []name{{texts: []string{segment}, kind: k, trust: trustOf(segment, known)}}
	}
	if strings.HasPrefix(call, "/") || strings.HasPrefix(call, "./") || strings.HasPrefix(call, "../") {
		return []name{{texts: []string{call, segment}, kind: k, trust: trustOf(call, false)}}
	}
	words := strings.Fields(segment)
	for i := len(words) - 1; i >= 0; i-- {
		w := strings.Trim(words[i], ",;()[]<>")
		if strings.Contains(w, "/") && w[0] != '-' {
			return []name{{texts: []string{w}, kind: k, trust: trustOf(w, false)}}
		}
	}
	return nil
}

// callNames reads what follows an operation's name: one path, or the two of
// Go's "rename /a /b".
func callNames(k kind, file string) []name {
	if k == none {
		return nil
	}
	if a, b, two := strings.Cut(file, " /"); two && k == entry {
		b = "/" + b
		return []name{{texts: []string{a}, kind: k, trust: trustOf(a, false)}, {texts: []string{b}, kind: k}}
	}
	return []name{{texts: []string{file}, kind: k, trust: trustOf(file, false)}}
}

// trustOf judges an unquoted text; known says that it stands where a program
// is known to put file names.
func trustOf(text string, known bool) trust {
	switch {
	case strings.HasPrefix(text, "/"), known && !strings.ContainsAny(text, " \t"):
		return sure
	case strings.Contains(text, "/"):
		return word
	}
	return maybe
}
