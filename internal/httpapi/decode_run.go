package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"time"

	"bashd/internal/exec"
)

// runDecoder holds what the fields of POST /v1/runs become.
type runDecoder struct {
	req         exec.Request
	stdinText   []byte
	stdinBase64 []byte
	given       map[string]bool
}

// decodeRun decodes the body of POST /v1/runs. All that is wrong with its
// fields is reported together: what JSON can tell is found here, the rest by
// [exec.Check]. It caps nothing and fills in nothing.
func decodeRun(body []byte) (exec.Request, error) {
	d := runDecoder{given: make(map[string]bool)}
	var errs fieldErrors
	if err := decodeObject(body, d.fields(), &errs); err != nil {
		return exec.Request{}, err
	}
	d.checkTogether(&errs)
	for _, f := range exec.Check(d.req) {
		if !errs.has(f.Field) {
			errs.add(f.Field, "%s", f.Message)
		}
	}
	if err := errs.err(); err != nil {
		return exec.Request{}, err
	}
	return d.req, nil
}

func (d *runDecoder) fields() map[string]decoder {
	fields := map[string]decoder{
		"command":        stringValue(&d.req.Command),
		"description":    stringValue(&d.req.Description),
		"workdir":        chosenValue(&d.req.Workdir),
		"timeoutMs":      intValue(d.timeout),
		"stdin":          d.textStdin,
		"stdinBase64":    d.base64Stdin,
		"env":            d.env,
		"sandboxMode":    chosenValue(&d.req.SandboxMode),
		"stdoutMaxBytes": intValue(d.stdoutMaxBytes),
		"mergeStderr":    boolValue(&d.req.MergeStderr),
		"outputEncoding": chosenValue(&d.req.Encoding),
		"session":        notServed,
		"yieldAfterMs":   notServed,
	}
	for name, decode := range fields {
		fields[name] = func(n string, value json.RawMessage, errs *fieldErrors) {
			d.given[name] = true
			decode(n, value, errs)
		}
	}
	return fields
}

// notServed is for fields that a client may know from elsewhere and would
// rely on: they are told apart from misspelt ones.
func notServed(name string, _ json.RawMessage, errs *fieldErrors) {
	errs.add(name, "is not available on this server")
}

func (d *runDecoder) checkTogether(errs *fieldErrors) {
	if !d.given["command"] && !errs.has("command") {
		errs.add("command", "is required")
	}
	switch hasText, hasBase64 := d.given["stdin"], d.given["stdinBase64"]; {
	case hasText && hasBase64:
		errs.add("stdinBase64", "must not be given together with stdin")
	case hasText:
		d.req.Stdin, d.req.HasStdin = d.stdinText, true
	case hasBase64:
		d.req.Stdin, d.req.HasStdin = d.stdinBase64, true
	}
}

// timeout saturates: what no Duration holds is far beyond every cap anyway.
func (d *runDecoder) timeout(n int64) {
	timeout := time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	d.req.Timeout = &timeout
}

func (d *runDecoder) stdoutMaxBytes(n int64) {
	d.req.StdoutMaxBytes = int(min(n, exec.MaxStdoutBytes+1)) // what is too much stays too much
}

// textStdin may hold any character: stdin is bytes.
func (d *runDecoder) textStdin(name string, value json.RawMessage, errs *fieldErrors) {
	if s, ok := asString(name, value, errs); ok {
		d.stdinText = []byte(s)
	}
}

// base64Stdin takes padded standard base64; line breaks in it, as base64(1)
// makes them, are skipped.
func (d *runDecoder) base64Stdin(name string, value json.RawMessage, errs *fieldErrors) {
	s, ok := asString(name, value, errs)
	if !ok {
		return
	}
	var err error
	if d.stdinBase64, err = base64.StdEncoding.Strict().DecodeString(s); err != nil {
		errs.add(name, "must be standard base64 with padding")
	}
}

// env reports each bad entry as env.NAME, and never a value.
func (d *runDecoder) env(name string, value json.RawMessage, errs *fieldErrors) {
	if kindOf(value) != "object" {
		errs.add(name, "must be an object of strings, not %s", kindOf(value))
		return
	}
	d.req.Env = make(map[string]string)
	eachMember(value, func(key string, value json.RawMessage, again bool) (more bool) {
		field := name + "." + key
		if again {
			errs.add(field, "is given more than once")
			return !errs.full()
		}
		var s string
		decodeValue(stringValue(&s), field, value, errs)
		d.req.Env[key] = s
		return !errs.full()
	})
}
