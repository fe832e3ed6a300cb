package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// runDecoder holds what the fields of POST /v1/runs become.
type runDecoder struct {
	req         exec.Request
	stdinText   []byte
	stdinBase64 []byte
	given       map[string]bool
}

// decodeRun decodes the body of POST /v1/runs. All that is wrong with its
// fields is reported together. It caps nothing and fills in nothing.
func decodeRun(body []byte) (exec.Request, error) {
	d := runDecoder{given: make(map[string]bool)}
	var errs fieldErrors
	if err := decodeObject(body, d.fields(), &errs); err != nil {
		return exec.Request{}, err
	}
	d.checkTogether(&errs)
	if err := errs.err(); err != nil {
		return exec.Request{}, err
	}
	return d.req, nil
}

func (d *runDecoder) fields() map[string]decoder {
	fields := map[string]decoder{
		"command":        d.command,
		"description":    stringValue(&d.req.Description, exec.MaxDescription),
		"workdir":        d.workdir,
		"timeoutMs":      intValue(d.timeout),
		"stdin":          d.textStdin,
		"stdinBase64":    d.base64Stdin,
		"env":            d.env,
		"sandboxMode":    d.sandboxMode,
		"stdoutMaxBytes": intValue(d.stdoutMaxBytes),
		"mergeStderr":    boolValue(&d.req.MergeStderr),
		"outputEncoding": d.outputEncoding,
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

func (d *runDecoder) command(name string, value json.RawMessage, errs *fieldErrors) {
	before := len(errs.list)
	stringValue(&d.req.Command, exec.MaxCommandBytes)(name, value, errs)
	if len(errs.list) == before && strings.TrimSpace(d.req.Command) == "" {
		errs.add(name, "must not be blank")
	}
}

func (d *runDecoder) workdir(name string, value json.RawMessage, errs *fieldErrors) {
	before := len(errs.list)
	stringValue(&d.req.Workdir, exec.MaxWorkdirBytes)(name, value, errs)
	if len(errs.list) == before && d.req.Workdir == "" {
		errs.add(name, "must not be empty; leave it out instead")
	}
}

// timeout saturates: what no Duration holds is far beyond every cap anyway.
func (d *runDecoder) timeout(n int64) (problem string) {
	timeout := time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	d.req.Timeout = &timeout
	return ""
}

func (d *runDecoder) stdoutMaxBytes(n int64) (problem string) {
	if n > exec.MaxStdoutBytes {
		return fmt.Sprintf("must be at most %d", exec.MaxStdoutBytes)
	}
	d.req.StdoutMaxBytes = int(n)
	return ""
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
		switch {
		case again:
			errs.add(field, "is given more than once")
		case !exec.EnvName.MatchString(key):
			errs.add(field, "the name must match %s", exec.EnvName)
		default:
			var s string
			decodeValue(stringValue(&s, max(0, exec.MaxEnvEntry-len(key)-1)), field, value, errs)
			d.req.Env[key] = s
		}
		return !errs.full()
	})
}

func (d *runDecoder) sandboxMode(name string, value json.RawMessage, errs *fieldErrors) {
	s, ok := asString(name, value, errs)
	if !ok {
		return
	}
	if d.req.SandboxMode, ok = sandbox.ParseMode(s); !ok {
		errs.add(name, "must be one of %s, %s, %s", sandbox.ReadOnly, sandbox.WorkspaceWrite, sandbox.FullAccess)
	}
}

func (d *runDecoder) outputEncoding(name string, value json.RawMessage, errs *fieldErrors) {
	s, ok := asString(name, value, errs)
	if !ok {
		return
	}
	switch e := exec.Encoding(s); e {
	case exec.EncodingText, exec.EncodingBase64:
		d.req.Encoding = e
	default:
		errs.add(name, "must be %s or %s", exec.EncodingText, exec.EncodingBase64)
	}
}
