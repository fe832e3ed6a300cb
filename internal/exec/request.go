package exec

import (
	"time"

	"bashd/internal/sandbox"
)

// Bounds of a request. Sizes in bytes.
const (
	MaxCommandBytes = 1 << 20 // longest command
	MaxStdoutBytes  = 8 << 20 // largest stdoutMaxBytes
	MaxEnvEntry     = 131071  // longest NAME=value: one string of an execve holds 128 KiB with its NUL (MAX_ARG_STRLEN)
	MaxDescription  = 4096    // longest description
	MaxWorkdirBytes = 4096    // longest workdir (PATH_MAX)
	MaxReadBytes    = 1 << 20 // most that one read of a task's output returns, raw, both streams together
)

// Encoding says how the bytes of a stream are put into a result.
type Encoding string

// The encodings of a stream in a result.
const (
	EncodingText   Encoding = "text"   // UTF-8, invalid bytes as U+FFFD
	EncodingBase64 Encoding = "base64" // the bytes as they are
)

// Owner is who a run belongs to: the owner key, 64 hex digits, or empty for
// nobody. It is never a token.
type Owner string

// Caller is on whose behalf a method of the Manager is called. It sees the
// runs of its Owner and those that are nobody's.
type Caller struct {
	Owner Owner
}

// Request is what a caller asks for. Zero values mean "not given"; [Manager.Resolve]
// fills them.
type Request struct {
	Command        string
	Description    string
	Workdir        string            // absolute, or relative to the owner's workspace
	Timeout        *time.Duration    // ≥ 1 ms; capped by the configuration, never refused for being long
	Stdin          []byte            // written, then closed
	HasStdin       bool              // false: the command reads /dev/null
	Env            map[string]string // explicit entries; they win over the scrub
	SandboxMode    sandbox.Mode      // empty: the default mode
	StdoutMaxBytes int               // 0: the configuration's; at most MaxStdoutBytes
	MergeStderr    bool              // both streams through one pipe, as stdout
	Encoding       Encoding          // empty: text
	Session        string            // of the caller; empty: none
	YieldAfter     time.Duration     // of a run: becomes a task when it still runs then; 0: never
	StdinOpen      bool              // of a task: stdin stays open for WriteStdin
	Key            *Key              // nil: none; its Owner and Route are filled in by the Manager
}

// Spec is a Request with nothing left implicit. It is what runs, and it is
// shown to the caller, without the values of Env and without Stdin.
type Spec struct {
	Command        string
	Description    string
	Workdir        string // absolute
	Session        string
	Timeout        time.Duration // 0: none, of tasks only
	Stdin          []byte        // nil in the Spec of a settled run, which keeps no input
	HasStdin       bool
	StdinBytes     int
	Env            map[string]string // the request's entries; of a settled run, without values
	Mode           sandbox.Mode      // required
	Owner          Owner             // required, empty for nobody
	WorkspaceRoot  string            // what workspace-write may write; canonical
	StdoutMaxBytes int
	StderrMaxBytes int
	MergeStderr    bool
	StdinOpen      bool
	Encoding       Encoding
}

// withoutSecrets is the Spec as a settled run keeps it.
func (s Spec) withoutSecrets() Spec {
	names := make(map[string]string, len(s.Env))
	for name := range s.Env {
		names[name] = ""
	}
	s.Env, s.Stdin = names, nil
	return s
}
