package httpapi

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// stringValue returns a decoder for a string.
func stringValue(to *string) decoder {
	return func(name string, value json.RawMessage, errs *fieldErrors) {
		if s, ok := asString(name, value, errs); ok {
			*to = s
		}
	}
}

// chosenValue returns a decoder for a string whose absence means the default;
// an empty one must not come to mean the same.
func chosenValue[S ~string](to *S) decoder {
	return func(name string, value json.RawMessage, errs *fieldErrors) {
		s, ok := asString(name, value, errs)
		switch {
		case !ok:
		case s == "":
			errs.add(name, "must not be empty; leave it out instead")
		default:
			*to = S(s)
		}
	}
}

func asString(name string, value json.RawMessage, errs *fieldErrors) (s string, ok bool) {
	if json.Unmarshal(value, &s) != nil {
		errs.add(name, "must be a string, not %s", kindOf(value))
		return "", false
	}
	return s, true
}

func boolValue(to *bool) decoder {
	return func(name string, value json.RawMessage, errs *fieldErrors) {
		if json.Unmarshal(value, to) != nil {
			errs.add(name, "must be true or false, not %s", kindOf(value))
		}
	}
}

// intValue returns a decoder for an integer of at least 1. It hands on what
// is too large for an int64 as the largest one.
func intValue(set func(n int64)) decoder {
	return func(name string, value json.RawMessage, errs *fieldErrors) {
		if kindOf(value) != "number" {
			errs.add(name, "must be an integer, not %s", kindOf(value))
			return
		}
		n, ok := jsonInteger(string(value))
		if !ok || n < 1 {
			errs.add(name, "must be an integer of at least 1")
			return
		}
		set(n)
	}
}

// jsonInteger returns the value of a JSON number that is an integer, however
// it is written: JSON knows no integers, so 1000, 1e3 and 1000.0 are one number.
// Values beyond an int64 saturate; they never wrap. literal is valid JSON.
//
// It works on the digits, since 1e999999999 must not cost memory and a float64
// would round 9007199254740993.
func jsonInteger(literal string) (n int64, ok bool) {
	unsigned, negative := strings.CutPrefix(literal, "-")
	mantissa, exponent := unsigned, ""
	if i := strings.IndexAny(unsigned, "eE"); i >= 0 {
		mantissa, exponent = unsigned[:i], unsigned[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	// The number is 0.digits × 10^point.
	point := saturatedAtoi(exponent) + len(digits) - len(fraction)
	digits = strings.TrimRight(digits, "0")
	switch {
	case digits == "":
		return 0, true
	case len(digits) > point:
		return 0, false // digits behind the point are left
	case point > 18: // 10^18 fits, 10^19 does not
		n = math.MaxInt64
	default:
		n, _ = strconv.ParseInt(digits+strings.Repeat("0", point-len(digits)), 10, 64)
	}
	if negative {
		n = -n
	}
	return n, true
}

// saturatedAtoi bounds an exponent to what no literal can make up for: bodies
// are shorter than that.
func saturatedAtoi(s string) int {
	const bound = 1 << 40
	n, err := strconv.ParseInt(s, 10, 64)
	if s == "" {
		return 0
	}
	if err != nil && strings.HasPrefix(s, "-") {
		return -bound
	}
	if err != nil {
		return bound
	}
	return int(min(max(n, -bound), bound))
}
