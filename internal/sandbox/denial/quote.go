package denial

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxQuotes is how many opening quotes of a line are tried. It keeps the scan
// of a hostile line linear; no message of a file operation has more than four.
const maxQuotes = 16

// closers maps an opening quotation mark to those that can end it, in the
// styles of GNU quotearg and of the message catalogues.
var closers = map[rune]string{
	'"': `"`,
	'`': "'",
	'‘': "’",
	'“': "”",
	'„': "“”",
	'”': "”",
	'«': "»",
	'»': "«",
	'「': "」",
}

// quoted is one quoted name of a message.
type quoted struct {
	texts []string // its possible meanings, the likeliest first
	end   int      // offset behind its closing mark
	start int      // offset of its opening mark
}

// quotedIn returns the quoted names of s, from left to right.
func quotedIn(s string) []quoted {
	var out []quoted
	boundary := true // an opening mark must begin a word: not the one in "couldn't"
	tried := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if boundary && (r == '\'' || closers[r] != "") {
			if tried++; tried > maxQuotes {
				return nil
			}
			if texts, n := quotedAt(s[i:], r, size); n > 0 {
				out = append(out, quoted{texts, i + n, i})
				i += n
				boundary = false
				continue
			}
		}
		boundary = strings.ContainsRune(" \t([{=:,<>：\u00a0", r)
		i += size
	}
	return out
}

// quotedAt reads the quoted name at the beginning of s, whose first rune is
// opener. It returns n = 0 if the name does not end.
func quotedAt(s string, opener rune, size int) (texts []string, n int) {
	if opener == '\'' {
		return shellWord(s)
	}
	body := s[size:]
	end := -1
	for i, r := range body {
		if strings.ContainsRune(closers[opener], r) && !strings.HasSuffix(body[:i], `\`) {
			end, n = i, size+i+utf8.RuneLen(r)
			break
		}
	}
	if end < 0 {
		return nil, 0
	}
	body = body[:end]
	if opener == '«' {
		body = strings.Trim(body, " \u00a0\u202f") // French sets spaces inside
	}
	texts = meanings(body)
	if opener >= utf8.RuneSelf { // the locale style of coreutils, which always escapes
		slices.Reverse(texts)
	}
	return texts, n
}

// shellWord reads a name in the shell quoting of coreutils: '…' literally,
// continued by $'…' with escapes, by \' or by "…".
func shellWord(s string) (texts []string, n int) {
	var b strings.Builder
	plain := true
	for rest := s; ; rest = s[n:] {
		switch {
		case strings.HasPrefix(rest, `$'`) && n > 0:
			end := closingQuote(rest[2:])
			if end < 0 {
				return []string{b.String()}, n
			}
			b.WriteString(unescape(rest[2 : 2+end]))
			n += end + 3
			plain = false
		case strings.HasPrefix(rest, `\'`) && n > 0:
			b.WriteByte('\'')
			n += 2
			plain = false
		case strings.HasPrefix(rest, "'"), strings.HasPrefix(rest, `"`) && n > 0:
			end := strings.IndexByte(rest[1:], rest[0])
			if end < 0 {
				return []string{b.String()}, n
			}
			b.WriteString(rest[1 : 1+end])
			n += end + 2
		default:
			if plain {
				return meanings(b.String()), n
			}
			return []string{b.String()}, n
		}
	}
}

// closingQuote returns the offset of the first ' in s without a backslash
// before it, or -1.
func closingQuote(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '\'':
			return i
		}
	}
	return -1
}

// meanings returns text as it is and, if it holds backslashes, with its C
// escapes resolved: programs differ in whether they write them.
func meanings(text string) []string {
	if !strings.Contains(text, `\`) {
		return []string{text}
	}
	return []string{text, unescape(text)}
}

// unescape resolves the escapes of C, Python and $'…'. What is no escape is
// kept as it is.
func unescape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] != '\\' || len(s) == 1 {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		if s[1] == '\'' || s[1] == '"' {
			b.WriteByte(s[1])
			s = s[2:]
			continue
		}
		r, multibyte, rest, err := strconv.UnquoteChar(s, 0)
		switch {
		case err != nil:
			b.WriteByte('\\')
			rest = s[1:]
		case multibyte:
			b.WriteRune(r)
		default:
			b.WriteByte(byte(r))
		}
		s = rest
	}
	return b.String()
}
