package prober

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// The output is a line for the beginning, one for each probe, and one for the end:
//
//	bashd-prober NONCE
//	NAME d                 it was done
//	NAME r ERRNO           it was refused
//	NAME s WHY…            it was not tried
//	NAME u                 it was tried, and only the object can tell
//	end COUNT SUM
//
// SUM is taken over everything before, so that a line that was changed or is missing does not go unseen.

// MaxOutput bounds what the prober prints and [Scene.Judge] reads, in bytes. It prints about 10 KiB.
const MaxOutput = 64 << 10

// maxQuoted bounds what an error quotes of an output that cannot be read, in bytes.
const maxQuoted = 200

func format(list []probe, outcomes []outcome, nonce string) []byte {
	b := append([]byte(Argv0), ' ')
	b = append(append(b, nonce...), '\n')
	for i, o := range outcomes {
		b = append(append(append(b, list[i].Name...), ' '), byte(o.state))
		switch o.state {
		case refused:
			b = strconv.AppendInt(append(b, ' '), int64(o.errno), 10)
		case skipped:
			b = append(append(b, ' '), o.why...)
		}
		b = append(b, '\n')
	}
	return append(b, endLine(len(outcomes), b)...)
}

func endLine(count int, before []byte) string {
	return "end " + strconv.Itoa(count) + " " + strconv.FormatUint(sum(before), 16) + "\n"
}

// sum is FNV-1a.
func sum(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// parse reads the output back. Anything that format does not write is an error.
func parse(printed []byte, list []probe, nonce string) ([]outcome, error) {
	if len(printed) > MaxOutput {
		return nil, errors.New("the prober printed too much")
	}
	end := bytes.LastIndex(printed, []byte("\nend "))
	if end < 0 {
		return nil, fmt.Errorf("the prober did not run to its end; the last of what it printed: %q", printed[max(0, len(printed)-maxQuoted):])
	}
	body, last := printed[:end+1], string(printed[end+1:])
	if last != endLine(len(list), body) {
		return nil, errors.New("the prober's output is not whole")
	}
	lines := strings.Split(string(body[:end]), "\n")
	if len(lines) != len(list)+1 || lines[0] != Argv0+" "+nonce {
		return nil, errors.New("the prober's output is not of this probe")
	}
	outcomes := make([]outcome, len(list))
	for i, line := range lines[1:] {
		rest, ok := strings.CutPrefix(line, list[i].Name+" ")
		if ok {
			outcomes[i], ok = parseOutcome(rest)
		}
		if !ok {
			return nil, errors.New("the prober printed nonsense about " + list[i].Name)
		}
	}
	return outcomes, nil
}

// maxErrno is the highest that the kernel returns.
const maxErrno = 4095

func parseOutcome(s string) (outcome, bool) {
	kind, rest, more := strings.Cut(s, " ")
	switch {
	case len(kind) != 1:
		return outcome{}, false
	case state(kind[0]) == did || state(kind[0]) == unseen:
		return outcome{state: state(kind[0])}, !more
	case state(kind[0]) == refused:
		n, err := strconv.ParseUint(rest, 10, 16)
		return outcome{state: refused, errno: syscall.Errno(n)}, err == nil && n > 0 && n <= maxErrno && strconv.FormatUint(n, 10) == rest
	case state(kind[0]) == skipped:
		return outcome{state: skipped, why: rest}, rest != ""
	}
	return outcome{}, false
}
