package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// Bounds of the connections. All caches together stay under two megabytes.
const (
	readers     = 3
	cacheKiB    = 384             // of each connection
	busyTimeout = 5 * time.Second // for a lock that another process holds
)

// Bounds of the -wal file.
const (
	checkpointAt   = 512      // pages in it that make a commit copy them into the database
	walKeptBytes   = 4 << 20  // what stays of it after that
	walTooLong     = 16 << 20 // bytes at which readers are waited for
	walTrimTimeout = 100 * time.Millisecond
	walTrimPause   = 2 * time.Second
)

// pool is a number of connections of one sort with the statements that were prepared on them.
type pool struct {
	*sql.DB

	mu       sync.Mutex
	prepared map[string]*sql.Stmt // guarded by mu
}

// openPool returns a pool of at most n connections, each with those pragmas. It opens none yet.
func openPool(path string, n int, pragmas ...string) (*pool, error) {
	c, err := sqlite.NewConnector(dsn(path, pragmas))
	if err != nil {
		return nil, err
	}
	p := &pool{DB: sql.OpenDB(c), prepared: map[string]*sql.Stmt{}}
	p.SetMaxOpenConns(n)
	p.SetMaxIdleConns(n)
	return p, nil
}

// dsn names the database at the absolute path. In a URI every character of a path can be said;
// mode=rw keeps SQLite from making the file.
func dsn(path string, pragmas []string) string {
	query := url.Values{
		"mode":       {"rw"},
		"_txlock":    {"immediate"},
		"_defensive": {"1"},
		"_dqs":       {"0"},
		"_error_rc":  {"1"},
		"_pragma":    append([]string{"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")"}, pragmas...),
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// working are the pragmas of every connection but the one that migrates.
func working(more ...string) []string {
	return append([]string{
		"cache_size(-" + strconv.Itoa(cacheKiB) + ")",
		"cell_size_check(1)",
		"foreign_keys(1)",
		"journal_size_limit(" + strconv.Itoa(walKeptBytes) + ")",
		"temp_store(memory)",
		"trusted_schema(0)",
		"wal_autocheckpoint(" + strconv.Itoa(checkpointAt) + ")",
	}, more...)
}

// fill opens all connections. One that was opened keeps its file; one that is opened later might
// find another at the path.
func (p *pool) fill() error {
	for range p.Stats().MaxOpenConnections {
		c, err := p.Conn(context.Background())
		if err != nil {
			return err
		}
		defer c.Close() // not before all are open
	}
	return nil
}

// statement returns query prepared; each text is prepared once. It needs a connection, so
// it must not be called within a transaction of a pool that has but one.
func (p *pool) statement(query string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.prepared[query]; s != nil {
		return s, nil
	}
	s, err := p.Prepare(query)
	if err == nil {
		p.prepared[query] = s
	}
	return s, err
}

// query runs a prepared query.
func (p *pool) query(query string, args ...any) (*sql.Rows, error) {
	s, err := p.statement(query)
	if err != nil {
		return nil, err
	}
	return s.Query(args...)
}

// close finalizes the statements and closes the connections.
func (p *pool) close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.prepared {
		errs = append(errs, s.Close())
	}
	clear(p.prepared)
	return errors.Join(append(errs, p.DB.Close())...)
}

// tx is a transaction that uses the statements that were prepared on its pool before.
type tx struct {
	pool *pool
	*sql.Tx
}

func (t tx) statement(query string) (*sql.Stmt, error) {
	t.pool.mu.Lock()
	s := t.pool.prepared[query]
	t.pool.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("not among the prepared statements: %s", query)
	}
	return t.Stmt(s), nil
}

// exec runs a statement and returns how many rows it changed.
func (t tx) exec(query string, args ...any) (int64, error) {
	s, err := t.statement(query)
	if err != nil {
		return 0, err
	}
	res, err := s.Exec(args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// exists reports whether a query has a row.
func (t tx) exists(query string, args ...any) (bool, error) {
	s, err := t.statement(query)
	if err != nil {
		return false, err
	}
	var one int
	err = s.QueryRow(args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
