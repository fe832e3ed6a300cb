package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// second is a migration as a later version may have one: it rebuilds a table that others refer to.
var second = migration{"second", `
	CREATE TABLE moved (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, extra TEXT NOT NULL DEFAULT 'x') STRICT;
	INSERT INTO moved (seq, id) SELECT seq, id FROM commands;
	ALTER TABLE commands ADD COLUMN extra TEXT NOT NULL DEFAULT 'y';`}

func TestUpgrade(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1), running(2))
	db.Close()
	for range 2 { // the second time there is nothing to do
		newer, err := open(db.path, append(migrations(), second))
		if err != nil {
			t.Fatal(err)
		}
		if v := scalar(t, newer, "PRAGMA user_version"); v != 2 {
			t.Errorf("version %d", v)
		}
		if n := scalar(t, newer, "SELECT count(*) FROM moved m JOIN commands c USING (seq) WHERE m.extra = 'x' AND c.extra = 'y'"); n != 2 {
			t.Errorf("%d records came along", n)
		}
		if _, err := newer.Get(settled(1).Run.ID); err != nil {
			t.Error(err)
		}
		insertAll(t, newer, settled(2+scalar(t, newer, "SELECT count(*) FROM commands")))
		newer.Close()
	}
	wantRefused(t, db.path, "the database is of a newer bashd (schema 2; this one knows up to 1)")
}

// TestFailedMigration: all of it or nothing. What refers to rows stays, and is checked.
func TestFailedMigration(t *testing.T) {
	for name, c := range map[string]struct{ sql, want string }{
		"wrong at its end":   {second.sql + "INSERT INTO nowhere VALUES (1);", "no such table"},
		"breaks a reference": {second.sql + "UPDATE bodies SET seq = seq + 100;", "rows in bodies that refer to nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTemp(t)
			insertAll(t, db, settled(1))
			db.Close()
			_, err := open(db.path, append(migrations(), migration{"broken", c.sql}))
			if err == nil || !strings.Contains(err.Error(), "migration broken") || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
			again, err := Open(db.path)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if n := scalar(t, again, "SELECT count(*) FROM sqlite_schema WHERE name = 'moved'"); n != 0 {
				t.Error("half of it is there")
			}
			if _, err := again.Get(settled(1).Run.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMigrationKeepsReferences: with foreign keys on, dropping a table deletes what refers to its rows.
func TestMigrationKeepsReferences(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1))
	db.Close()
	rebuild := migration{"rebuild", `CREATE TABLE c2 AS SELECT * FROM commands;
		DROP TABLE commands;` + strings.Split(migrations()[0].sql, ") STRICT;")[0] + `) STRICT;
		INSERT INTO commands SELECT * FROM c2; DROP TABLE c2;`}
	newer, err := open(db.path, append(migrations(), rebuild))
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	if r, err := newer.Get(settled(1).Run.ID); err != nil || len(r.Run.Stdout.Tail) == 0 {
		t.Errorf("its output is gone: %v", err)
	}
}

// TestUnfinishedFile: a crash between the making of the file and the first migration is made up for.
func TestUnfinishedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bashd.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err := open(path, nil); err == nil {
		db.Close()
		t.Fatal("a database without a schema was opened")
	}
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	insertAll(t, db, settled(1))
	if mode := scalar(t, db, "PRAGMA auto_vacuum"); mode != 2 {
		t.Errorf("auto_vacuum is %d", mode)
	}
}

// TestForeignDatabase: what another program has made is not taken over.
func TestForeignDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bashd.db")
	if _, err := prepareFile(path); err != nil {
		t.Fatal(err)
	}
	p, err := openPool(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Exec("CREATE TABLE notes (text TEXT)"); err != nil {
		t.Fatal(err)
	}
	p.close()
	wantRefused(t, path, "another program")
}
