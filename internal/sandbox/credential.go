package sandbox

import "bashd/internal/sandbox/denial"

// Credential is a user whom commands run as, without supplementary groups. Neither id is 0.
type Credential struct{ UID, GID uint32 }

// Do runs f with the permissions on files that commands have that run as c: no supplementary groups, no capability. That is on a thread of
// its own, so f must not start goroutines that look at files. An error means that this process cannot act as c, and f did not run. Only
// for a process that is root.
func (c Credential) Do(f func()) error { return denial.As(denial.Cred{UID: c.UID, GID: c.GID}, f) }
