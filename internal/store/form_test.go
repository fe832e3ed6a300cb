package store

import (
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"bashd/internal/exec"
	"bashd/internal/sandbox"
)

// whole is a run in which everything that is stored has a value.
func whole() exec.Run {
	return exec.Run{
		ID: "bash-x", Owner: "alice", Kind: exec.Background, Status: exec.StatusKilled,
		Spec: exec.Spec{
			Command: "echo <a> & b\n", Description: "d", Workdir: "/w", Session: "s", Timeout: time.Minute + 1, HasStdin: true, StdinBytes: 3,
			Env: map[string]string{"B": "", "A": ""}, Mode: sandbox.ReadOnly, Owner: "alice", WorkspaceRoot: "/r", StdoutMaxBytes: 4,
			StderrMaxBytes: 5, MergeStderr: true, StdinOpen: true, Encoding: exec.EncodingBase64,
		},
		ExitCode: new(0), Signal: syscall.SIGKILL, Cause: exec.CauseTimeout, Detail: "why",
		Stdout: exec.Stream{Truncated: true, Bytes: 6, RetainedFrom: 7, HasFile: true}, Stderr: exec.Stream{Bytes: 8},
		Sandbox: exec.SandboxFacts{
			Mode: sandbox.ReadOnly, Enforcement: sandbox.Partial, Gaps: []string{"g1", "g2"}, Denied: true,
			Denial: &exec.Denial{Path: "/p", Evidence: "e"}, Hint: "h", RunnerFailed: true,
		},
		StartedAt: time.UnixMicro(1_700_000_000_000_001).UTC(), Duration: 9, DrainIncomplete: true, SurvivorsKilled: 10, CleanupIncomplete: true,
		Usage: sandbox.Usage{User: 11, System: 12, MaxRSSBytes: 13},
	}
}

// The stored forms as they are on disks. A change here makes stored records unreadable: it needs a migration.
const (
	goldenFacts = `{"command":"echo <a> & b\n","description":"d","timeoutNs":60000000001,"exitCode":0,"signal":9,"cause":"timeout","detail":"why",` +
		`"stdout":{"truncated":true,"bytes":6,"retainedFrom":7,"hasFile":true},"stderr":{"bytes":8},` +
		`"sandbox":{"mode":"read-only","enforcement":"partial","gaps":["g1","g2"],"denied":true,"denial":{"path":"/p","evidence":"e"},"hint":"h","runnerFailed":true},` +
		`"startedAtUs":1700000000000001,"durationNs":9,"drainIncomplete":true,"survivorsKilled":10,"cleanupIncomplete":true,` +
		`"usage":{"userNs":11,"systemNs":12,"maxRssBytes":13}}`
	goldenSpec = `{"command":"echo <a> & b\n","description":"d","workdir":"/w","timeoutNs":60000000001,"hasStdin":true,"stdinBytes":3,"envNames":["A","B"],` +
		`"mode":"read-only","workspaceRoot":"/r","stdoutMaxBytes":4,"stderrMaxBytes":5,"mergeStderr":true,"stdinOpen":true,"encoding":"base64"}`
)

func TestStoredForm(t *testing.T) {
	run := whole()
	row, err := encode(exec.Record{Run: run})
	if err != nil {
		t.Fatal(err)
	}
	if row.facts != goldenFacts {
		t.Errorf("facts are\n%s\nwant\n%s", row.facts, goldenFacts)
	}
	if row.spec != goldenSpec {
		t.Errorf("the spec is\n%s\nwant\n%s", row.spec, goldenSpec)
	}
	got := exec.Run{ID: run.ID, Owner: run.Owner, Kind: run.Kind, Status: run.Status, Spec: exec.Spec{Owner: run.Owner, Session: run.Spec.Session}}
	if err := errors.Join(decodeFacts([]byte(goldenFacts), &got), decodeSpec([]byte(goldenSpec), &got)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, run) {
		t.Errorf("read back:\n%+v\nwant\n%+v", got, run)
	}
}

// TestDamagedForm: what can be read of a damaged record is told, with the damage, and the others stay readable.
func TestDamagedForm(t *testing.T) {
	for _, column := range []string{"commands.facts", "bodies.spec"} {
		table, name, _ := strings.Cut(column, ".")
		for _, damage := range []string{"", "{", `{"command":1}`, `{"envNames":"x","exitCode":"x"}`, "null null", "\x00"} {
			db := openTemp(t)
			insertAll(t, db, settled(1), settled(2))
			if _, err := db.process.Exec("UPDATE "+table+" SET "+name+" = ? WHERE seq = 1", damage); err != nil {
				t.Fatal(err)
			}
			if r, err := db.Get(settled(1).Run.ID); err != nil || r.Run.Detail != damaged || r.Run.Status != settled(1).Run.Status {
				t.Errorf("%s %q: get says %+v %v", column, damage, r, err)
			}
			if r, err := db.Get(settled(2).Run.ID); err != nil || r.Run.Detail == damaged {
				t.Errorf("%s %q: the other one: %+v %v", column, damage, r, err)
			}
			list, err := db.List(exec.Query{Owner: "alice", Kind: exec.Background, Limit: 5})
			if err != nil || len(list) != 2 || (list[1].Run.Detail == damaged) != (name == "facts") {
				t.Errorf("%q: list says %+v %v", damage, list, err)
			}
			if err := db.Delete(settled(1).Run.ID); err != nil {
				t.Errorf("%s %q: it cannot be removed: %v", column, damage, err)
			}
		}
	}
}

// FuzzDecode: whatever is stored, it is decoded or refused with the id, and what is decoded is stored again
// as the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(goldenFacts), []byte(goldenSpec))
	f.Add([]byte("{}"), []byte("null"))
	f.Add([]byte(`{"exitCode":1e999}`), []byte(`{"envNames":["",""]}`))
	f.Add([]byte(`{"sandbox":{"denial":{}}}`), []byte("[]"))
	f.Fuzz(func(t *testing.T, facts, spec []byte) {
		r := exec.Record{Run: exec.Run{ID: "bash-x"}}
		for _, err := range []error{decodeFacts(facts, &r.Run), decodeSpec(spec, &r.Run)} {
			if err != nil {
				if !strings.Contains(err.Error(), "bash-x") {
					t.Errorf("%v does not name the record", err)
				}
				return
			}
		}
		row, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		again := exec.Run{ID: "bash-x"}
		if err := errors.Join(decodeFacts([]byte(row.facts), &again), decodeSpec([]byte(row.spec), &again)); err != nil {
			t.Fatal(err)
		}
		if len(r.Run.Sandbox.Gaps) == 0 {
			r.Run.Sandbox.Gaps = nil // none are stored as none
		}
		if !reflect.DeepEqual(r.Run, again) {
			t.Errorf("first  %+v\nsecond %+v", r.Run, again)
		}
		if !utf8.ValidString(row.facts + row.spec) {
			t.Error("stored as invalid text")
		}
	})
}
