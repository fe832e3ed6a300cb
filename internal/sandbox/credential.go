package sandbox

// Credential is a user whom commands run as, without supplementary groups. Neither id is 0.
type Credential struct{ UID, GID uint32 }
