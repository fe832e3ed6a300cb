//go:build !amd64

package prober

// legacyProbes are none: this architecture has no older system calls.
func legacyProbes() []probe { return nil }
