package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID marks a database as ours, in its header: "bshd".
const applicationID = 0x62736864

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration brings the schema from one version to the next.
type migration struct {
	name string
	sql  string
}

// migrations returns all of them in order: the one at i leads to version i+1. One that was
// released is never changed again.
func migrations() []migration {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	all := make([]migration, len(names))
	for i, name := range names { // Glob sorts
		text, err := migrationFiles.ReadFile(name)
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		if n, _ := strconv.Atoi(number); err != nil || n != i+1 {
			panic(fmt.Sprintf("migration %s is out of order: %v", name, err))
		}
		all[i] = migration{name, string(text)}
	}
	return all
}

// header is what a database says of itself.
type header struct {
	application, version int64
	empty                bool
}

// migrate makes of the file at path a sound database of the newest version, or refuses it
// unchanged. It works on a connection of its own, without foreign keys: with them, a migration that
// rebuilds a table would delete what refers to its rows.
func migrate(path string, all []migration) error {
	p, err := openPool(path, 1)
	if err != nil {
		return err
	}
	defer p.close()
	c, err := p.Conn(context.Background())
	if err != nil {
		return plain(err)
	}
	defer c.Close()
	h, err := readHeader(c)
	if err != nil {
		return plain(err)
	}
	if err := h.usable(int64(len(all))); err != nil {
		return err
	}
	if h.version > 0 {
		if err := check(c); err != nil {
			return err
		}
	}
	if err := prepareJournal(c, h); err != nil {
		return plain(err)
	}
	for v := h.version; v < int64(len(all)); v++ {
		if err := apply(c, all[v], v+1); err != nil {
			return fmt.Errorf("migration %s: %w", all[v].name, plain(err))
		}
	}
	return nil
}

// usable says why a database is not for this program, which knows the schema up to newest.
func (h header) usable(newest int64) error {
	switch {
	case h.application == 0 && h.version == 0 && h.empty:
		return nil // new, or not finished when it was made
	case h.application != applicationID:
		return errors.New("it is a database of another program")
	case h.version > newest:
		return fmt.Errorf("the database is of a newer bashd (schema %d; this one knows up to %d)", h.version, newest)
	case h.version < 1 || h.empty:
		return fmt.Errorf("the database is damaged: schema %d", h.version)
	}
	return nil
}

func readHeader(c *sql.Conn) (h header, err error) {
	for query, to := range map[string]any{
		"PRAGMA application_id":                  &h.application,
		"PRAGMA user_version":                    &h.version,
		"SELECT count(*) = 0 FROM sqlite_schema": &h.empty,
	} {
		if err := c.QueryRowContext(context.Background(), query).Scan(to); err != nil {
			return header{}, err
		}
	}
	return h, nil
}

// prepareJournal sets what the file itself remembers. The way of vacuuming has to be set while it
// is empty.
func prepareJournal(c *sql.Conn, h header) error {
	if h.empty {
		if _, err := c.ExecContext(context.Background(), "PRAGMA auto_vacuum = INCREMENTAL"); err != nil {
			return err
		}
	}
	var mode string
	if err := c.QueryRowContext(context.Background(), "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("write-ahead logging is not possible on this file system (journal mode %s)", mode)
	}
	return nil
}

// apply runs one migration. The version is in the same transaction, so a crash leaves either all
// of it or none.
func apply(c *sql.Conn, m migration, version int64) error {
	t, err := c.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	script := fmt.Sprintf("%s\n;PRAGMA application_id = %d; PRAGMA user_version = %d", m.sql, applicationID, version)
	if _, err := t.Exec(script); err != nil {
		return err
	}
	var table string
	if err := t.QueryRow("SELECT \"table\" FROM pragma_foreign_key_check").Scan(&table); !errors.Is(err, sql.ErrNoRows) {
		return errors.Join(err, fmt.Errorf("it leaves rows in %s that refer to nothing", table))
	}
	return t.Commit()
}

// check looks for damage where it would decide what is done. Bodies are left out, because they are
// most of the file; damage there shows when one is read.
func check(c *sql.Conn) error {
	for _, table := range []string{"commands", "usage", "idempotency_keys"} {
		var found string
		err := c.QueryRowContext(context.Background(), "PRAGMA quick_check('"+table+"')").Scan(&found)
		if err != nil {
			return plain(err)
		}
		if found != "ok" {
			return fmt.Errorf("the database is damaged: %s", strings.ReplaceAll(found, "\n", "; "))
		}
	}
	return nil
}

// plain says in words what SQLite says of a file that it cannot use.
func plain(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	if e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE {
		return fmt.Errorf("there is no room for the files beside the database; is the disk full? %w", err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("it is not a SQLite database: %w", err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("the database is damaged: %w", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("the database cannot be written: %w", err)
	}
	return err
}
