package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"bashd/internal/exec"
)

// The queries of the readers. Each takes its rows from an index in the order that it returns
// them, whatever the number of records; a test holds them to it.
const (
	columns = `c.seq, c.id, c.owner, c.kind, c.session, c.status, c.finished_at, c.bytes,
		c.read_stdout, c.read_stderr, c.reported, c.yield_stdout, c.yield_stderr, c.facts`

	getRecord     = `SELECT ` + columns + `, b.spec, b.stdout, b.stderr FROM commands c JOIN bodies b ON b.seq = c.seq WHERE c.id = ?`
	getUnsettled  = `SELECT ` + columns + `, b.spec, NULL, NULL FROM commands c JOIN bodies b ON b.seq = c.seq WHERE c.settled = 0 ORDER BY c.seq`
	oldestOfAll   = `SELECT id, owner, finished_at, bytes FROM commands WHERE settled = 1 ORDER BY finished_at, seq LIMIT ?`
	oldestOfOwner = `SELECT id, owner, finished_at, bytes FROM commands WHERE owner = ? AND settled = 1 ORDER BY finished_at, seq LIMIT ?`
	usageByOwner  = `SELECT owner, records, bytes FROM usage`
	lastSeq       = `SELECT coalesce(max(seq), 0) FROM commands`
	lookupKey     = `SELECT id, body, taken_at FROM idempotency_keys WHERE owner = ? AND route = ? AND name = ?`
)

// Get is [exec.Store].Get.
func (db *DB) Get(id string) (exec.Record, error) {
	records, err := db.records("get "+id, scanWhole, getRecord, id)
	if err != nil {
		return exec.Record{}, err
	}
	if len(records) == 0 {
		return exec.Record{}, fmt.Errorf("store: get %s: %w", id, exec.ErrNoRecord)
	}
	return records[0], nil
}

// Unsettled is [exec.Store].Unsettled.
func (db *DB) Unsettled() ([]exec.Record, error) {
	return db.records("unsettled records", scanWhole, getUnsettled)
}

// List is [exec.Store].List. Of a Spec there are the beginning of the command, the description, the timeout, the session
// and the owner.
func (db *DB) List(q exec.Query) ([]exec.Record, error) {
	if q.Limit < 1 {
		return nil, fmt.Errorf("store: list: the limit %d is below 1", q.Limit)
	}
	query, args, some := listQuery(q)
	if !some {
		return nil, nil
	}
	return db.records("list", func(rows *sql.Rows, r *exec.Record) error { return scanRow(rows, r) }, query, args...)
}

// listQuery says q in SQL: one ordered scan of an index for the owner's records, one for nobody's,
// merged. some is false where nothing can match.
func listQuery(q exec.Query) (query string, args []any, some bool) {
	statuses := terminalOnes(q.Statuses)
	switch {
	case len(q.Statuses) > 0 && len(statuses) == 0:
		return "", nil, false
	case len(statuses) == len(terminal):
		statuses = nil // any
	}
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	owners := []string{string(q.Owner)}
	if q.Owner != "" {
		owners = append(owners, "")
	}
	var scans []string
	for _, owner := range owners {
		scan := "SELECT " + columns + " FROM commands c WHERE c.settled = 1 AND c.owner = ? AND c.kind = ? AND c.seq < ?"
		args = append(args, owner, string(q.Kind), before)
		if q.Session != "" {
			scan += " AND c.session <> '' AND c.session = ?" // the former is what the index is limited to
			args = append(args, q.Session)
		}
		if len(statuses) > 0 {
			scan += " AND c.status IN (?" + strings.Repeat(", ?", len(statuses)-1) + ")"
			for _, s := range statuses {
				args = append(args, string(s))
			}
		}
		scans = append(scans, scan)
	}
	return strings.Join(scans, " UNION ALL ") + " ORDER BY c.seq DESC LIMIT ?", append(args, q.Limit), true
}

// terminal are the statuses that a settled record can have.
var terminal = []exec.Status{exec.StatusCompleted, exec.StatusKilled, exec.StatusFailed}

// terminalOnes are the terminal statuses among ss, each once, so that there are few different queries.
func terminalOnes(ss []exec.Status) []exec.Status {
	return slices.DeleteFunc(slices.Clone(terminal), func(s exec.Status) bool { return !slices.Contains(ss, s) })
}

// records runs a query and decodes its rows with scan.
func (db *DB) records(what string, scan func(*sql.Rows, *exec.Record) error, query string, args ...any) ([]exec.Record, error) {
	rows, err := db.read.query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", what, err)
	}
	defer rows.Close()
	var records []exec.Record
	for rows.Next() {
		var r exec.Record
		if err := scan(rows, &r); err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %s: %w", what, err)
	}
	return records, nil
}

