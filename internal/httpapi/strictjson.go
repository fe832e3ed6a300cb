package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"bashd/internal/exec"
)

// Bounds of what a decoder says and follows.
const (
	maxFieldErrors = 32 // what is reported of one request
	maxFieldName   = 64 // bytes of a name that is reported
	maxDepth       = 16 // nesting of a body; ours need two levels
)

// fieldErrors collects what is wrong with a request, so that all of it can be
// told at once.
type fieldErrors struct{ list []exec.FieldError }

// full tells that nothing more will be told, so that looking further is waste.
func (e *fieldErrors) full() bool { return len(e.list) >= maxFieldErrors }

func (e *fieldErrors) add(field, format string, args ...any) {
	if !e.full() {
		e.list = append(e.list, exec.FieldError{Field: clip(field), Message: fmt.Sprintf(format, args...)})
	}
}

func (e *fieldErrors) has(field string) bool {
	return slices.ContainsFunc(e.list, func(f exec.FieldError) bool { return f.Field == field })
}

// err is nil where nothing was added.
func (e *fieldErrors) err() error {
	if len(e.list) == 0 {
		return nil
	}
	slices.SortStableFunc(e.list, func(a, b exec.FieldError) int { return strings.Compare(a.Field, b.Field) })
	message := e.list[0].Field + ": " + e.list[0].Message
	if n := len(e.list) - 1; n > 0 {
		message += fmt.Sprintf(" (and %d more, see errors)", n)
	}
	return &exec.Error{Code: exec.CodeInvalidArgument, Message: message, Fields: e.list}
}

// clip shortens a name that a caller made up, on a character boundary.
func clip(s string) string {
	if len(s) <= maxFieldName {
		return s
	}
	return s[:runeStart(s, maxFieldName)] + "…"
}

// runeStart is the greatest character boundary of s that is at most i.
func runeStart(s string, i int) int {
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// decoder takes the value of one field: it stores it or adds to errs. name is
// how to call the field.
type decoder func(name string, value json.RawMessage, errs *fieldErrors)

// decodeObject decodes one JSON object, field by field, and returns what is
// wrong with the fields in errs. It is strict where encoding/json is not: names
// match exactly, none may come twice, none may be unknown, null is no value,
// and text must be Unicode, in the bytes and in the escapes. The error is for a
// body that is no JSON object at all.
func decodeObject(body []byte, fields map[string]decoder, errs *fieldErrors) error {
	if err := checkJSON(body); err != nil {
		return err
	}
	eachMember(body, func(name string, value json.RawMessage, again bool) (more bool) {
		decode, known := fields[name]
		switch {
		case again:
			errs.add(name, "is given more than once")
		case !known:
			errs.add(name, "%s", unknownField(name, fields))
		default:
			decodeValue(decode, name, value, errs)
		}
		return !errs.full()
	})
	return nil
}

// decodeValue refuses null before a decoder has to.
func decodeValue(decode decoder, name string, value json.RawMessage, errs *fieldErrors) {
	if kindOf(value) == "null" {
		errs.add(name, "must not be null; leave it out instead")
		return
	}
	decode(name, value, errs)
}

// eachMember calls f for every member of a valid JSON object, until f wants no
// more; again tells that the name was there before.
func eachMember(object []byte, f func(name string, value json.RawMessage, again bool) (more bool)) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return // not reached: the object was checked
		}
		if !f(name, value, seen[name]) {
			return
		}
		seen[name] = true
	}
}

var withoutDashes = strings.NewReplacer("_", "", "-", "")

// unknownField names the field that was probably meant: a wrong case, or
// snake_case.
func unknownField(name string, fields map[string]decoder) string {
	plain := func(s string) string { return strings.ToLower(withoutDashes.Replace(s)) }
	for known := range fields {
		if len(name) <= maxFieldName && plain(name) == plain(known) {
			return fmt.Sprintf("unknown field; did you mean %q?", known)
		}
	}
	return "unknown field"
}

// kindOf names the type of a valid JSON value.
func kindOf(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// checkJSON returns why body is not one JSON object in UTF-8.
func checkJSON(body []byte) error {
	if message := checkEncoding(body); message != "" {
		return invalid("body", message)
	}
	if message := checkText(body); message != "" {
		return invalid("body", message)
	}
	err := json.Unmarshal(body, new(struct{}))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return invalid("body", fmt.Sprintf("is not valid JSON at byte %d: %s", syntax.Offset, syntax))
	}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("body", "must be a JSON object, not "+mismatch.Value)
	}
	if err != nil {
		return invalid("body", "is not valid JSON")
	}
	if kindOf(bytes.TrimLeft(body, " \t\r\n")) != "object" {
		return invalid("body", "must be a JSON object, not null")
	}
	return nil
}

func checkEncoding(body []byte) (message string) {
	switch {
	case len(bytes.TrimLeft(body, " \t\r\n")) == 0:
		return "is empty; it must be a JSON object"
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return "must not begin with a byte order mark"
	case bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.IndexByte(body, 0) >= 0:
		return "must be JSON in UTF-8; this looks like UTF-16 or UTF-32, or holds a NUL byte"
	case !utf8.Valid(body):
		return "is not valid UTF-8"
	}
	return ""
}

// checkText looks for what encoding/json would let pass: escapes of half a
// character, which it replaces, and nesting without use, which it follows.
func checkText(body []byte) (message string) {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			n, ok := escapeLen(body[i:])
			if !ok {
				return fmt.Sprintf("has an escape of a lone surrogate at byte %d; that is no character", i)
			}
			i += n - 1
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Sprintf("is nested deeper than %d levels", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return ""
}

// escapeLen is the length of the escape that b begins with, of a surrogate
// pair as one. It is not ok for half a pair; a malformed escape is left to
// encoding/json.
func escapeLen(b []byte) (n int, ok bool) {
	first, isUnit := utf16Unit(b)
	switch {
	case !isUnit:
		return 2, true
	case first < 0xd800 || first > 0xdfff:
		return 6, true
	case first > 0xdbff:
		return 0, false
	}
	second, isUnit := utf16Unit(b[6:])
	return 12, isUnit && second >= 0xdc00 && second <= 0xdfff
}

// utf16Unit reads \uXXXX.
func utf16Unit(b []byte) (unit uint32, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		i := strings.IndexByte("0123456789abcdef", c|0x20)
		if i < 0 || (c|0x20) != c && c < 'A' {
			return 0, false
		}
		unit = unit<<4 | uint32(i)
	}
	return unit, true
}
