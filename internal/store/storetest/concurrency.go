package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"bashd/internal/exec"
)

// testConcurrency lets many commands live at once, while others look, and then counts.
func testConcurrency(t *testing.T, s exec.Store) {
	const workers, each = 8, 25
	shared := key("one of them gets it")
	var winners, removed atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				seq := int64(w*each + i + 1)
				err := s.Insert(begun(seq, kind(exec.Foreground)), &shared)
				won := err == nil
				if won {
					winners.Add(1)
				}
				if errors.Is(err, exec.ErrKeyTaken) {
					err = s.Insert(begun(seq, kind(exec.Foreground)), new(key(fmt.Sprint(seq))))
				}
				// To remove the winner would free the key.
				remove := i%5 == 0 && !won
				if remove {
					removed.Add(1)
				}
				if err := errors.Join(err, live(s, seq, remove)); err != nil {
					t.Errorf("%d: %v", seq, err)
				}
			}
		})
	}
	wg.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d took the same key", winners.Load())
	}
	found, err := s.List(exec.Query{Owner: "alice", Kind: exec.Background, Limit: 1000})
	must(t, err)
	usage, err := s.Usage()
	must(t, err)
	left := workers*each - removed.Load()
	if int64(len(found)) != left || len(usage) != 1 || usage[0].Records != left || usage[0].Bytes != 100*left {
		t.Errorf("listed %d, usage %+v; want %d", len(found), usage, left)
	}
	for i := 1; i < len(found); i++ {
		if found[i-1].Seq <= found[i].Seq {
			t.Fatal("not in order")
		}
	}
}

// live is what becomes of an inserted run, looked at in between.
func live(s exec.Store, seq int64, remove bool) error {
	id := begun(seq).Run.ID
	if err := errors.Join(s.Yield(id, exec.YieldPoint{Stdout: seq, Stderr: seq}), s.Advance(id, seq, 0, false), s.Settle(ended(seq)), s.Advance(id, 0, seq, true)); err != nil {
		return err
	}
	r, err := s.Get(id)
	if err != nil {
		return err
	}
	if r.Seq != seq || r.ReadStdout != seq || r.ReadStderr != seq || !r.Reported || r.Run.Status != exec.StatusCompleted {
		return fmt.Errorf("it is %+v", r)
	}
	if found, err := s.List(exec.Query{Owner: "alice", Kind: exec.Background, Before: seq + 1, Limit: 1}); err != nil || len(found) != 1 || found[0].Seq != seq {
		return fmt.Errorf("listed: %v, %w", found, err)
	}
	if _, err := s.Oldest(nil, 10); err != nil {
		return err
	}
	if remove {
		return s.Delete(id)
	}
	return nil
}
