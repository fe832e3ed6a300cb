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
			Limits: []Limit{{4, 0, 0}, {7, 1, ^uint64(0)}}, Rulesets: 2, HasScript: true,
			NullStdin: true, Workdir: "/w", TempRights: 1 << 40, Shows: []Show{{"/a", true, 1, 2}, {Path: "/b"}},
		},
	} {
		got, err := ParseJob(j.Append(nil))
		if err != nil || !reflect.DeepEqual(*got, j) {
			t.Errorf("got %+v %v, want %+v", got, err, j)
		}
	}
}

func TestSetupRoundTrip(t *testing.T) {
	for _, s := range []Setup{
		{},
		{Nice: -3, Slack: 50000, OOMScore: 500, DropCaps: true, NoNewPriv: true, SetUser: true, UID: 1, GID: 1<<32 - 1, Filter: "12345678", Sweeper: true},
		{World: &World{Hidden: []string{"/a", "/b"}, Links: []Link{{"/run/x", "y"}}, TempBytes: 1 << 40, MaxPid: 812}},
	} {
		got, err := ParseSetup(s.Append(nil))
		if err != nil || !reflect.DeepEqual(*got, s) {
			t.Errorf("got %+v %v, want %+v", got, err, s)
		}
	}
	// Nothing makes a command root by mistake.
	if s, err := ParseSetup((&Setup{SetUser: true, UID: 1}).Append(nil)); err == nil {
		t.Errorf("%+v was taken", s)
	}
}

// FuzzParseSetup: as FuzzParseJob.
func FuzzParseSetup(f *testing.F) {
	f.Add((&Setup{Filter: "12345678", World: &World{Hidden: []string{"/a"}, Links: []Link{{"/b", "c"}}}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSetup(b)
		if err != nil {
			return
		}
		again, err := ParseSetup(s.Append(nil))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v became %+v (%v)", s, again, err)
		}
	})
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
