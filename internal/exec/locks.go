package exec

import "sync"

// locks are mutexes by key, each of which is there as long as somebody uses it. The zero value is ready.
type locks[K comparable] struct {
	mu   sync.Mutex
	used map[K]*usedLock // guarded by mu
}

type usedLock struct {
	sync.Mutex
	users int // guarded by locks.mu
}

// lock locks what k stands for, and returns what unlocks it.
func (l *locks[K]) lock(k K) (unlock func()) {
	l.mu.Lock()
	u := l.used[k]
	if u == nil {
		u = &usedLock{}
		if l.used == nil {
			l.used = map[K]*usedLock{}
		}
		l.used[k] = u
	}
	u.users++
	l.mu.Unlock()
	u.Lock()
	return func() {
		u.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if u.users--; u.users == 0 {
			delete(l.used, k)
		}
	}
}
