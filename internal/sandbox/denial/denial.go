// Package denial answers one question about a command that ended: did it fail
// because the sandbox refused it a file operation?
//
// No kernel interface tells this after the fact, so the answer rests on two
// things together. The signature: a line of the command's error output says,
// in a form that a known program uses, that an operation on a path failed with
// an errno that this sandbox produces. The counterfactual: the mode forbids
// that operation at that path, and the kernel, asked with the command's
// credentials but without its sandbox, would have allowed it. A line such as
// "ssh: Permission denied (publickey)", a file with mode 000, or a script
// without its execute bit is therefore no denial.
//
// The answer is conservative. It is always no for a clean exit, for a signal,
// for a message without a path, and whenever anything stays unclear. The
// package opens no file and reads no content; the metadata calls that it makes
// run on a thread of their own that holds the command's credentials and no
// capability, within limits on lines, paths, steps and time.
//
// What it cannot tell: a program that prints the message for a path that the
// mode really forbids looks like a denial; a program that hides its error does
// not. Relative paths are resolved against the command's first working
// directory only. The file tree is examined after the command ended, in the
// mount namespace of the caller. A message that does not say whether it speaks
// of reading, writing or executing (Python's, bash's redirections) is held for
// a write if a write is forbidden there and would have worked. A refusal
// reported as EXDEV (a hard link across the border) is never a denial.
package denial

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxTail     = 64 << 10 // bytes of error output that are looked at, from its end
	maxLine     = 16 << 10 // a longer line is no message of a file operation: PATH_MAX is 4096
	maxLines    = 64       // lines with a signature that are judged
	maxPaths    = 64       // paths that are looked up
	maxEvidence = 200      // bytes of the quoted line
	maxTime     = 500 * time.Millisecond
	maxProbes   = 16 // probing threads at once in the whole process
)

// Op is a kind of file operation, as a sandbox policy distinguishes them.
type Op int

// The operations that a policy is asked about. Execute permission counts as Read.
const (
	Write    Op = iota // create, change, truncate, rename, link or remove
	Read               // open for reading, list, enter or execute
	Metadata           // change mode, times, attributes of an existing file
)

// String returns the lower-case name of the operation.
func (o Op) String() string {
	switch o {
	case Write:
		return "write"
	case Read:
		return "read"
	case Metadata:
		return "metadata change"
	}
	return "operation " + strconv.Itoa(int(o))
}

// Cred is what the kernel checked the command's file accesses against, in the
// user namespace of the caller. The command is taken to hold no capability.
type Cred struct {
	UID, GID uint32   // fsuid and fsgid
	Groups   []uint32 // supplementary groups, in any order
}

// Evidence is what is known of a command that ended.
type Evidence struct {
	ExitCode int
	Signaled bool // it died of a signal; ExitCode is then ignored

	// Stderr is the error output or its tail, raw. Only the last 64 KiB are
	// looked at. With merged streams it is the merged output.
	Stderr []byte

	// Workdir is the absolute directory that the command started in.
	Workdir string

	// Errnos are the errors that this sandbox refuses with: EACCES for
	// Landlock, EROFS for read-only mounts, EPERM for a system call filter.
	// Others are ignored.
	Errnos []syscall.Errno

	// Forbidden reports whether the mode forbids op at path, which is
	// absolute, clean and free of symbolic links as far as it exists. It must
	// be pure and quick: it is called on a thread without privileges, and, if
	// a file system hangs, possibly after Classify has returned.
	Forbidden func(path string, op Op) bool

	// Hidden reports that the command cannot see path at all, so that no message of it can be about it, and what is there is
	// not to be found out from the answer. It is called as Forbidden is; nil: it sees everything.
	Hidden func(path string) bool

	Cred Cred
}

// Denial says what was refused and why that is believed.
type Denial struct {
	// Path is the file that the refused operation spoke of: absolute, symbolic
	// links resolved, otherwise raw (it can hold any byte but NUL).
	Path string

	// Evidence is the line that names the path, control characters escaped
	// and cut to 200 bytes, followed by what the judgement rests on.
	Evidence string
}

// Classify reports whether the command failed because the sandbox refused it
// a file operation, and which. The latest message that qualifies is reported.
// When in doubt it answers no.
//
// It is safe for concurrent use and returns within half a second even if a
// network file system named in a message does not answer; the thread that
// waits for such a file system stays until that one does. Sixteen such threads
// at most exist; while all are stuck, the answer is no.
//
// With credentials other than the caller's own it needs CAP_SETUID and
// CAP_SETGID, else the answer is no. Changing them makes the kernel reset the
// process's dumpable flag to fs.suid_dumpable; a process that had cleared it
// finds it cleared again.
func Classify(e Evidence) (Denial, bool) {
	if e.Signaled || e.ExitCode == 0 || e.Forbidden == nil || len(e.Errnos) == 0 {
		return Denial{}, false
	}
	claims := claimsOf(e)
	if len(claims) == 0 {
		return Denial{}, false
	}
	v, ok := probe(e, claims)
	if !ok {
		return Denial{}, false
	}
	return Denial{Path: v.path, Evidence: v.claim.evidence(v.op, e.Cred)}, true
}

// claimsOf returns what the lines of the tail claim, the last line first.
func claimsOf(e Evidence) []claim {
	tail := e.Stderr
	if cut := len(tail) - maxTail; cut > 0 {
		// The line that the cut goes through lost its beginning: drop it.
		whole := tail[cut-1:]
		_, tail, _ = bytes.Cut(whole, []byte{'\n'})
	}
	phrases := phrasesIn(tail, e.Errnos)
	if len(phrases) == 0 {
		return nil
	}
	var claims []claim
	lines, paths := 0, 0
	for len(tail) > 0 && lines < maxLines && paths < maxPaths {
		line := tail
		if i := bytes.LastIndexByte(tail, '\n'); i >= 0 {
			line, tail = tail[i+1:], tail[:i]
		} else {
			tail = nil
		}
		if len(line) > maxLine {
			continue
		}
		head, rest, errno, ok := splitAtPhrase(line, phrases)
		if !ok {
			continue
		}
		lines++
		if c, ok := parse(head, rest, errno, e.ExitCode); ok {
			c.line = string(line)
			paths += len(c.names)
			claims = append(claims, c)
		}
	}
	return claims
}

// evidence words what a confirmed claim rests on.
func (c claim) evidence(op Op, cred Cred) string {
	return fmt.Sprintf("%s [%s: %s forbidden here by the mode, allowed to uid %d without the sandbox]",
		sanitize(c.line), errnoNames[c.errno], op, cred.UID)
}

// sanitize makes one line of output safe to show: what is not printable and
// what is not UTF-8 is escaped, and the result is at most maxEvidence bytes.
func sanitize(line string) string {
	const ellipsis = "…"
	line = strings.TrimRight(line, "\r\n")
	var out []byte
	cut := 0 // where the ellipsis would go
	for len(line) > 0 {
		r, size := utf8.DecodeRuneInString(line)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, line[0])
		case !unicode.IsPrint(r):
			out = append(out, strings.Trim(strconv.QuoteRuneToASCII(r), "'")...)
		default:
			out = append(out, line[:size]...)
		}
		line = line[size:]
		if len(out) > maxEvidence {
			return string(out[:cut]) + ellipsis
		}
		if len(out) <= maxEvidence-len(ellipsis) {
			cut = len(out)
		}
	}
	return string(out)
}
