package httpapi

import (
	"mime"
	"strconv"
	"strings"
)

// preferred returns the offer that the Accept header fields like best; of
// equals the earlier one. Where they like none, or are malformed, it is the
// first: this API has no 406.
func preferred(accept []string, offers ...string) string {
	best, bestQ := offers[0], 0.0
	for _, offer := range offers {
		if q := quality(accept, offer); q > bestQ {
			best, bestQ = offer, q
		}
	}
	return best
}

// quality is what the most specific range that matches offer gives it
// (RFC 9110, 12.5.1); 0 without one.
func quality(accept []string, offer string) float64 {
	kind, _, _ := strings.Cut(offer, "/")
	specificity := map[string]int{"*/*": 1, kind + "/*": 2, offer: 3}
	var q float64
	var found int
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		mediaRange, params, err := mime.ParseMediaType(item)
		if err != nil || specificity[mediaRange] <= found {
			continue
		}
		weight, err := weightOf(params)
		if err != nil {
			continue
		}
		q, found = weight, specificity[mediaRange]
	}
	return q
}

func weightOf(params map[string]string) (float64, error) {
	v, ok := params["q"]
	if !ok {
		return 1, nil
	}
	q, err := strconv.ParseFloat(v, 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 0, strconv.ErrRange
	}
	return q, nil
}
