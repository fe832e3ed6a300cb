package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"bashd"
)

// place is a JSON pointer into the document, as a reference has it: "#/components/…".
type place string

// at goes down by names, which may hold any character.
func (p place) at(names ...string) place {
	for _, name := range names {
		name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		p += place("/" + url.PathEscape(name))
	}
	return p
}

// or is the place that a reference names, or p without one.
func (p place) or(ref string) place {
	if ref != "" {
		return place(ref)
	}
	return p
}

// schemas compiles each schema of the document once, however many answers are held against it. The
// document is one JSON Schema resource, so that references in it mean what they say.
type schemas struct {
	mu       sync.Mutex // guards compiler, which also keeps what it compiled
	compiler *jsonschema.Compiler
}

const documentURL = "https://bashd.invalid/openapi.json"

var compiled = sync.OnceValues(func() (*schemas, error) {
	var doc any
	if err := yaml.Unmarshal(bashd.OpenAPI, &doc); err != nil {
		return nil, err
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	return &schemas{compiler: c}, c.AddResource(documentURL, doc)
})

// check returns how value, as encoding/json decodes one, is not what the schema at p wants.
func check(t testing.TB, p place, value any) error {
	t.Helper()
	s, err := compiled()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	s.mu.Lock()
	schema, err := s.compiler.Compile(documentURL + string(p))
	s.mu.Unlock()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return schema.Validate(value)
}

// checkJSON is check for the text of a value.
func checkJSON(t testing.TB, p place, text []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return check(t, p, value)
}
