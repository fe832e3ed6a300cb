package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

func openTemp(tb testing.TB) *DB {
	tb.Helper()
	db, err := Open(filepath.Join(tb.TempDir(), "bashd.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// running is a record like that of a usual command, and settled what becomes of it.
func running(seq int64) exec.Record {
	return exec.Record{Seq: seq, Run: exec.Run{
		ID: fmt.Sprintf("bash-%026d", seq), Owner: "alice", Kind: exec.Background, Status: exec.StatusRunning,
		Spec: exec.Spec{
			Command: "cd src && go test ./... 2>&1 | tail -n 50", Description: "Run the tests", Workdir: "/home/alice/workspace/project",
			Session: "s1", Env: map[string]string{"CI": ""}, Mode: sandbox.ReadOnly, Owner: "alice", WorkspaceRoot: "/home/alice/workspace",
			StdoutMaxBytes: 64000, StderrMaxBytes: 64000, Encoding: exec.EncodingText,
		},
		Sandbox: exec.SandboxFacts{Mode: sandbox.ReadOnly}, StartedAt: time.Now(),
	}}
}

func settled(seq int64) exec.Record {
	r := running(seq)
	r.Run.Status, r.Run.ExitCode, r.Bytes = exec.StatusCompleted, new(0), 2000
	r.Run.FinishedAt, r.Run.Duration = r.Run.StartedAt.Add(time.Second), time.Second
	r.Run.Stdout = exec.Stream{Tail: make([]byte, 500), Bytes: 500}
	r.Run.Sandbox.Enforcement, r.Run.Sandbox.Gaps = sandbox.Partial, []string{"metadata"}
	r.Run.Usage = sandbox.Usage{User: time.Second, System: time.Second, MaxRSSBytes: 1 << 20}
	return r
}

// filled is a database with that many settled records, every hundredth of them failed.
func filled(tb testing.TB, n int64) *DB {
	tb.Helper()
	db := openTemp(tb)
	for seq := int64(1); seq <= n; seq++ {
		r := settled(seq)
		if seq%100 == 0 {
			r.Run.Status = exec.StatusFailed
		}
		if err := db.Insert(r, nil); err != nil {
			tb.Fatal(err)
		}
	}
	return db
}

func BenchmarkInsert(b *testing.B) {
	db := openTemp(b)
	seq := int64(0)
	for b.Loop() {
		seq++
		if err := db.Insert(running(seq), nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInsertWithKey(b *testing.B) {
	db := openTemp(b)
	seq := int64(0)
	for b.Loop() {
		seq++
		key := exec.Key{Owner: "alice", Route: exec.Background, Name: fmt.Sprint(seq)}
		if err := db.Insert(running(seq), &key); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSettle settles records among 10,000 that are settled.
func BenchmarkSettle(b *testing.B) {
	db := filled(b, 10_000)
	seq := int64(10_000)
	for b.Loop() {
		b.StopTimer()
		seq++
		if err := db.Insert(running(seq), nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := db.Settle(settled(seq)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommand is what one command costs: its admission and its end.
func BenchmarkCommand(b *testing.B) {
	db := filled(b, 10_000)
	seq := int64(10_000)
	for b.Loop() {
		seq++
		if err := db.Insert(running(seq), nil); err != nil {
			b.Fatal(err)
		}
		if err := db.Settle(settled(seq)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	db := filled(b, 10_000)
	middle := settled(5000).Run.ID
	page := exec.Query{Owner: "alice", Kind: exec.Background, Limit: 50}
	for name, read := range map[string]func() error{
		"Get":  func() error { _, err := db.Get(middle); return err },
		"List": func() error { _, err := db.List(page); return err },
		"ListBefore": func() error {
			q := page
			q.Before = 5000
			_, err := db.List(q)
			return err
		},
		"ListSession": func() error {
			q := page
			q.Session = "s1"
			_, err := db.List(q)
			return err
		},
		"ListRareStatus": func() error {
			q := page
			q.Statuses = []exec.Status{exec.StatusFailed}
			_, err := db.List(q)
			return err
		},
		"ListNothing": func() error {
			q := page
			q.Statuses = []exec.Status{exec.StatusKilled}
			_, err := db.List(q)
			return err
		},
		"Oldest":        func() error { _, err := db.Oldest(nil, 100); return err },
		"OldestOfOwner": func() error { _, err := db.Oldest(new(exec.Owner("alice")), 100); return err },
		"Usage":         func() error { _, err := db.Usage(); return err },
		"Probe":         db.Probe,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	db := filled(b, 10_000)
	db.Close()
	for b.Loop() {
		again, err := Open(db.path)
		if err != nil {
			b.Fatal(err)
		}
		again.Close()
	}
}
