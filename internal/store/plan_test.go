package store

import (
	"fmt"
	"strings"
	"testing"

	"bashd/internal/exec"
)

// plan is how SQLite answers a query, one step a line.
func plan(t *testing.T, db *DB, query string, args ...any) string {
	t.Helper()
	rows, err := db.read.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(steps, "\n")
}

// TestPlans: every query takes its rows from an index in order. None sorts, and none looks at a row
// of the table that it does not return, but for a filter by status, which looks at the index.
func TestPlans(t *testing.T) {
	db := openTemp(t)
	want := func(query string, args []any, uses ...string) {
		t.Helper()
		got := plan(t, db, query, args...)
		if strings.Contains(got, "TEMP B-TREE") || strings.Contains(got, "AUTOMATIC") {
			t.Errorf("%s\nsorts:\n%s", query, got)
		}
		for _, use := range uses {
			if !strings.Contains(got, use) {
				t.Errorf("%s\ndoes not use %s:\n%s", query, use, got)
			}
		}
		for step := range strings.SplitSeq(got, "\n") {
			if strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, " USING ") && !strings.HasSuffix(step, " usage") {
				t.Errorf("%s\nreads a whole table:\n%s", query, got)
			}
		}
	}
	for _, owner := range []exec.Owner{"", "alice"} {
		for _, session := range []string{"", "s1"} {
			for _, before := range []int64{0, 5} {
				for statuses := range 3 {
					query, args, some := listQuery(exec.Query{
						Owner: owner, Kind: exec.Background, Session: session, Statuses: terminal[:statuses], Before: before, Limit: 50,
					})
					if !some {
						t.Fatal("no query")
					}
					index, merge := "INDEX commands_listed (owner=? AND kind=? AND seq<?)", "SEARCH"
					if session != "" {
						index = "INDEX commands_of_session (owner=? AND kind=? AND session=? AND seq<?)"
					}
					if owner != "" {
						merge = "MERGE (UNION ALL)"
					}
					want(query, args, index, merge)
				}
			}
		}
	}
	want(getRecord, []any{"id"}, "(id=?)")
	want(getUnsettled, nil, "commands_unsettled")
	want(oldestOfAll, []any{1}, "commands_by_age")
	want(oldestOfOwner, []any{"alice", 1}, "commands_of_owner_by_age (owner=?)")
	want(usageByOwner, nil)
	want(lastSeq, nil)
	want(lookupKey, []any{"", "", ""}, "(owner=? AND route=? AND name=?)")
	want(deleteKeys, []any{1}, "idempotency_keys_by_age")
	want(settle, []any{"", "", "", 1, 1, nil, nil, "", "id"}, "(id=?)")
	want(deleteCommand, []any{"id"}, "(id=?)")
}

// TestUsageStaysTrue: the sums that triggers keep are those of the records.
func TestUsageStaysTrue(t *testing.T) {
	db := openTemp(t)
	for seq := range int64(200) {
		r := running(seq + 1)
		r.Run.Owner = exec.Owner(fmt.Sprint("owner", seq%7))
		insertAll(t, db, r)
		if seq%3 > 0 {
			r.Run.Status, r.Bytes = exec.StatusKilled, seq*seq
			if err := db.Settle(r); err != nil {
				t.Fatal(err)
			}
		}
		if seq%5 == 0 {
			if err := db.Delete(running(seq/2+1).Run.ID, running(seq+1).Run.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	wrong := scalar(t, db, `SELECT count(*) FROM (SELECT owner, count(*) AS records, sum(bytes) AS bytes FROM commands WHERE settled = 1 GROUP BY owner) c
		FULL JOIN usage u USING (owner) WHERE c.records IS NOT u.records OR c.bytes IS NOT u.bytes`)
	if wrong != 0 || scalar(t, db, "SELECT count(*) FROM usage") != 7 {
		t.Errorf("%d owners have wrong sums", wrong)
	}
}
