//go:build !amd64

package sandbox

// Newer architectures have the calls relative to a directory only.
var (
	archModeCalls []modeCall
	archOpenCalls []openCall
)
