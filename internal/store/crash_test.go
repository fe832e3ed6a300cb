package store

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bashd/internal/exec"
)

// childInsert inserts and settles for ever, and prints what has been promised to it.
func childInsert(path string) error {
	db, err := Open(path)
	if err != nil {
		return err
	}
	for seq := int64(1); ; seq++ {
		var key *exec.Key
		if seq%3 == 0 {
			key = &exec.Key{Owner: "alice", Route: exec.Background, Name: fmt.Sprint(seq)}
		}
		if err := db.Insert(running(seq), key); err != nil {
			return err
		}
		fmt.Println("inserted", seq)
		if err := db.Settle(settled(seq)); err != nil {
			return err
		}
		fmt.Println("settled", seq)
		if seq%5 == 0 {
			if err := db.Delete(running(seq).Run.ID); err != nil {
				return err
			}
			fmt.Println("deleted", seq)
		}
	}
}

// TestKilled: whatever moment the process is killed at, what it was promised is there afterwards.
func TestKilled(t *testing.T) {
	for _, lines := range []int{1, 2, 50, 1001} {
		t.Run(fmt.Sprint(lines), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bashd.db")
			promised := killedAfter(t, path, lines)
			db, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for seq, what := range promised {
				wantPromise(t, db, seq, what)
			}
		})
	}
}

// killedAfter has a child insert, kills it when it has printed so many lines, and returns the last
// that it said of each record.
func killedAfter(t *testing.T, path string, lines int) map[int64]string {
	t.Helper()
	cmd := child(t, "insert", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	promised := map[int64]string{}
	for s := bufio.NewScanner(out); s.Scan(); lines-- {
		var seq int64
		var what string
		if _, err := fmt.Sscan(s.Text(), &what, &seq); err != nil {
			t.Fatalf("the child says %q", s.Text())
		}
		promised[seq] = what
		if lines == 1 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		} // what it printed until then counts too
	}
	killed(t, cmd)
	return promised
}

func wantPromise(t *testing.T, db *DB, seq int64, what string) {
	t.Helper()
	r, err := db.Get(running(seq).Run.ID)
	switch what {
	case "deleted":
		if err == nil {
			t.Errorf("%d was deleted and is there", seq)
		}
	case "settled":
		if seq%5 == 0 && err != nil {
			return // it may have come to the deletion
		}
		if err != nil || !r.Run.Status.Terminal() {
			t.Errorf("%d was settled, and is %s, %v", seq, r.Run.Status, err)
		}
	case "inserted":
		if err != nil {
			t.Errorf("%d was inserted: %v", seq, err)
		}
	}
	if seq%3 == 0 && err == nil {
		use, err := db.LookupKey(exec.Key{Owner: "alice", Route: exec.Background, Name: fmt.Sprint(seq)})
		if err != nil || use.ID != r.Run.ID {
			t.Errorf("the key of %d: %+v, %v", seq, use, err)
		}
	}
}

// endless is a migration that changes something at once and then never ends.
var endless = migration{"endless", `ALTER TABLE commands ADD COLUMN extra TEXT;
	CREATE TABLE added (n INTEGER);
	INSERT INTO added WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c;`}

func childMigrate(path string) error {
	fmt.Println("ready")
	_, err := open(path, append(migrations(), endless))
	return err
}

// TestKilledInMigration: the old version is left, and a later start goes on from it.
func TestKilledInMigration(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1))
	db.Close()
	cmd := child(t, "migrate", db.path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if s := bufio.NewScanner(out); !s.Scan() || !strings.Contains(s.Text(), "ready") {
		t.Fatalf("the child says %q", s.Text())
	}
	time.Sleep(300 * time.Millisecond)
	killed(t, cmd)
	again, err := Open(db.path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Get(settled(1).Run.ID); err != nil {
		t.Error(err)
	}
	if v := scalar(t, again, "SELECT count(*) FROM sqlite_schema WHERE name = 'added' OR sql LIKE '%extra%'"); v != 0 {
		t.Error("half of the migration is there")
	}
}
