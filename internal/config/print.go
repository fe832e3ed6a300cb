package config

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
)

// Var describes one variable for documentation.
type Var struct {
	Name    string
	Default string // as the table shows it, empty for none
	Doc     string // one line, with units, and the bounds of numbers
	Effect  bool   // false: no effect yet
}

// Vars returns every variable, in the order of the table.
func Vars() []Var {
	vars := make([]Var, 0, len(fields()))
	for _, f := range fields() {
		vars = append(vars, Var{Name: f.name, Default: f.shownDef, Doc: f.explanation(), Effect: f.effect == ""})
	}
	return vars
}

// note is what the tables append to an explanation.
func (f field) note() string {
	switch f.effect {
	case effectNone:
		return " (no effect yet)"
	case effectRefused:
		return " (no effect yet: setting it stops the start)"
	}
	return ""
}

// WriteHelp writes the table of variables as aligned text. Write errors are
// dropped: there is nobody left to tell.
func WriteHelp(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fields() {
		def := ""
		if f.shownDef != "" {
			def = "; default: " + f.shownDef
		}
		fmt.Fprintf(tw, "  %s\t%s%s%s\n", f.name, f.explanation(), def, f.note())
	}
	tw.Flush()
}

// WriteMarkdown writes the table of variables for the README.
func WriteMarkdown(w io.Writer) {
	escape := strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;")
	fmt.Fprint(w, "| variable | default | |\n| --- | --- | --- |\n")
	for _, f := range fields() {
		def := "–"
		if f.shownDef != "" {
			def = escape.Replace(f.shownDef)
		}
		fmt.Fprintf(w, "| `%s` | %s | %s%s |\n", f.name, def, escape.Replace(f.explanation()), f.note())
	}
}

// Write writes the effective values as NAME=value lines that a shell can read,
// an empty value for what is not set. The values of BASHD_MANAGED_ENV are
// redacted; paths of token files are shown, what is in them is not known here.
// Write errors are dropped.
func (c Config) Write(w io.Writer) {
	v := reflect.ValueOf(c)
	for _, f := range fields() {
		fmt.Fprintf(w, "%s=%s\n", f.name, shellQuote(f.format(v.Field(f.index).Interface())))
	}
}

// format returns a field's value in the form that Load reads.
func (f field) format(value any) string {
	switch value := value.(type) {
	case time.Duration:
		if f.kind == kindMillis {
			return fmt.Sprint(value.Milliseconds())
		}
		return value.String()
	case slog.Level:
		return strings.ToLower(value.String())
	}
	return fmt.Sprint(value)
}

// shellQuote returns s as one word of bash on one line.
func shellQuote(s string) string {
	const plain = lower + upper + digits + "_@%+=:,./-"
	if s == "" || consistsOf(s, plain) {
		return s
	}
	if strings.IndexFunc(s, isControl) < 0 {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// isControl reports what a terminal may act on; invalid UTF-8 is decoded as
// U+FFFD, and quoted with it.
func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' }