// scanWhole decodes a row of columns, spec and the tails.
func scanWhole(rows *sql.Rows, r *exec.Record) error {
	var spec sql.RawBytes
	var stdout, stderr []byte
	if err := scanRow(rows, r, &spec, &stdout, &stderr); err != nil {
		return err
	}
	r.Run.Stdout.Tail, r.Run.Stderr.Tail = stdout, stderr
	if err := decodeSpec(spec, &r.Run); err != nil {
		r.Run.Detail = damaged
	}
	return nil
}

// damaged is told of a record of which only the columns can be read: it is found, listed, settled and deleted like
// any other, and keeps nobody from the rest.
const damaged = "the record of this command is damaged; only a part of it could be read"

// scanRow decodes a row of columns, and puts what follows them into more.
func scanRow(rows *sql.Rows, r *exec.Record, more ...any) error {
	var owner string
	var finishedAt int64
	var yieldStdout, yieldStderr sql.NullInt64
	var facts sql.RawBytes
	err := rows.Scan(append([]any{
		&r.Seq, &r.Run.ID, &owner, &r.Run.Kind, &r.Run.Spec.Session, &r.Run.Status, &finishedAt, &r.Bytes,
		&r.ReadStdout, &r.ReadStderr, &r.Reported, &yieldStdout, &yieldStderr, &facts,
	}, more...)...)
	if err != nil {
		return fmt.Errorf("store: record %s: %w", r.Run.ID, err)
	}
	r.Run.Owner, r.Run.Spec.Owner = exec.Owner(owner), exec.Owner(owner)
	r.Run.FinishedAt = fromMicros(finishedAt)
	if yieldStdout.Valid {
		r.Run.Yielded = &exec.YieldPoint{Stdout: yieldStdout.Int64, Stderr: yieldStderr.Int64}
	}
	if err := decodeFacts(facts, &r.Run); err != nil {
		r.Run.Detail = damaged
	}
	return nil
}

// Oldest is [exec.Store].Oldest; of those that ended at the same time the one that was admitted first comes first.
func (db *DB) Oldest(owner *exec.Owner, limit int) ([]exec.Stored, error) {
	query, args := oldestOfAll, []any{max(0, limit)}
	if owner != nil {
		query, args = oldestOfOwner, []any{string(*owner), max(0, limit)}
	}
	rows, err := db.read.query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("store: oldest records: %w", err)
	}
	defer rows.Close()
	var found []exec.Stored
	for rows.Next() {
		var s exec.Stored
		var finishedAt int64
		if err := rows.Scan(&s.ID, &s.Owner, &finishedAt, &s.Bytes); err != nil {
			return nil, fmt.Errorf("store: oldest records: %w", err)
		}
		s.FinishedAt = fromMicros(finishedAt)
		found = append(found, s)
	}
	return found, wrap("oldest records", rows.Err())
}

// Usage is [exec.Store].Usage.
func (db *DB) Usage() ([]exec.OwnerUsage, error) {
	rows, err := db.read.query(usageByOwner)
	if err != nil {
		return nil, fmt.Errorf("store: usage: %w", err)
	}
	defer rows.Close()
	var all []exec.OwnerUsage
	for rows.Next() {
		var u exec.OwnerUsage
		if err := rows.Scan(&u.Owner, &u.Records, &u.Bytes); err != nil {
			return nil, fmt.Errorf("store: usage: %w", err)
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b exec.OwnerUsage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Owner, b.Owner))
	})
	return all, wrap("usage", rows.Err())
}

// LastSeq is [exec.Store].LastSeq.
func (db *DB) LastSeq() (seq int64, err error) {
	s, err := db.read.statement(lastSeq)
	if err == nil {
		err = s.QueryRow().Scan(&seq)
	}
	return seq, wrap("last number", err)
}

// LookupKey is [exec.Store].LookupKey.
func (db *DB) LookupKey(k exec.Key) (use exec.KeyUse, err error) {
	var body []byte
	var takenAt int64
	s, err := db.read.statement(lookupKey)
	if err == nil {
		err = s.QueryRow(string(k.Owner), string(k.Route), k.Name).Scan(&use.ID, &body, &takenAt)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = exec.ErrNoRecord
	}
	if err != nil {
		return exec.KeyUse{}, fmt.Errorf("store: look-up of a key: %w", err)
	}
	copy(use.Body[:], body)
	use.TakenAt = fromMicros(takenAt)
	return use, nil
}

// wrap says where an error comes from, if there is one.
func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	return nil
}
