package storetest

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"bashd/internal/exec"
)

// testListedFacts fails for a fact that lists forget. Of the Spec they may leave out what is not asked for
// here, and the output is not there.
func testListedFacts(t *testing.T, s exec.Store) {
	r := filled(1)
	insert(t, s, r)
	found, err := s.List(exec.Query{Owner: r.Run.Owner, Kind: r.Run.Kind, Limit: 1})
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("found %d", len(found))
	}
	got, want := found[0], listed(kept(r))
	g := got.Run.Spec
	got.Run.Spec = exec.Spec{Command: g.Command, Description: g.Description, Timeout: g.Timeout, Session: g.Session, Owner: g.Owner}
	wantSame(t, got, want)
}

func testUnsettled(t *testing.T, s exec.Store) {
	none, err := s.Unsettled()
	must(t, err)
	wantSeqs(t, "of an empty store", none)
	long := begun(3, command(strings.Repeat("x", 2*exec.ListedCommandBytes)), owner(""))
	long.Run.Stdout, long.Run.Stderr.Tail = exec.Stream{Tail: []byte("out"), Bytes: 3}, []byte("err")
	insert(t, s, begun(7, status(exec.StatusStopping)), ended(1), long, begun(2, owner("bob"), kind(exec.Foreground)))
	found, err := s.Unsettled()
	must(t, err)
	wantSeqs(t, "unsettled", found, 2, 3, 7)
	long.Run.Stdout.Tail, long.Run.Stderr.Tail = nil, nil
	wantSame(t, found[1], kept(long))
	must(t, s.Settle(ended(3, owner(""))))
	must(t, s.Delete("bash-7"))
	found, err = s.Unsettled()
	must(t, err)
	wantSeqs(t, "after one has settled and one is gone", found, 2)
}

func testList(t *testing.T, s exec.Store) {
	wantList(t, s, exec.Query{Owner: "alice"})
	insert(t, s, ended(5), ended(2), begun(3), ended(9), ended(4, kind(exec.Foreground)))
	wantList(t, s, exec.Query{Owner: "alice"}, 9, 5, 2)
	wantList(t, s, exec.Query{Owner: "alice", Kind: exec.Foreground}, 4)
	wantList(t, s, exec.Query{Owner: "alice", Limit: 2}, 9, 5)
	wantList(t, s, exec.Query{Owner: "alice", Before: 9}, 5, 2)
	wantList(t, s, exec.Query{Owner: "alice", Before: 6, Limit: 1}, 5)
	wantList(t, s, exec.Query{Owner: "alice", Before: 2})
	must(t, s.Settle(ended(3)))
	wantList(t, s, exec.Query{Owner: "alice"}, 9, 5, 3, 2)
	if _, err := s.List(exec.Query{Owner: "alice", Kind: exec.Background}); err == nil {
		t.Error("a limit of 0 was accepted")
	}
}

func testListOwners(t *testing.T, s exec.Store) {
	insert(t, s, ended(1), ended(2, owner("")), ended(3, owner("bob")), ended(4), ended(5, owner("")), ended(6, owner("alice2")), ended(7, owner("ALICE")))
	wantList(t, s, exec.Query{Owner: "alice"}, 5, 4, 2, 1)
	wantList(t, s, exec.Query{Owner: "alice", Limit: 3}, 5, 4, 2)
	wantList(t, s, exec.Query{Owner: "alice", Before: 5, Limit: 2}, 4, 2)
	wantList(t, s, exec.Query{Owner: "bob"}, 5, 3, 2)
	wantList(t, s, exec.Query{Owner: ""}, 5, 2)
	wantList(t, s, exec.Query{Owner: "carol"}, 5, 2)
	wantList(t, s, exec.Query{Owner: "%"}, 5, 2)
}

// testListFilters tries every combination of filters against a plain loop.
func testListFilters(t *testing.T, s exec.Store) {
	rnd := rand.New(rand.NewPCG(1, 2))
	statuses := []exec.Status{exec.StatusRunning, exec.StatusCompleted, exec.StatusKilled, exec.StatusFailed}
	owners, kinds, sessions := []exec.Owner{"", "alice", "bob"}, []exec.Kind{exec.Foreground, exec.Background}, []string{"", "s1", "s2"}
	var all []exec.Record
	for seq := range int64(120) {
		all = append(all, ended(seq+1, owner(owners[rnd.IntN(3)]), kind(kinds[rnd.IntN(2)]), session(sessions[rnd.IntN(3)]), status(statuses[rnd.IntN(4)])))
	}
	insert(t, s, all...)
	slices.Reverse(all)
	for set := range 16 {
		var wanted []exec.Status
		for i, st := range statuses {
			if set&(1<<i) != 0 {
				wanted = append(wanted, st, st)
			}
		}
		for _, o := range owners {
			for _, k := range kinds {
				for _, ses := range sessions {
					for _, before := range []int64{0, 60} {
						q := exec.Query{Owner: o, Kind: k, Session: ses, Statuses: wanted, Before: before, Limit: 5}
						wantList(t, s, q, match(all, q)...)
					}
				}
			}
		}
	}
}

