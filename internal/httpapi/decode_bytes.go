package httpapi

import (
	"encoding/base64"
	"encoding/json"
)

// textBytes returns a decoder for the bytes of a text, which may hold any character: stdin is bytes.
func textBytes(to *[]byte) decoder {
	return func(name string, value json.RawMessage, errs *fieldErrors) {
		if s, ok := asString(name, value, errs); ok {
			*to = []byte(s)
		}
	}
}

// base64Bytes returns a decoder for padded standard base64; line breaks in it, as base64(1) makes
// them, are skipped.
func base64Bytes(to *[]byte) decoder {
	return func(name string, value json.RawMessage, errs *fieldErrors) {
		s, ok := asString(name, value, errs)
		if !ok {
			return
		}
		var err error
		if *to, err = base64.StdEncoding.Strict().DecodeString(s); err != nil {
			errs.add(name, "must be standard base64 with padding")
		}
	}
}

// marked makes decoders note in given which fields came.
func marked(fields map[string]decoder, given map[string]bool) map[string]decoder {
	for name, decode := range fields {
		fields[name] = func(n string, value json.RawMessage, errs *fieldErrors) {
			given[name] = true
			decode(n, value, errs)
		}
	}
	return fields
}
