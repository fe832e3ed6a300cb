package storetest

import (
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"bashd/internal/exec"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) exec.Store { return NewMemory() })
}

func TestFaultyWithoutFaults(t *testing.T) {
	Run(t, func(*testing.T) exec.Store { return &Faulty{Store: NewMemory()} })
}

// writes are the methods that Faulty has to count, each as a call that does something.
var writes = map[string]func(exec.Store) error{
	"Insert":     func(s exec.Store) error { return s.Insert(begun(2), nil) },
	"Yield":      func(s exec.Store) error { return s.Yield("bash-1", exec.YieldPoint{Stdout: 1}) },
	"Settle":     func(s exec.Store) error { return s.Settle(ended(1, kind(exec.Foreground))) },
	"Advance":    func(s exec.Store) error { return s.Advance("bash-1", 1, 1, true) },
	"Delete":     func(s exec.Store) error { return s.Delete("bash-1") },
	"ExpireKeys": func(s exec.Store) error { return s.ExpireKeys(time.Now().Add(time.Hour)) },
	"Probe":      func(s exec.Store) error { return s.Probe() },
}

var reads = []string{"Get", "List", "Unsettled", "LookupKey", "Usage", "Oldest", "LastSeq"}

// TestFaultyKnowsEveryMethod: a method that is added to exec.Store is a write or a read.
func TestFaultyKnowsEveryMethod(t *testing.T) {
	for m := range reflect.TypeFor[exec.Store]().Methods() {
		if _, write := writes[m.Name]; write == slices.Contains(reads, m.Name) {
			t.Errorf("%s is not known to be either a write or a read", m.Name)
		}
	}
}

var errDisk = errors.New("the disk is full")

// state is all that can be seen of a store of one record and one key.
func state(t *testing.T, s exec.Store) []any {
	t.Helper()
	one, _ := s.Get("bash-1")
	two, _ := s.Get("bash-2")
	use, _ := s.LookupKey(key("k"))
	return []any{plainly(one), plainly(two), use}
}

func TestFaults(t *testing.T) {
	for op, call := range writes {
		t.Run(op, func(t *testing.T) {
			inner := NewMemory()
			k := key("k")
			must(t, inner.Insert(begun(1, kind(exec.Foreground)), &k))
			untouched := state(t, inner)
			fail := true
			hook := func(got string, n int) error {
				if got != op || n == 0 {
					t.Errorf("called for %s, %d", got, n)
				}
				if fail {
					return errDisk
				}
				return nil
			}
			before := &Faulty{Store: inner, Before: hook}
			wantErr(t, call(before), errDisk)
			if !reflect.DeepEqual(state(t, before), untouched) {
				t.Error("it was done before it failed")
			}
			after := &Faulty{Store: inner, After: hook}
			wantErr(t, call(after), errDisk)
			if reflect.DeepEqual(state(t, after), untouched) != (op == "Probe") {
				t.Error("it was not done and failed")
			}
			fail = false
			for _, f := range []*Faulty{before, after} {
				must(t, call(f))
				if f.Writes() != 2 {
					t.Errorf("%d writes counted, want 2", f.Writes())
				}
			}
		})
	}
}

// TestFaultyCountsEachWriteOnce: however many goroutines write, each write has a number of its own.
func TestFaultyCountsEachWriteOnce(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]bool{}
	f := &Faulty{Store: NewMemory(), Before: func(_ string, n int) error {
		mu.Lock()
		defer mu.Unlock()
		if seen[n] {
			t.Errorf("number %d twice", n)
		}
		seen[n] = true
		return nil
	}}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if err := f.Probe(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f.Writes() != 100 || len(seen) != 100 || !seen[1] || !seen[100] {
		t.Errorf("%d writes, %d numbers", f.Writes(), len(seen))
	}
}
