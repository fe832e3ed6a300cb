package denial

import (
	"path"
	"strings"
	"unicode"
)

// shells are the programs whose messages have a shell's form.
var shells = map[string]bool{
	"bash": true, "sh": true, "dash": true, "ash": true, "rbash": true, "ksh": true, "zsh": true,
}

// shellNames reads the message of a shell: "bash: line 1: x: …" (a script's
// name instead of bash, the line marker in any language or missing), with cd
// or exec before the path or an explanation behind it, and dash's "sh: 1: …".
// ok is false if the message is no shell's.
func shellNames(program, rest string) (names []name, ok bool) {
	marker, file, marked := strings.Cut(rest, ": ")
	marked = marked && isLineMarker(marker)
	if !marked {
		file = rest
		if !shells[path.Base(program)] || strings.HasPrefix(rest, "'") {
			return nil, false
		}
	}
	if marked && isNumber(marker) {
		return dashNames(file), true
	}
	k := unclear
	if before, after, found := strings.Cut(file, ": "); found {
		switch before {
		case "cd", "pushd":
			k, file = enter, after
		case "exec":
			k, file = execute, after
		}
	}
	for _, suffix := range []string{": bad interpreter", ": cannot execute"} {
		if s, found := strings.CutSuffix(file, suffix); found {
			k, file = execute, s
		}
	}
	if s, lk, _, found := cutLeadIn(file); found { // busybox
		k, file = lk, s
	}
	if k == execute { // "./script: /the/interpreter: bad interpreter"
		if i := strings.LastIndex(file, ": /"); i >= 0 {
			file = file[i+2:]
		}
	}
	// Without a marker the shell may speak of a system call ("connect") or of
	// its own affairs ("cannot create temp file for here-document").
	t := trustOf(file, marked)
	return []name{{texts: []string{file}, kind: k, trust: t}}, true
}

// dashNames reads the message of dash behind its line number. It words failed
// redirections; a bare name was to be executed.
func dashNames(file string) []name {
	k := execute
	switch before, after, _ := strings.Cut(file, ": "); {
	case before == "cd":
		k, file = enter, strings.TrimPrefix(after, "can't cd to ")
	case strings.HasPrefix(file, "cannot create "):
		k, file = change, strings.TrimPrefix(file, "cannot create ")
	case strings.HasPrefix(file, "cannot open "):
		k, file = read, strings.TrimPrefix(file, "cannot open ")
	}
	return []name{{texts: []string{file}, kind: k, trust: trustOf(file, true)}}
}

// isLineMarker reports whether s is a line number with at most a few words
// around it: "line 1", "Zeile 1", "1. satır", "第 1 行".
func isLineMarker(s string) bool {
	digits, letters := 0, 0
	inNumber, numbers := false, 0
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9':
			if !inNumber {
				numbers++
			}
			inNumber = true
			digits++
			continue
		case unicode.IsLetter(r), unicode.IsMark(r):
			letters++
		case r != ' ' && r != '.' && r != '\u00a0':
			return false
		}
		inNumber = false
	}
	return numbers == 1 && digits <= 9 && letters <= 12
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
