package exec

import (
	"errors"
	"time"
)

// keyLifetime is how long an idempotency key is remembered at most; it goes with its record before that.
const keyLifetime = 24 * time.Hour

// once begins a command, unless r has a key with which one was begun before: then j is nil, and run is
// the answer to that.
func (m *Manager) once(c Caller, k Kind, r Request) (j *job, run Run, err error) {
	if r.Key == nil {
		j, err = m.begin(c, k, r)
		return j, Run{}, err
	}
	// Requests with the same key wait for each other until it is known whether the first one was admitted: none of
	// them is refused for a place that another one holds.
	same := keyOf(c, k, *r.Key)
	same.Body = [32]byte{} // no part of what identifies the key
	defer m.keys.lock(same)()
	run, replayed, err := m.replay(c, k, *r.Key)
	if replayed || err != nil {
		return nil, run, err
	}
	j, err = m.begin(c, k, r)
	return j, Run{}, err
}

// keyOf completes a key of the request, whose owner and route are ours to say.
func keyOf(c Caller, k Kind, key Key) Key {
	key.Owner, key.Route = c.Owner, k
	return key
}

// replay answers a request whose key was used before; replayed is false where it was not.
func (m *Manager) replay(c Caller, k Kind, key Key) (run Run, replayed bool, err error) {
	use, err := m.archive.lookupKey(keyOf(c, k, key))
	switch {
	case errors.Is(err, ErrNoRecord):
		return Run{}, false, nil
	case err != nil:
		return Run{}, false, errStore("the idempotency key", err)
	case time.Since(use.TakenAt) > keyLifetime:
		if err := m.archive.expireKeys(time.Now().Add(-keyLifetime)); err != nil {
			return Run{}, false, errStore("the idempotency key", err)
		}
		return Run{}, false, nil
	case use.Body != key.Body:
		return Run{}, false, conflict("this Idempotency-Key was used with another body; use a new key for a new request")
	}
	f, err := m.look(use.ID)
	if err != nil {
		return Run{}, false, err
	}
	r := f.snapshot(true)
	switch {
	case r.ID == "": // struck, because it did not start; or its retention has ended
		return Run{}, false, m.forgetKey(use)
	case r.Yielded != nil:
		return m.asYielded(r), true, nil
	case k == Background:
		return asAdmitted(r), true, nil
	case !r.Status.Terminal():
		return Run{}, false, m.errKeyBusy()
	}
	return r, true, nil
}

// forgetKey frees a key whose record is not to be seen any more.
func (m *Manager) forgetKey(use KeyUse) error {
	if err := m.archive.delete(use.ID); err != nil {
		return errStore("the idempotency key", err)
	}
	return nil
}

func (m *Manager) errKeyBusy() *Error {
	return &Error{
		Code: CodeConflict, RetryAfter: time.Second,
		Message: "the first request with this Idempotency-Key is still running; its answer can be had when it has ended",
	}
}
