package store

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"bashd/internal/exec"
)

// The statements of the writers.
const (
	insertCommand = `INSERT INTO commands (seq, id, owner, kind, session, status, settled, finished_at, bytes,
		read_stdout, read_stderr, reported, yield_stdout, yield_stderr, facts)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	insertBody = `INSERT INTO bodies (seq, spec, stdout, stderr) VALUES (?, ?, ?, ?)`
	isInserted = `SELECT 1 FROM commands WHERE id = ? AND seq = ?`

	insertKey = `INSERT INTO idempotency_keys (owner, route, name, body, id, taken_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	isOwnKey  = `SELECT 1 FROM idempotency_keys WHERE owner = ? AND route = ? AND name = ? AND body = ? AND id = ?`

	yield = `UPDATE commands SET kind = 'background', yield_stdout = ?, yield_stderr = ?
		WHERE id = ? AND kind = 'foreground' AND settled = 0`
	hasYielded = `SELECT 1 FROM commands WHERE id = ? AND yield_stdout IS NOT NULL`

	settle = `UPDATE commands SET kind = ?, session = ?, status = ?, settled = 1, finished_at = ?, bytes = ?,
		yield_stdout = ?, yield_stderr = ?, facts = ? WHERE id = ? AND settled = 0`
	settleBody = `UPDATE bodies SET spec = ?, stdout = ?, stderr = ? WHERE seq = (SELECT seq FROM commands WHERE id = ?)`

	advance = `UPDATE commands SET read_stdout = max(read_stdout, ?), read_stderr = max(read_stderr, ?),
		reported = max(reported, ?) WHERE id = ?`

	fillProbe  = `INSERT INTO probe (id, filler) VALUES (1, zeroblob(?)) ON CONFLICT DO UPDATE SET filler = excluded.filler`
	emptyProbe = `DELETE FROM probe`

	deleteCommand = `DELETE FROM commands WHERE id = ?`
	deleteKeys    = `DELETE FROM idempotency_keys WHERE taken_at < ?`
)

// writeStatements are prepared on both writers when the database is opened.
var writeStatements = []string{
	insertCommand, insertBody, isInserted, insertKey, isOwnKey, yield, hasYielded,
	settle, settleBody, advance, deleteCommand, deleteKeys, fillProbe, emptyProbe,
}

// What a Delete gives back to the file system, in pages of 4 KiB: what is free beyond a
// reserve for what is written next, so much at most.
const (
	pagesKeptFree  = 64
	pagesGivenBack = 512
)

// write runs f in a transaction of p.
func (db *DB) write(p *pool, what string, f func(tx) error) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.transact(p, f); err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	db.trimLog()
	return nil
}

func (db *DB) transact(p *pool, f func(tx) error) error {
	if err := db.present(); err != nil {
		return err
	}
	t, err := p.Begin()
	if err != nil {
		return err
	}
	if err := f(tx{p, t}); err != nil {
		// It fails where SQLite has rolled back by itself, as it does on a full disk.
		_ = t.Rollback()
		return err
	}
	return t.Commit()
}

// trimLog empties the -wal file where overlapping readers have kept the checkpoints that come
// with commits from doing so. It waits for them but for a moment, and not again soon if that was in vain, as it is
// while another program reads. What goes wrong here goes wrong again in the next write, and is told there.
func (db *DB) trimLog() {
	if db.logBytes() <= walTooLong || time.Now().Before(db.trimAfter) {
		return
	}
	for _, pragma := range []string{
		"busy_timeout = " + strconv.FormatInt(walTrimTimeout.Milliseconds(), 10),
		"wal_checkpoint(TRUNCATE)",
		"busy_timeout = " + strconv.FormatInt(busyTimeout.Milliseconds(), 10),
	} {
		_, _ = db.process.Exec("PRAGMA " + pragma)
	}
	if db.logBytes() > walTooLong {
		db.trimAfter = time.Now().Add(walTrimPause)
	}
}

// logBytes is the length of the -wal file.
func (db *DB) logBytes() int64 {
	st, err := os.Stat(db.path + "-wal")
	if err != nil {
		return 0
	}
	return st.Size()
}

// Insert is [exec.Store].Insert. To insert a record that is there already, by the same id and Seq, is no
// error and changes nothing: it is the same call made again. So is taking a key that it has taken.
func (db *DB) Insert(r exec.Record, key *exec.Key) error {
	row, err := encode(r)
	if err != nil {
		return err
	}
	p := db.process
	if key != nil {
		p = db.power
	}
	return db.write(p, "insert "+r.Run.ID, func(t tx) error {
		n, err := t.exec(insertCommand, r.Seq, r.Run.ID, string(r.Run.Owner), row.kind, row.session, row.status, row.settled, row.finishedAt, r.Bytes,
			r.ReadStdout, r.ReadStderr, r.Reported, row.yieldStdout, row.yieldStderr, row.facts)
		switch {
		case err != nil:
			return err
		case n == 0:
			err = sameRecord(t, r)
		default:
			_, err = t.exec(insertBody, r.Seq, row.spec, r.Run.Stdout.Tail, r.Run.Stderr.Tail)
		}
		if err != nil || key == nil {
			return err
		}
		return takeKey(t, *key, r.Run.ID)
	})
}

