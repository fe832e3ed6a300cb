// Package apitest holds answers of the HTTP API against the document that
// describes it. It is for tests of any package that talks to the API.
//
// It is strict where the document is: an undocumented status, media type,
// header value or field fails the test. It does not judge requests; tests send
// wrong ones on purpose.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"bashd"
)

var load = sync.OnceValues(func() (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(bashd.OpenAPI)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

// Document returns the document, which is valid in itself, examples included.
func Document(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := load()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return doc
}

// Operations returns every "METHOD /path" that the document promises: those
// it lists, and HEAD where there is GET.
func Operations(t testing.TB) []string {
	var list []string
	for path, item := range Document(t).Paths.Map() {
		for method := range item.Operations() {
			list = append(list, method+" "+path)
			if method == http.MethodGet {
				list = append(list, http.MethodHead+" "+path)
			}
		}
	}
	return list
}

// Validate fails t unless the answer resp, with its body read, is one that the
// document promises for req. Where the document has no such path or method,
// the answer must be a problem; preflights have none of this.
func Validate(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	if req.Method == http.MethodOptions && resp.StatusCode == http.StatusNoContent {
		return
	}
	var err error
	if o := find(Document(t), req); o != nil {
		err = o.validate(t, req, resp, body)
	} else {
		err = validateProblem(t, req, resp, body)
	}
	if err != nil {
		t.Errorf("%s %s → %d is not what openapi.yaml promises: %v\n%s", req.Method, req.URL.Path, resp.StatusCode, err, body)
	}
}

// operation is one method of one path of the document.
type operation struct {
	*openapi3.Operation
	place place
}

// find returns the operation that the document has for req, nil without one.
func find(doc *openapi3.T, req *http.Request) *operation {
	method := req.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for path, item := range doc.Paths.Map() {
		if o := item.GetOperation(method); o != nil && match(path, req.URL.EscapedPath()) {
			return &operation{o, place("#").at("paths", path, strings.ToLower(method))}
		}
	}
	return nil
}

func (o *operation) validate(t testing.TB, req *http.Request, resp *http.Response, body []byte) error {
	response := o.Responses.Status(resp.StatusCode)
	if response == nil {
		return errors.New("the status is not documented")
	}
	p := o.place.at("responses", strconv.Itoa(resp.StatusCode)).or(response.Ref)
	if err := checkHeaders(t, p, response.Value.Headers, resp.Header); err != nil {
		return err
	}
	if req.Method == http.MethodHead && len(body) > 0 {
		return errors.New("an answer to HEAD has a body")
	}
	if len(response.Value.Content) == 0 {
		if len(body) > 0 {
			return errors.New("there is a body")
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content := response.Value.Content[kind]
	if err != nil || content == nil {
		return fmt.Errorf("the media type %q is not documented", resp.Header.Get("Content-Type"))
	}
	switch p = p.at("content", kind, "schema"); {
	case content.Schema == nil || req.Method == http.MethodHead:
		return nil
	case strings.HasSuffix(kind, "json"):
		return checkJSON(t, p, body)
	}
	return check(t, p, string(body))
}

// checkHeaders looks at the fields that a response documents; others may be there too.
func checkHeaders(t testing.TB, p place, documented openapi3.Headers, got http.Header) error {
	for name, header := range documented {
		values := got.Values(name)
		switch {
		case len(values) > 1:
			return fmt.Errorf("%s is there %d times", name, len(values))
		case len(values) == 0 && header.Value.Required:
			return fmt.Errorf("%s is missing", name)
		case len(values) == 0:
			continue
		}
		schema := p.at("headers", name).or(header.Ref).at("schema")
		err := check(t, schema, values[0])
		if header.Value.Schema.Value.Type.Is("integer") {
			err = checkJSON(t, schema, []byte(values[0]))
		}
		if err != nil {
			return fmt.Errorf("%s: %q: %w", name, values[0], err)
		}
	}
	return nil
}

func validateProblem(t testing.TB, req *http.Request, resp *http.Response, body []byte) error {
	if resp.Header.Get("Content-Type") != "application/problem+json" {
		return fmt.Errorf("%q outside of the document's routes", resp.Header.Get("Content-Type"))
	}
	if req.Method == http.MethodHead {
		return nil
	}
	return checkJSON(t, place("#").at("components", "schemas", "Problem"), body)
}

// match compares a path, as it was sent, with a template, segment by segment. A parameter of a
// closed set, such as {stream}, matches any segment: 404 is documented there.
func match(template, path string) bool {
	want, have := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i, segment := range want {
		if !strings.HasPrefix(segment, "{") && segment != have[i] {
			return false
		}
	}
	return true
}
