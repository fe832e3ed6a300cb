package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"bashd/internal/exec"
)

// DB is an open database. Safe for concurrent use.
type DB struct {
	path string
	file os.FileInfo // of the database, when it was opened
	log  os.FileInfo // of the -wal file, which is there as long as a connection is

	mu      sync.Mutex // held over each write, so that the two writers never wait for each other's lock
	process *pool      // writes what survives this process; one connection, guarded by mu
	power   *pool      // writes what survives a loss of power; one connection, guarded by mu
	closed  bool       // guarded by mu

	trimAfter time.Time // guarded by mu; when emptying the -wal file is worth the next try

	read *pool
}

var _ exec.Store = (*DB)(nil)

// Open opens the database at path and makes it if it is missing; its directory must exist. An
// older schema is brought up to date. A file that the package comment says is refused, or that cannot be
// written, is left as it is, and the error says why.
//
// One process at a time may have it open: the caller sees to that.
func Open(path string) (*DB, error) {
	db, err := open(path, migrations())
	if err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", path, err)
	}
	return db, nil
}

func open(path string, all []migration) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file, err := prepareFile(path)
	if err != nil {
		return nil, err
	}
	if err := migrate(path, all); err != nil {
		return nil, err
	}
	db := &DB{path: path, file: file}
	if err := db.connect(); err != nil {
		db.Close()
		return nil, plain(err)
	}
	return db, nil
}

// connect opens the pools and commits a first write, so that what can never be written is told
// at the start.
func (db *DB) connect() (err error) {
	if db.process, err = openPool(db.path, 1, working("synchronous(normal)")...); err != nil {
		return err
	}
	if db.power, err = openPool(db.path, 1, working("synchronous(full)")...); err != nil {
		return err
	}
	if db.read, err = openPool(db.path, readers, working("query_only(1)")...); err != nil {
		return err
	}
	for _, p := range []*pool{db.process, db.power, db.read} {
		if err := p.fill(); err != nil {
			return err
		}
	}
	for _, p := range []*pool{db.process, db.power} {
		for _, query := range writeStatements {
			if _, err := p.statement(query); err != nil {
				return err
			}
		}
	}
	if db.log, err = os.Lstat(db.path + "-wal"); err != nil {
		return err
	}
	if err := db.Probe(); err != nil && !isFull(err) {
		return err
	}
	return nil
}

// isFull tells a full disk, which is no reason not to start: what there is can be read, and removing old output makes room.
func isFull(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_FULL || errors.Is(err, unix.ENOSPC)
}

// Close brings everything into the database file and closes it. Calls that come later fail.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil
	}
	db.closed = true
	// The last connection to close empties the -wal file, so the one that syncs goes last.
	return errors.Join(db.read.close(), db.process.close(), db.power.close())
}