// match says which of all, newest first, q is to find.
func match(all []exec.Record, q exec.Query) (seqs []int64) {
	for _, r := range all {
		if r.Run.Status.Terminal() && (r.Run.Owner == q.Owner || r.Run.Owner == "") && r.Run.Kind == q.Kind &&
			(q.Session == "" || q.Session == r.Run.Spec.Session) && (q.Statuses == nil || slices.Contains(q.Statuses, r.Run.Status)) &&
			(q.Before == 0 || r.Seq < q.Before) && len(seqs) < q.Limit {
			seqs = append(seqs, r.Seq)
		}
	}
	return seqs
}

// testListPages: whoever goes on from the last number sees every record that was there at the beginning, once.
func testListPages(t *testing.T, s exec.Store) {
	var want []int64
	for seq := range int64(50) {
		insert(t, s, ended(seq+1, owner([]exec.Owner{"alice", "", "bob"}[seq%3])))
		if seq%3 != 2 {
			want = append([]int64{seq + 1}, want...)
		}
	}
	var got []int64
	for before, page := int64(0), 0; ; page++ {
		found, err := s.List(exec.Query{Owner: "alice", Kind: exec.Background, Before: before, Limit: 7})
		must(t, err)
		if len(found) == 0 {
			break
		}
		for _, r := range found {
			got = append(got, r.Seq)
		}
		before = found[len(found)-1].Seq
		insert(t, s, ended(int64(1000+page)), ended(int64(2000+page), owner("")))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func testOldest(t *testing.T, s exec.Store) {
	end := func(n int64) func(*exec.Record) { return func(r *exec.Record) { r.Run.FinishedAt = at(n) } }
	insert(t, s,
		ended(1, end(30)), ended(2, end(10), owner("bob")), begun(3), ended(4, end(20), owner("")),
		ended(6, end(20)), ended(5, end(20)), ended(7, end(10), kind(exec.Foreground), size(7)), ended(8, end(40), status(exec.StatusFailed)))
	want := func(o *exec.Owner, limit int, seqs ...int64) {
		t.Helper()
		found, err := s.Oldest(o, limit)
		must(t, err)
		ids := []string{}
		for _, f := range found {
			ids = append(ids, f.ID)
		}
		wantIDs := []string{}
		for _, seq := range seqs {
			wantIDs = append(wantIDs, begun(seq).Run.ID)
		}
		if !reflect.DeepEqual(ids, wantIDs) {
			t.Errorf("got %v, want %v", ids, wantIDs)
		}
	}
	want(nil, 100, 2, 7, 4, 5, 6, 1, 8)
	want(nil, 3, 2, 7, 4)
	want(nil, 0)
	want(new(exec.Owner("alice")), 100, 7, 5, 6, 1, 8)
	want(new(exec.Owner("alice")), 2, 7, 5)
	want(new(exec.Owner("")), 100, 4)
	want(new(exec.Owner("carol")), 100)
	found, err := s.Oldest(new(exec.Owner("alice")), 1)
	must(t, err)
	if f := found[0]; f.Owner != "alice" || f.Bytes != 7 || !f.FinishedAt.Equal(at(10)) {
		t.Errorf("got %+v", f)
	}
	must(t, s.Settle(ended(3, end(5))))
	want(nil, 1, 3)
}

func testUsage(t *testing.T, s exec.Store) {
	want := func(all ...exec.OwnerUsage) {
		t.Helper()
		got, err := s.Usage()
		must(t, err)
		if len(got) != len(all) || len(all) > 0 && !reflect.DeepEqual(got, all) {
			t.Errorf("got %+v, want %+v", got, all)
		}
	}
	want()
	insert(t, s, begun(1, size(1000)), ended(2, size(10)), ended(3, size(20), owner("bob")), ended(4, size(5), owner("")), ended(5, size(11)))
	want(exec.OwnerUsage{Owner: "alice", Records: 2, Bytes: 21}, exec.OwnerUsage{Owner: "bob", Records: 1, Bytes: 20}, exec.OwnerUsage{Owner: "", Records: 1, Bytes: 5})
	insert(t, s, begun(6, owner("bob")))
	must(t, s.Settle(ended(6, size(2), owner("bob"))))
	must(t, s.Settle(ended(6, size(50), owner("bob")))) // too late to count
	want(exec.OwnerUsage{Owner: "bob", Records: 2, Bytes: 22}, exec.OwnerUsage{Owner: "alice", Records: 2, Bytes: 21}, exec.OwnerUsage{Owner: "", Records: 1, Bytes: 5})
	must(t, s.Delete("bash-1", "bash-4", "bash-3", "bash-2"))
	want(exec.OwnerUsage{Owner: "alice", Records: 1, Bytes: 11}, exec.OwnerUsage{Owner: "bob", Records: 1, Bytes: 2})
}

func testLastSeq(t *testing.T, s exec.Store) {
	want := func(seq int64) {
		t.Helper()
		if got, err := s.LastSeq(); err != nil || got != seq {
			t.Errorf("got %d, %v; want %d", got, err, seq)
		}
	}
	want(0)
	insert(t, s, begun(7), ended(3))
	want(7)
	insert(t, s, ended(1<<40))
	want(1 << 40)
	must(t, s.Delete("bash-7"))
	want(1 << 40)
}

func testLargeCommand(t *testing.T, s exec.Store) {
	big := ended(1, command(strings.Repeat("echo é;", exec.MaxCommandBytes/8)))
	insert(t, s, begun(1, command(big.Run.Spec.Command)))
	must(t, s.Settle(big))
	wantRecord(t, s, big)
}

func testListedCommand(t *testing.T, s exec.Store) {
	const limit = exec.ListedCommandBytes
	commands := []string{
		strings.Repeat("x", limit-1), strings.Repeat("x", limit), strings.Repeat("x", limit+1),
		strings.Repeat("é", limit), "x" + strings.Repeat("é", limit), strings.Repeat("€", limit), strings.Repeat("😀", limit) + "x", "xx" + strings.Repeat("😀", limit),
	}
	for i, c := range commands {
		insert(t, s, ended(int64(i+1), command(c)))
	}
	found, err := s.List(exec.Query{Owner: "alice", Kind: exec.Background, Limit: len(commands)})
	must(t, err)
	for _, r := range found {
		got, whole := r.Run.Spec.Command, commands[r.Seq-1]
		_, next := utf8.DecodeRuneInString(whole[len(got):])
		if !strings.HasPrefix(whole, got) || !utf8.ValidString(got) || len(got) > limit || len(got) < len(whole) && len(got)+next <= limit {
			t.Errorf("command %d: %d bytes of %d", r.Seq, len(got), len(whole))
		}
	}
}

func testBinaryOutput(t *testing.T, s exec.Store) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	r := ended(1)
	r.Run.Stdout.Tail, r.Run.Stderr.Tail = all, slices.Repeat([]byte{0}, exec.MaxStdoutBytes)
	insert(t, s, begun(1))
	must(t, s.Settle(r))
	wantRecord(t, s, r)
	empty := ended(2)
	empty.Run.Stdout.Tail, empty.Run.Stderr.Tail = []byte{}, []byte("\x00")
	insert(t, s, empty)
	wantRecord(t, s, empty)
}

// testOddText: no text breaks a record or its neighbours. Invalid UTF-8 may come back mended.
func testOddText(t *testing.T, s exec.Store) {
	for i, c := range []string{"\x00", "a\x00b", "'; DROP TABLE commands; --", `"\u0000"`, "\u2028\ufeff\ufffd", "line\nline\r\n\t\x1b[0m", "<&>"} {
		r := ended(int64(i+1), command(c), session("s"))
		r.Run.Spec.Description, r.Run.Detail = c, c
		insert(t, s, r)
		wantRecord(t, s, r)
	}
	insert(t, s, ended(100, command("before\xff\xfe\xc3after"), session("s")), ended(101, command(strings.Repeat("\xbf", 3*exec.ListedCommandBytes)), session("s")))
	r, err := s.Get("bash-100")
	must(t, err)
	if c := r.Run.Spec.Command; !strings.HasPrefix(c, "before") || !strings.HasSuffix(c, "after") {
		t.Errorf("got %q", c)
	}
	wantList(t, s, exec.Query{Owner: "alice", Session: "s"}, 101, 100, 7, 6, 5, 4, 3, 2, 1)
}
