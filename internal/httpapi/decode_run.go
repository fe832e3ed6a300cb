package httpapi

import (
	"encoding/json"
	"math"
	"time"

	"bashd/internal/exec"
)

// requestDecoder holds what the fields of a command's request become.
type requestDecoder struct {
	req         exec.Request
	stdinText   []byte
	stdinBase64 []byte
	given       map[string]bool
}

// decodeRun decodes the body of POST /v1/runs. All that is wrong with its
// fields is reported together: what JSON can tell is found here, the rest by
// [exec.Check]. It caps nothing and fills in nothing.
func decodeRun(body []byte) (exec.Request, error) {
	return decodeRequest(body, func(d *requestDecoder, fields map[string]decoder) {
		fields["yieldAfterMs"] = intValue(func(n int64) { d.req.YieldAfter = milliseconds(n) })
		fields["stdinOpen"] = belongsTo("POST /v1/tasks")
	})
}

// decodeTask decodes the body of POST /v1/tasks, in the same way.
func decodeTask(body []byte) (exec.Request, error) {
	return decodeRequest(body, func(d *requestDecoder, fields map[string]decoder) {
		fields["stdinOpen"] = boolValue(&d.req.StdinOpen)
		fields["yieldAfterMs"] = belongsTo("POST /v1/runs")
	})
}

func decodeRequest(body []byte, addFields func(*requestDecoder, map[string]decoder)) (exec.Request, error) {
	d := &requestDecoder{given: make(map[string]bool)}
	fields := d.fields()
	addFields(d, fields)
	var errs fieldErrors
	if err := decodeObject(body, marked(fields, d.given), &errs); err != nil {
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

// fields are those that runs and tasks have in common.
func (d *requestDecoder) fields() map[string]decoder {
	return map[string]decoder{
		"command":        stringValue(&d.req.Command),
		"description":    stringValue(&d.req.Description),
		"workdir":        chosenValue(&d.req.Workdir),
		"timeoutMs":      intValue(d.timeout),
		"stdin":          textBytes(&d.stdinText),
		"stdinBase64":    base64Bytes(&d.stdinBase64),
		"env":            d.env,
		"sandboxMode":    chosenValue(&d.req.SandboxMode),
		"stdoutMaxBytes": intValue(d.stdoutMaxBytes),
		"mergeStderr":    boolValue(&d.req.MergeStderr),
		"outputEncoding": chosenValue(&d.req.Encoding),
		"session":        notServed,
	}
}

// notServed is for fields that a client may know from elsewhere and would
// rely on: they are told apart from misspelt ones.
func notServed(name string, _ json.RawMessage, errs *fieldErrors) {
	errs.add(name, notAvailable)
}

const notAvailable = "is not available on this server"

// belongsTo is for the fields of the other way to start a command.
func belongsTo(route string) decoder {
	return func(name string, _ json.RawMessage, errs *fieldErrors) {
		errs.add(name, "is for %s only", route)
	}
}

func (d *requestDecoder) checkTogether(errs *fieldErrors) {
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

func (d *requestDecoder) timeout(n int64) { d.req.Timeout = new(milliseconds(n)) }

// milliseconds saturates: what no Duration holds is far beyond every cap anyway.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func (d *requestDecoder) stdoutMaxBytes(n int64) {
	d.req.StdoutMaxBytes = int(min(n, exec.MaxStdoutBytes+1)) // what is too much stays too much
}

// env reports each bad entry as env.NAME, and never a value.
func (d *requestDecoder) env(name string, value json.RawMessage, errs *fieldErrors) {
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
