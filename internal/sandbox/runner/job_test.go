package runner

import (
	"reflect"
	"testing"
)

func TestJobRoundTrip(t *testing.T) {
	for _, j := range []Job{
		{},
		{
			Sequence: 1<<32 - 1, Shell: "/bin/bash", Argv: []string{"bash", "-c", "--", "echo \xff\n"}, Env: []string{"A=", "B=b\nc"},
			Limits: []Limit{{4, 0, 0}, {7, 1, ^uint64(0)}}, Nice: -3, OOMScore: 500,
			DropCaps: true, NoNewPriv: true, Rulesets: 2, Filter: "12345678", Sweeper: true, HasScript: true,
		},
	} {
		got, err := ParseJob(j.Append(nil))
		if err != nil || !reflect.DeepEqual(*got, j) {
			t.Errorf("got %+v %v, want %+v", got, err, j)
		}
	}
}

// FuzzParseJob: whatever comes, parsing ends, and what it accepts means what it says.
func FuzzParseJob(f *testing.F) {
	f.Add((&Job{Shell: "/bin/bash", Argv: []string{"bash"}, Env: []string{"A=b"}, Limits: []Limit{{4, 0, 0}}}).Append(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := ParseJob(b)
		if err != nil {
			return
		}
		again, err := ParseJob(j.Append(nil))
		if err != nil || !reflect.DeepEqual(again, j) {
			t.Errorf("%+v became %+v (%v)", j, again, err)
		}
	})
}

func TestRecordRoundTrip(t *testing.T) {
	want := Record{KindGone, 1, 1 << 40, 3, ^uint64(0)}
	if got, ok := ParseRecord(want.Append(nil)); !ok || got != want {
		t.Errorf("got %+v %v", got, ok)
	}
	if _, ok := ParseRecord(make([]byte, RecordSize-1)); ok {
		t.Error("a short record was taken")
	}
}
