package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"bashd/internal/reclaim"
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
	entries, exposed, err := t.read()
	if err := errors.Join(err, exposed); err != nil {
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
// how an operator locks everybody out. With an error no token and no role comes in. A file that cannot be read or
// understood changes nothing then; of one that others may write, tokens and roles that are gone are gone all the
// same: whoever spoils the mode of the file, as a command of the same user can, does not keep a token by that.
func (t *Tokens) Reload() (removed int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries, exposed, err := t.read()
	if err != nil {
		return 0, err
	}
	before := *t.set.Load()
	if exposed != nil {
		entries = common(before, entries)
	}
	kept := make(map[[sha256.Size]byte]bool, len(entries))
	for _, e := range entries {
		kept[e.hash] = true
	}
	for _, e := range before {
		if !kept[e.hash] {
			removed++
		}
	}
	t.set.Store(&entries)
	return removed, exposed
}

// common are the tokens that are in both, with the roles that they have in both.
func common(before, now []entry) (both []entry) {
	for _, old := range before {
		i := slices.IndexFunc(now, func(e entry) bool { return e.hash == old.hash && e.identity.Name == old.identity.Name })
		if i < 0 {
			continue
		}
		e := old
		e.identity.Roles = slices.DeleteFunc(slices.Clone(old.identity.Roles), func(r Role) bool { return !now[i].identity.Has(r) })
		if len(e.identity.Roles) > 0 {
			both = append(both, e)
		}
	}
	return both
}

// Guard undoes what a command of this process's user can do to the modes of the file and the directories above
// it, where they are this user's: it takes the permission to write the file back from group and others, and gives that to
// read it back to the owner. mended says that it had to.
func (t *Tokens) Guard() (mended bool, err error) {
	return t.mend(writableByOthers)
}

// mend makes the file readable to its owner, and takes those permissions from it.
func (t *Tokens) mend(take fs.FileMode) (mended bool, err error) {
	way, err := reclaim.Way(filepath.Dir(t.path))
	if mended = len(way) > 0; err != nil {
		return mended, withoutPath(err)
	}
	st, err := os.Stat(t.path)
	if err != nil {
		return mended, withoutPath(err)
	}
	want := st.Mode().Perm()&^take | 0o400
	if !st.Mode().IsRegular() || want == st.Mode().Perm() || !reclaim.Owned(st) {
		return mended, nil
	}
	return true, withoutPath(os.Chmod(t.path, want))
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

// read returns the tokens of the file. exposed is not nil where others may write it.
func (t *Tokens) read() (entries []entry, exposed, err error) {
	content, err := readFile(t.path)
	if errors.Is(err, fs.ErrPermission) {
		// A file that its own user may not read is one whose mode a command has taken. That is no way to keep a token, nor
		// to keep the service from starting.
		if mended, _ := t.mend(0); mended {
			content, err = readFile(t.path)
		}
	}
	if e, ok := errors.AsType[*exposedError](err); ok {
		exposed, err = e, nil
	}
	if err != nil {
		return nil, nil, err
	}
	entries, err = parse(content)
	return entries, exposed, err
}