// sameRecord returns an error if the record in r's place is another one.
func sameRecord(t tx, r exec.Record) error {
	there, err := t.exists(isInserted, r.Run.ID, r.Seq)
	if err == nil && !there {
		err = fmt.Errorf("its id or its number %d belongs to another record", r.Seq)
	}
	return err
}

func takeKey(t tx, k exec.Key, id string) error {
	owner, route := string(k.Owner), string(k.Route)
	n, err := t.exec(insertKey, owner, route, k.Name, k.Body[:], id, time.Now().UnixMicro())
	if err != nil || n == 1 {
		return err
	}
	own, err := t.exists(isOwnKey, owner, route, k.Name, k.Body[:], id)
	if err == nil && !own {
		err = exec.ErrKeyTaken
	}
	return err
}

// Yield is [exec.Store].Yield. Error: exec.ErrNoRecord without a running foreground run of that id, since
// then nothing is there that could outlive the process. A run that has yielded keeps its point.
func (db *DB) Yield(id string, at exec.YieldPoint) error {
	return db.write(db.process, "yield "+id, func(t tx) error {
		n, err := t.exec(yield, at.Stdout, at.Stderr, id)
		if err != nil || n == 1 {
			return err
		}
		done, err := t.exists(hasYielded, id)
		if err == nil && !done {
			err = exec.ErrNoRecord
		}
		return err
	})
}

// Settle is [exec.Store].Settle. The owner stays too. A status that is not terminal is refused.
func (db *DB) Settle(r exec.Record) error {
	if !r.Run.Status.Terminal() {
		return fmt.Errorf("store: settle %s: the status %q is not terminal", r.Run.ID, r.Run.Status)
	}
	row, err := encode(r)
	if err != nil {
		return err
	}
	return db.write(db.process, "settle "+r.Run.ID, func(t tx) error {
		n, err := t.exec(settle, row.kind, row.session, row.status, row.finishedAt, r.Bytes, row.yieldStdout, row.yieldStderr, row.facts, r.Run.ID)
		if err != nil || n == 0 {
			return err
		}
		_, err = t.exec(settleBody, row.spec, r.Run.Stdout.Tail, r.Run.Stderr.Tail, r.Run.ID)
		return err
	})
}

// Advance is [exec.Store].Advance. An unknown id is no error: the record may just have been deleted.
func (db *DB) Advance(id string, stdout, stderr int64, reported bool) error {
	return db.write(db.process, "advance "+id, func(t tx) error {
		_, err := t.exec(advance, stdout, stderr, reported, id)
		return err
	})
}

// Delete is [exec.Store].Delete.
func (db *DB) Delete(ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	err := db.write(db.process, "delete", func(t tx) error {
		for _, id := range ids {
			if _, err := t.exec(deleteCommand, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		db.shrink()
	}
	return err
}

// shrink gives free pages back to the file system. It is a transaction of its own: on a full
// disk a Delete must not fail for what only tidies up. Errors are left to the next write to tell.
func (db *DB) shrink() {
	db.mu.Lock()
	defer db.mu.Unlock()
	var free int64
	if err := db.process.QueryRow("PRAGMA freelist_count").Scan(&free); err != nil || free <= pagesKeptFree {
		return
	}
	n := min(free-pagesKeptFree, pagesGivenBack)
	_, _ = db.process.Exec("PRAGMA incremental_vacuum(" + strconv.FormatInt(n, 10) + ")")
}

// ExpireKeys is [exec.Store].ExpireKeys.
func (db *DB) ExpireKeys(before time.Time) error {
	return db.write(db.process, "expire keys", func(t tx) error {
		_, err := t.exec(deleteKeys, before.UnixMicro())
		return err
	})
}

// probeBytes is more than the record of a command without collected output takes: where so much goes in, those do.
const probeBytes = 48 << 10

// Probe is [exec.Store].Probe. It writes a row of that length and removes it again.
func (db *DB) Probe() error {
	err := db.write(db.power, "probe", func(t tx) error {
		_, err := t.exec(fillProbe, probeBytes)
		return err
	})
	if err != nil {
		return err
	}
	return db.write(db.process, "probe", func(t tx) error {
		_, err := t.exec(emptyProbe)
		return err
	})
}
