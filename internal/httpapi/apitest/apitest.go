// Package apitest holds answers of the HTTP API against the document that
// describes it. It is for tests of any package that talks to the API.
//
// It is strict where the document is: an undocumented status, media type,
// header value or field fails the test. It does not judge requests; tests send
// wrong ones on purpose.
package apitest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

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
	doc := Document(t)
	route, params := find(doc, req)
	if route == nil {
		validateProblem(t, doc, resp, body)
		return
	}
	if req.Method == http.MethodHead && len(body) > 0 {
		t.Errorf("%s %s: an answer to HEAD has a body", req.Method, req.URL.Path)
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 resp.StatusCode,
		Header:                 resp.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if err := openapi3filter.ValidateResponse(t.Context(), input); err != nil {
		t.Errorf("%s %s → %d is not what openapi.yaml promises: %v\n%s", req.Method, req.URL.Path, resp.StatusCode, err, body)
	}
}

func validateProblem(t testing.TB, doc *openapi3.T, resp *http.Response, body []byte) {
	t.Helper()
	if resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d with %q outside of the document's routes", resp.StatusCode, resp.Header.Get("Content-Type"))
		return
	}
	if len(body) == 0 { // HEAD
		return
	}
	response := openapi3.NewResponse().WithDescription("any problem").
		WithContent(openapi3.Content{"application/problem+json": &openapi3.MediaType{Schema: doc.Components.Schemas["Problem"]}})
	operation := openapi3.NewOperation()
	operation.AddResponse(resp.StatusCode, response)
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: http.MethodGet},
			Route:   &routers.Route{Spec: doc, Operation: operation},
		},
		Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
	}
	if err := openapi3filter.ValidateResponse(t.Context(), input); err != nil {
		t.Errorf("not a problem: %v\n%s", err, body)
	}
}

// find returns the operation that the document has for req, nil without one.
func find(doc *openapi3.T, req *http.Request) (*routers.Route, map[string]string) {
	method := req.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for path, item := range doc.Paths.Map() {
		params, ok := match(path, req.URL.Path)
		if operation := item.GetOperation(method); ok && operation != nil {
			return &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: operation}, params
		}
	}
	return nil, nil
}

// match compares a path with a template, segment by segment. A parameter of a
// closed set, such as {stream}, matches any segment: 404 is documented there.
func match(template, path string) (params map[string]string, ok bool) {
	want, have := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	params = make(map[string]string)
	for i, segment := range want {
		if name, isParam := strings.CutPrefix(segment, "{"); isParam {
			params[strings.TrimSuffix(name, "}")] = have[i]
		} else if segment != have[i] {
			return nil, false
		}
	}
	return params, true
}
