package store

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) exec.Store { return openTemp(t) })
}

func insertAll(t *testing.T, s exec.Store, rs ...exec.Record) {
	t.Helper()
	for _, r := range rs {
		if err := s.Insert(r, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// scalar is the one number that a query returns.
func scalar(t *testing.T, db *DB, query string) (n int64) {
	t.Helper()
	if err := db.read.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func reopen(t *testing.T, db *DB) *DB {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(db.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

func TestReopenKeepsEverything(t *testing.T) {
	db := openTemp(t)
	key := exec.Key{Owner: "alice", Route: exec.Background, Name: "k", Body: [32]byte{7}}
	if err := errors.Join(db.Insert(running(1), &key), db.Insert(settled(2), nil), db.Advance(running(1).Run.ID, 3, 4, true)); err != nil {
		t.Fatal(err)
	}
	see := func(db *DB) []any {
		one, err1 := db.Get(running(1).Run.ID)
		two, err2 := db.Get(running(2).Run.ID)
		use, err3 := db.LookupKey(key)
		usage, err4 := db.Usage()
		last, err5 := db.LastSeq()
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Fatal(err)
		}
		return []any{one, two, use, usage, last}
	}
	before := see(db)
	for range 3 {
		db = reopen(t, db)
		if after := see(db); !reflect.DeepEqual(after, before) {
			t.Errorf("before %+v\nafter  %+v", before, after)
		}
	}
}

func TestClose(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1))
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(db.path + "-*"); len(left) != 0 {
		t.Errorf("left beside the database: %q", left)
	}
	if err := db.Insert(settled(2), nil); err == nil {
		t.Error("inserted into a closed database")
	}
	if _, err := db.Get(settled(1).Run.ID); err == nil || errors.Is(err, exec.ErrNoRecord) {
		t.Errorf("read from a closed database: %v", err)
	}
}

// TestNoSecretReachesTheDisk looks for a marker in the bytes of all files, not in what is read back.
func TestNoSecretReachesTheDisk(t *testing.T) {
	const marker = "canary-5f2b"
	db := openTemp(t)
	r := running(1)
	r.Run.Spec.Env = map[string]string{"VISIBLE_NAME": marker}
	r.Run.Spec.Stdin, r.Run.Spec.HasStdin = []byte(marker), true
	r.Run.Stdout.SpillPath, r.Run.Stderr.SpillPath = "/"+marker, "/"+marker
	key := exec.Key{Owner: "alice", Route: exec.Background, Name: "k"}
	if err := db.Insert(r, &key); err != nil {
		t.Fatal(err)
	}
	r.Run.Status = exec.StatusCompleted
	if err := db.Settle(r); err != nil {
		t.Fatal(err)
	}
	named := false
	for range 2 { // with the -wal file, then with everything in the database
		files, err := filepath.Glob(filepath.Dir(db.path) + "/*")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte(marker)) {
				t.Errorf("%s holds it", filepath.Base(f))
			}
			named = named || bytes.Contains(data, []byte("VISIBLE_NAME"))
		}
		db.Close()
	}
	if !named {
		t.Error("the name is not there either: this test looks in the wrong place")
	}
}

// TestProbeWrites: a probe that wrote nothing would always succeed.
func TestProbeWrites(t *testing.T) {
	db := openTemp(t)
	size := func() int64 {
		st, err := os.Stat(db.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before := size()
	if err := db.Probe(); err != nil {
		t.Fatal(err)
	}
	if size() <= before {
		t.Error("nothing was written")
	}
}

// TestSynchronous: which promise a connection keeps is decided by its pragma alone.
func TestSynchronous(t *testing.T) {
	db := openTemp(t)
	for p, want := range map[*pool]int{db.process: 1, db.power: 2} {
		var got int
		if err := p.QueryRow("PRAGMA synchronous").Scan(&got); err != nil || got != want {
			t.Errorf("synchronous is %d, want %d, %v", got, want, err)
		}
		if err := p.QueryRow("PRAGMA foreign_keys").Scan(&got); err != nil || got != 1 {
			t.Errorf("foreign keys: %d, %v", got, err)
		}
	}
	if _, err := db.read.Exec("DELETE FROM commands"); err == nil {
		t.Error("a reader has written")
	}
}

// TestFileShrinks: what is deleted is given back to the file system.
func TestFileShrinks(t *testing.T) {
	db := openTemp(t)
	var ids []string
	for seq := range int64(300) {
		r := settled(seq + 1)
		r.Run.Stdout.Tail = make([]byte, 32<<10)
		insertAll(t, db, r)
		ids = append(ids, r.Run.ID)
	}
	full := scalar(t, db, "PRAGMA page_count")
	for i := 0; i < len(ids); i += 20 {
		if err := db.Delete(ids[i : i+20]...); err != nil {
			t.Fatal(err)
		}
	}
	if left := scalar(t, db, "PRAGMA page_count"); full < 2400 || left > 2*pagesKeptFree {
		t.Errorf("%d pages of %d are left", left, full)
	}
	db = reopen(t, db)
	if st, err := os.Stat(db.path); err != nil || st.Size() > 2*pagesKeptFree*4096 {
		t.Errorf("the file has %d bytes, %v", st.Size(), err)
	}
}

// TestLogIsBounded: readers that overlap all the time do not let the -wal file grow without end. The
// checkpoint that comes with a commit never finishes then, since there is always one who has not seen the commit.
func TestLogIsBounded(t *testing.T) {
	db := openTemp(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { overlap(t, db, stop) })
	defer wg.Wait()
	defer close(stop)
	const least, most = 3 * walTooLong, 16 * walTooLong
	r := settled(1)
	r.Run.Stdout.Tail = make([]byte, 256<<10)
	for written := 0; written < least || db.logBytes() > walTooLong; written += len(r.Run.Stdout.Tail) {
		if written > most {
			t.Fatalf("%d bytes after %d were written", db.logBytes(), written)
		}
		r.Seq++
		r.Run.ID = settled(r.Seq).Run.ID
		insertAll(t, db, r)
	}
}

// overlap reads until stop is closed: each transaction begins before the one before ends.
func overlap(t *testing.T, db *DB, stop <-chan struct{}) {
	end := func() error { return nil }
	for {
		tx, err := db.read.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Error(err)
			return
		}
		var n int // it begins with the first read
		if err := errors.Join(tx.QueryRow("SELECT count(*) FROM usage").Scan(&n), end()); err != nil {
			t.Error(err)
		}
		end = tx.Rollback
		select {
		case <-stop:
			if err := end(); err != nil {
				t.Error(err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestKeysSurviveALossOfPower: an Insert with a key goes through the connection that syncs, and no other.
func TestKeysSurviveALossOfPower(t *testing.T) {
	db := openTemp(t)
	// A connection's data_version changes when another one commits.
	version := func(p *pool) (v int64) {
		if err := p.QueryRow("PRAGMA data_version").Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	process, power := version(db.process), version(db.power)
	if err := db.Insert(running(1), &exec.Key{Owner: "alice", Route: exec.Background, Name: "k"}); err != nil {
		t.Fatal(err)
	}
	if version(db.power) != power || version(db.process) == process {
		t.Error("it did not go through the connection that syncs")
	}
	process = version(db.process)
	insertAll(t, db, running(2))
	if version(db.process) != process || version(db.power) == power {
		t.Error("without a key it did")
	}
}

// TestDamagedRecords: a record that cannot be read whole keeps nobody from the others, nor from deleting it.
func TestDamagedRecords(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1), settled(2), running(3))
	for _, q := range []string{"UPDATE commands SET facts = '{' WHERE seq IN (2, 3)", "UPDATE bodies SET spec = 'x' WHERE seq = 2"} {
		if _, err := db.process.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	r := settled(2)
	list, err := db.List(exec.Query{Owner: r.Run.Owner, Kind: r.Run.Kind, Limit: 10})
	if err != nil || len(list) != 2 || list[0].Run.ID != r.Run.ID || list[0].Run.Detail != damaged || list[0].Run.Status != r.Run.Status {
		t.Errorf("list: %+v %v", list, err)
	}
	if got, err := db.Get(r.Run.ID); err != nil || got.Run.Detail != damaged || got.Run.Owner != r.Run.Owner {
		t.Errorf("get: %+v %v", got, err)
	}
	if got, err := db.Unsettled(); err != nil || len(got) != 1 || got[0].Run.ID != running(3).Run.ID {
		t.Errorf("unsettled: %+v %v", got, err)
	}
	if err := errors.Join(db.Settle(settled(3)), db.Delete(r.Run.ID)); err != nil {
		t.Error(err)
	}
	if _, err := db.Get(r.Run.ID); !errors.Is(err, exec.ErrNoRecord) {
		t.Errorf("deleted: %v", err)
	}
}
