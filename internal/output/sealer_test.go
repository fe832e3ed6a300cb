package output

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var testKey = bytes.Repeat([]byte{7}, KeyBytes)

func newSealer(tb testing.TB, key []byte) *Sealer {
	tb.Helper()
	s, err := NewSealer(key)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestSealerRoundTrip(t *testing.T) {
	s := newSealer(t, testKey)
	for _, nums := range [][]int64{nil, {0}, {1, 2}, {127, 128, math.MaxInt64}, slices.Repeat([]int64{math.MaxInt64}, 8)} {
		token := s.Seal("owner/task", nums...)
		if strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%q is not URL-safe", token)
		}
		if got, err := s.Open("owner/task", token); err != nil || !slices.Equal(got, nums) {
			t.Errorf("%v: %v, %v", nums, got, err)
		}
		for _, scope := range []string{"", "owner/tas", "owner/task2", "other/task"} {
			if _, err := s.Open(scope, token); !errors.Is(err, ErrBadCursor) {
				t.Errorf("opened in scope %q: %v", scope, err)
			}
		}
	}
}

func TestSealerIsStableAcrossRestarts(t *testing.T) {
	// A change of this token turns the cursors that clients hold into errors: it
	// needs a new version that still opens the old one.
	const want = "AQCAASv-6Fy5lJciOoOBlisFg8g"
	if got := newSealer(t, testKey).Seal("scope", 0, 128); got != want {
		t.Errorf("token is %s, want %s", got, want)
	}
	other := bytes.Clone(testKey)
	other[31]++
	if _, err := newSealer(t, other).Open("scope", want); !errors.Is(err, ErrBadCursor) {
		t.Errorf("opened with another key: %v", err)
	}
}

// TestSealerRefusesEveryAlteration changes each character to every other one,
// cuts at each place, and adds what base64 decoders tend to overlook.
func TestSealerRefusesEveryAlteration(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=\n\r "
	s := newSealer(t, testKey)
	for _, nums := range [][]int64{{}, {1}, {1, 300}, {5, 6, 7}} { // every length modulo 3
		token := s.Seal("x", nums...)
		refused := func(forged string) {
			if _, err := s.Open("x", forged); !errors.Is(err, ErrBadCursor) {
				t.Errorf("%q opened as well as %q", forged, token)
			}
		}
		for i := range token {
			refused(token[:i])
			for _, c := range alphabet {
				if byte(c) != token[i] {
					refused(token[:i] + string(c) + token[i+1:])
				}
				refused(token[:i] + string(c) + token[i:])
			}
		}
		for _, c := range alphabet {
			refused(token + string(c))
		}
		refused(token + strings.Repeat("A", 1000))
	}
}

// TestSealerKeepsNumbersAndScopeApart: no bytes may move from one to the other.
func TestSealerKeepsNumbersAndScopeApart(t *testing.T) {
	s := newSealer(t, testKey)
	mac := func(scope string, nums ...int64) string {
		raw, err := base64.RawURLEncoding.DecodeString(s.Seal(scope, nums...))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw[len(raw)-macBytes:])
	}
	if mac("\x05x", 1) == mac("x", 1, 5) || mac("x", 1, 2) == mac("x", 2, 1) {
		t.Error("two meanings have one MAC")
	}
}

func TestSealerMisuse(t *testing.T) {
	if _, err := NewSealer(testKey[1:]); err == nil || strings.Contains(err.Error(), "\x07") {
		t.Errorf("short key: %v", err)
	}
	s := newSealer(t, testKey)
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(text, "7, 7") || strings.Contains(text, "7 7") || strings.Contains(text, "0x7, 0x7") {
		t.Errorf("printing shows the key: %s", text)
	}
	for _, nums := range [][]int64{{-1}, make([]int64, 9)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("sealed %v", nums)
				}
			}()
			s.Seal("x", nums...)
		}()
	}
}

func FuzzSealerOpen(f *testing.F) {
	s := newSealer(f, testKey)
	for _, nums := range [][]int64{nil, {0}, {1, math.MaxInt64}} {
		f.Add("scope", s.Seal("scope", nums...))
	}
	f.Add("scope", "AQ\n")
	f.Add("", base64.RawURLEncoding.EncodeToString(append([]byte{1, 0x80, 0x00}, make([]byte, 16)...)))
	f.Fuzz(func(t *testing.T, scope, token string) {
		nums, err := s.Open(scope, token)
		if err != nil {
			if !errors.Is(err, ErrBadCursor) || nums != nil {
				t.Fatalf("%v, %v", nums, err)
			}
			return
		}
		if s.Seal(scope, nums...) != token {
			t.Fatalf("%q opens as %v, which is another token", token, nums)
		}
	})
}

func BenchmarkSealer(b *testing.B) {
	s := newSealer(b, testKey)
	token := s.Seal("owner/task", 123456, 7890)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Open("owner/task", token); err != nil {
			b.Fatal(err)
		}
	}
}
