package exec

import (
	"errors"
	"time"
	"unicode/utf8"
)

// Store keeps what must outlive the process. Each method is one transaction: when it
// returns nil, what it promises has happened and survives the death of this process; with an
// error it may or may not have happened, and the same call may be made again.
// A Store is safe for concurrent use. It keeps no value of an environment variable and no stdin: the
// Specs that it is given hold neither.
//
// Package store is the implementation, storetest the suite that every implementation has to pass.
type Store interface {
	// Insert adds the record of a command that was admitted. With a key it also takes the
	// key, in the same transaction, and both survive a loss of power. Errors: ErrKeyTaken, with nothing done.
	Insert(r Record, key *Key) error
	// Yield turns a running foreground run into a background task.
	Yield(id string, at YieldPoint) error
	// Settle replaces the facts of a record, its output and Bytes; the read cursor and Reported stay. A
	// record that is terminal already, or unknown, is left as it is, without error.
	Settle(r Record) error
	// Advance moves the consuming cursor of a task forward, never back, and sets Reported, never unsets it.
	Advance(id string, stdout, stderr int64, reported bool) error
	// Get returns one record, whole. Error: ErrNoRecord.
	Get(id string) (Record, error)
	// List returns terminal records, newest first, without collected output; of a command only the first
	// ListedCommandBytes are there, and of its Spec what List's caller needs not is not.
	List(q Query) ([]Record, error)
	// Unsettled returns every record that is not terminal, oldest first, with empty output.
	Unsettled() ([]Record, error)
	// Delete removes records with their output and keys. Unknown ids are no error.
	Delete(ids ...string) error

	// LookupKey tells what a key was used for. Error: ErrNoRecord.
	LookupKey(k Key) (KeyUse, error)
	// ExpireKeys removes the keys taken before t.
	ExpireKeys(t time.Time) error

	// Usage sums up the terminal records of each owner, most Bytes first.
	Usage() ([]OwnerUsage, error)
	// Oldest returns terminal records that ended first, at most limit; of one owner, or with nil of all.
	Oldest(owner *Owner, limit int) ([]Stored, error)
	// LastSeq is the greatest Seq of any record, 0 without one.
	LastSeq() (int64, error)
	// Probe commits a write that changes nothing, to see whether the disk takes it.
	Probe() error
}

// Errors of a Store, besides those of its medium.
var (
	ErrNoRecord = errors.New("no such record")
	ErrKeyTaken = errors.New("the idempotency key is taken")
)

// ListedCommandBytes is how much of a command a list has, in bytes, cut at a character boundary: a character more
// than clients are shown, so that a cut can be told from an end.
const ListedCommandBytes = 4<<10 + utf8.UTFMax

// Record is a command as a Store keeps it.
type Record struct {
	Run Run
	Seq int64 // order of admission, from 1; unique
	// Bytes is what it occupies: output files, collected output, command. Of terminal records.
	Bytes int64
	// ReadStdout and ReadStderr are where the next consuming read begins.
	ReadStdout, ReadStderr int64
	// Reported: a caller that consumes has been told a terminal state.
	Reported bool
}

// Query selects terminal records.
type Query struct {
	Owner    Owner // its records and nobody's
	Kind     Kind
	Session  string   // empty: any
	Statuses []Status // empty: any; all terminal
	Before   int64    // only Seq < Before; 0: no bound
	Limit    int      // ≥ 1
}

// Stored names a terminal record and what it occupies.
type Stored struct {
	ID         string
	Owner      Owner
	FinishedAt time.Time
	Bytes      int64
}

// OwnerUsage is what one owner's terminal records occupy.
type OwnerUsage struct {
	Owner   Owner
	Records int64
	Bytes   int64
}

// Key is an idempotency key of a caller.
type Key struct {
	Owner Owner
	Route Kind     // which of the two POSTs
	Name  string   // 1 to MaxKeyBytes visible ASCII characters
	Body  [32]byte // SHA-256 of the request's body; no part of what identifies the key
}

// MaxKeyBytes is the length of an idempotency key, at most.
const MaxKeyBytes = 255

// KeyUse is what a key was used for.
type KeyUse struct {
	ID      string // of the command
	Body    [32]byte
	TakenAt time.Time
}

// YieldPoint is how long the streams were when a run became a task.
type YieldPoint struct {
	Stdout, Stderr int64
}
