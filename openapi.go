// Package bashd holds what lies at the root of the repository and is needed
// inside the binary: the description of the HTTP API. There is no other code
// here; the program is in cmd/server.
package bashd

import _ "embed"

// OpenAPI is openapi.yaml, the document that describes the HTTP API. It must
// not be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
