package output

import "unicode/utf8"

// replacement is U+FFFD in UTF-8.
const replacement = "\uFFFD"

// AppendText appends src to dst as valid UTF-8 and returns the extended slice
// and how many bytes of src it used. Each maximal subpart of an ill-formed
// sequence becomes one U+FFFD, as the WHATWG Encoding Standard has it; NUL stays.
//
// A character that src begins and does not end is left unconsumed, at most 3
// bytes, for the caller to pass again before what follows. With final nothing
// follows: it becomes one U+FFFD and everything is consumed. So the text does not
// depend on how a stream was split.
func AppendText(dst, src []byte, final bool) (out []byte, consumed int) {
	valid := 0 // src[valid:i] is valid and not copied yet
	i := 0
	for i < len(src) {
		if src[i] < utf8.RuneSelf {
			i++
			continue
		}
		n, complete := sequence(src[i:])
		if complete {
			i += n
			continue
		}
		dst = append(dst, src[valid:i]...)
		if i+n == len(src) && !final && prefix(src[i]) {
			return dst, i
		}
		dst = append(dst, replacement...)
		i += n
		valid = i
	}
	return append(dst, src[valid:]...), len(src)
}

// sequence returns the length of the character at the start of p, or with
// complete false that of the maximal subpart there: the longest prefix that
// some continuation would make a character, at least 1.
func sequence(p []byte) (n int, complete bool) {
	if r, size := utf8.DecodeRune(p); r != utf8.RuneError || size > 1 {
		return size, true
	}
	if !prefix(p[0]) {
		return 1, false
	}
	lo, hi := second(p[0])
	for n = 1; n < len(p) && n < 4 && lo <= p[n] && p[n] <= hi; n++ {
		lo, hi = 0x80, 0xBF
	}
	return n, false
}

// prefix tells whether b can begin a character of more than one byte.
func prefix(b byte) bool { return 0xC2 <= b && b <= 0xF4 }

// second returns the range of a byte after lead: narrower than that of other
// continuation bytes where it would make an overlong form, a surrogate or a
// value past U+10FFFF (Unicode, table 3-7).
func second(lead byte) (lo, hi byte) {
	switch lead {
	case 0xE0:
		return 0xA0, 0xBF
	case 0xED:
		return 0x80, 0x9F
	case 0xF0:
		return 0x90, 0xBF
	case 0xF4:
		return 0x80, 0x8F
	}
	return 0x80, 0xBF
}

// TrimTail returns how many bytes at the start of a truncated tail to leave out
// so that it begins on a character boundary: the continuation bytes there, at
// most 3, as no cut leaves more of a character. What was before the cut is not known, so
// of ill-formed output this may leave out bytes that belonged to no character;
// nothing but continuation bytes is ever left out.
func TrimTail(p []byte) int {
	n := 0
	for n < min(len(p), utf8.UTFMax-1) && !utf8.RuneStart(p[n]) {
		n++
	}
	return n
}

// Text returns the tail of a sealed stream as text that begins and ends on
// character boundaries. truncated says that tail is not the whole stream.
func Text(tail []byte, truncated bool) string {
	if truncated {
		tail = tail[TrimTail(tail):]
	}
	if utf8.Valid(tail) {
		return string(tail)
	}
	text, _ := AppendText(nil, tail, true)
	return string(text)
}
