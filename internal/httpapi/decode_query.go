package httpapi

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// checkQuery refuses a query that is malformed or holds a parameter that is
// not in known. Non-API routes are held to it too: none takes a parameter.
func checkQuery(r *http.Request, known []string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query", "is malformed")
	}
	var errs fieldErrors
	for name := range values {
		if !slices.Contains(known, name) {
			errs.add(name, "unknown query parameter")
		}
	}
	return errs.err()
}

// oneQuery returns the only value of a query parameter, or "" without one.
func oneQuery(r *http.Request, name string, errs *fieldErrors) string {
	switch values := r.URL.Query()[name]; {
	case len(values) > 1:
		errs.add(name, "must be given once")
	case len(values) == 1 && values[0] == "":
		errs.add(name, "must not be empty; leave it out instead")
	case len(values) == 1:
		return values[0]
	}
	return ""
}

// intQuery returns the integer that a query parameter holds, or absent without one. Values beyond
// an int64 count as the largest one; with most at math.MaxInt64 there is no value too large.
func intQuery(r *http.Request, name string, least, most, absent int64, errs *fieldErrors) int64 {
	v := oneQuery(r, name, errs)
	if v == "" {
		return absent
	}
	u, err := strconv.ParseUint(v, 10, 64) // digits only: no sign, no space
	n := int64(min(u, math.MaxInt64))
	if err == nil || errors.Is(err, strconv.ErrRange) {
		if n >= least && n <= most {
			return n
		}
	}
	if most == math.MaxInt64 {
		errs.add(name, "must be an integer of at least %d", least)
	} else {
		errs.add(name, "must be an integer from %d to %d", least, most)
	}
	return absent
}
