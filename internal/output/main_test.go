package output

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk makes spill files in a directory of the test's own and counts what the log does with them.
type disk struct {
	path             string
	created, removed atomic.Int32
	spilled          atomic.Int64
}

func newDisk(tb testing.TB) *disk {
	return &disk{path: filepath.Join(tb.TempDir(), "spill")}
}

func (d *disk) options(tail int, spill int64, eager bool) Options {
	return Options{
		TailBytes: tail, SpillBytes: spill, Eager: eager,
		Create: func() (*os.File, error) {
			d.created.Add(1)
			return os.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		},
		Remove: func() error {
			d.removed.Add(1)
			return os.Remove(d.path)
		},
		OnSpill: func(n int) { d.spilled.Add(int64(n)) },
	}
}

// content returns the file, or nil when there is none.
func (d *disk) content(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile(d.path)
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	return data
}

// at is the byte that test streams have at offset o. It does not repeat within
// a ring or a page, so a byte from the wrong place shows.
func at(o int64) byte {
	x := uint64(o) * 0x9E3779B97F4A7C15
	return byte(x >> 56)
}

func stream(from, to int64) []byte {
	p := make([]byte, to-from)
	for i := range p {
		p[i] = at(from + int64(i))
	}
	return p
}

// openFiles counts this process's open descriptors of the given file, removed ones included.
func openFiles(tb testing.TB, path string) int {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && (target == path || target == path+" (deleted)") {
			n++
		}
	}
	return n
}
