package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"sync"
	"sync/atomic"
)

// Tokens are the API tokens of a file, as it was when it was last read. They are
// safe for concurrent use. Use [Load].
type Tokens struct {
	path string
	mu   sync.Mutex // held while the file is read, so that what was read last counts
	set  atomic.Pointer[[]entry]
}

// Load reads the tokens file at path: a regular file or a symbolic link to one,
// at most 1 MiB, writable by its owner only. It is an error where there is no
// token in it: nobody could call. Errors are one line without a token.
func Load(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	entries, err := t.read()
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("there is no token in it; make one with: bashd token NAME")
	}
	t.set.Store(&entries)
	return t, nil
}

// Reload reads the file again and from then on knows the tokens that are in it now. removed
// says how many it knew that are gone. A file without any token is taken: that is
// how an operator locks everybody out. With an error everything stays as it was.
func (t *Tokens) Reload() (removed int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries, err := t.read()
	if err != nil {
		return 0, err
	}
	kept := make(map[[sha256.Size]byte]bool, len(entries))
	for _, e := range entries {
		kept[e.hash] = true
	}
	for _, e := range *t.set.Swap(&entries) {
		if !kept[e.hash] {
			removed++
		}
	}
	return removed, nil
}

// Len is how many tokens there are.
func (t *Tokens) Len() int { return len(*t.set.Load()) }

// Lookup returns whose token this is; false: nobody's.
//
// It takes the same time whichever token matches, or none: the given one is
// hashed, and the hash compared with every other to its last byte. So the time
// tells neither how near a guess came nor where in the file it is.
func (t *Tokens) Lookup(token string) (Identity, bool) {
	hash := sha256.Sum256([]byte(token))
	entries := *t.set.Load()
	found := -1
	for i := range entries {
		same := subtle.ConstantTimeCompare(hash[:], entries[i].hash[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return Identity{}, false
	}
	return entries[found].identity, true
}

func (t *Tokens) read() ([]entry, error) {
	content, err := readFile(t.path)
	if err != nil {
		return nil, err
	}
	return parse(content)
}
