package output

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

func TestAppendText(t *testing.T) {
	const bad = replacement
	for _, tt := range []struct {
		in       string
		want     string
		consumed int // without final
		final    string
	}{
		{"", "", 0, ""},
		{"plain\x00\r\n", "plain\x00\r\n", 8, "plain\x00\r\n"},
		{"häß€😀", "häß€😀", 12, "häß€😀"},
		{bad, bad, 3, bad},
		{"a\xC3", "a", 1, "a" + bad},
		{"a\xE2\x82", "a", 1, "a" + bad},
		{"a\xF0\x9F\x98", "a", 1, "a" + bad},
		{"\x80", bad, 1, bad},
		{"\xC0\x80", bad + bad, 2, bad + bad},                 // overlong
		{"\xE0\x80\x80", bad + bad + bad, 3, bad + bad + bad}, // overlong
		{"\xED\xA0\x80", bad + bad + bad, 3, bad + bad + bad}, // surrogate
		{"\xF4\x90\x80\x80", strings.Repeat(bad, 4), 4, strings.Repeat(bad, 4)},
		{"\xF5\x80", bad + bad, 2, bad + bad},
		{"\xFF", bad, 1, bad},
		{"\xE2\x82x", bad + "x", 3, bad + "x"},                // a maximal subpart of two
		{"\xF0\x9F\x98x", bad + "x", 4, bad + "x"},            // of three
		{"\xE2\x82\xE2\x82", bad, 2, bad + bad},               // the second one may still be completed
		{"\xF0\x80\x80", bad + bad + bad, 3, bad + bad + bad}, // no character begins so
	} {
		out, n := AppendText([]byte(">"), []byte(tt.in), false)
		if string(out) != ">"+tt.want || n != tt.consumed {
			t.Errorf("%q: %q, %d consumed; want %q, %d", tt.in, out, n, tt.want, tt.consumed)
		}
		out, n = AppendText(nil, []byte(tt.in), true)
		if string(out) != tt.final || n != len(tt.in) {
			t.Errorf("%q, final: %q, %d consumed; want %q", tt.in, out, n, tt.final)
		}
	}
}

// feed passes in to AppendText in pieces of the given sizes, cycled, as readers do.
func feed(in []byte, sizes []byte) []byte {
	var out, rest []byte
	for i := 0; len(in) > 0; i++ {
		n := len(in)
		if len(sizes) > 0 {
			n = min(n, int(sizes[i%len(sizes)])%16+1)
		}
		rest, in = append(rest, in[:n]...), in[n:]
		var used int
		out, used = AppendText(out, rest, false)
		rest = rest[used:]
	}
	out, _ = AppendText(out, rest, true)
	return out
}

func FuzzAppendText(f *testing.F) {
	f.Add([]byte("häß€😀\x00"), []byte{0, 1, 2})
	f.Add([]byte("\xF0\x9F\x98x\xE2\x82\xE2\x82\xED\xA0\x80\xF4\x90"), []byte{0})
	f.Add([]byte("\xC0\x80\xFF\xFE\xF5\x80\xE0\x80\x80\xEF\xBF\xBD"), []byte{3})
	f.Fuzz(func(t *testing.T, in, sizes []byte) {
		whole, n := AppendText(nil, in, true)
		if n != len(in) || !utf8.Valid(whole) {
			t.Fatalf("%q: consumed %d, text %q", in, n, whole)
		}
		want, err := unicode.UTF8.NewDecoder().Bytes(in)
		if err != nil || !bytes.Equal(whole, want) {
			t.Fatalf("%q: %q, want %q (%v)", in, whole, want, err)
		}
		if split := feed(in, sizes); !bytes.Equal(split, whole) {
			t.Fatalf("%q in pieces: %q, in one: %q", in, split, whole)
		}
		_, n = AppendText(nil, in, false)
		if left := len(in) - n; left > 3 || left > 0 && utf8.FullRune(in[n:]) {
			t.Fatalf("%q: %q left unconsumed", in, in[n:])
		}
	})
}

// TestTextOfEveryCut: cut anywhere, text is exactly the characters that are whole.
func TestTextOfEveryCut(t *testing.T) {
	const s = "aä€😀\x00Ωb𝄞"
	for i := range len(s) {
		boundary := i
		for boundary < len(s) && !utf8.RuneStart(s[boundary]) {
			boundary++
		}
		if n := TrimTail([]byte(s[i:])); n != boundary-i {
			t.Errorf("cut at %d: %d left out, want %d", i, n, boundary-i)
		}
		if got := Text([]byte(s[i:]), true); got != s[boundary:] {
			t.Errorf("cut at %d: %q, want %q", i, got, s[boundary:])
		}
	}
}

func TestTextEdges(t *testing.T) {
	for _, tt := range []struct {
		tail      string
		truncated bool
		want      string
	}{
		{"", true, ""},
		{"\x80\x80", true, ""},
		{"\x80\x80\x80\x80a", true, replacement + "a"}, // no cut leaves four
		{"\xFFa", true, replacement + "a"},
		{"\x80a", false, replacement + "a"}, // not cut: the stream is like that
		{"a\xE2\x82", false, "a" + replacement},
	} {
		if got := Text([]byte(tt.tail), tt.truncated); got != tt.want {
			t.Errorf("Text(%q, %v) = %q, want %q", tt.tail, tt.truncated, got, tt.want)
		}
	}
}

func BenchmarkAppendText(b *testing.B) {
	for name, unit := range map[string]string{"ascii": "0123456789abcdef", "mixed": "Grüße, 世界 😀 ", "binary": "\xFF\x80\x00a"} {
		in := []byte(strings.Repeat(unit, 64<<10/len(unit)))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			var out []byte
			for b.Loop() {
				out, _ = AppendText(out[:0], in, false)
			}
		})
	}
}
