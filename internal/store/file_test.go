package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bashd/internal/exec"
)

// TestModes: all files are for their owner alone, whatever the umask is.
func TestModes(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o777} {
		dir := t.TempDir()
		old := unix.Umask(mask)
		db, err := Open(filepath.Join(dir, "bashd.db"))
		unix.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		insertAll(t, db, settled(1))
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 3 {
			t.Fatalf("umask %o: %v, %v", mask, files, err)
		}
		for _, f := range files {
			if st, err := f.Info(); err != nil || st.Mode() != 0o600 {
				t.Errorf("umask %o: %s has mode %v, %v", mask, f.Name(), st.Mode(), err)
			}
		}
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b", "a?mode=memory", "a#b", "100%", "%41", "a&b=c;d", "é", "\xff", "file:x", ":memory:"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		db, err := Open(path)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		insertAll(t, db, settled(1))
		db = reopen(t, db)
		if _, err := db.Get(settled(1).Run.ID); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		db.Close()
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != name {
			t.Errorf("%q: the directory has %v, %v", name, files, err)
		}
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	db, err := Open("bashd.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	t.Chdir(t.TempDir())
	insertAll(t, db, settled(1))
}

// TestFilesRefused: each is refused in words, and left as it is.
func TestFilesRefused(t *testing.T) {
	good := func() []byte {
		db := openTemp(t)
		insertAll(t, db, settled(1))
		db.Close()
		data, err := os.ReadFile(db.path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}()
	damaged := func(from int, with string) []byte {
		data := bytes.Clone(good)
		copy(data[from:], with)
		return data
	}
	for name, c := range map[string]struct {
		data []byte
		mode os.FileMode
		want string
	}{
		"text":                {[]byte(strings.Repeat("no database\n", 1000)), 0o600, "not a SQLite database"},
		"short text":          {[]byte("x"), 0o600, "not a SQLite database"},
		"group-readable":      {good, 0o640, "chmod 600"},
		"world-writable":      {good, 0o602, "chmod 600"},
		"truncated":           {good[:len(good)/2], 0o600, "damaged"},
		"truncated oddly":     {good[:5000], 0o600, "damaged"},
		"damaged schema":      {damaged(100, strings.Repeat("\xff", 3900)), 0o600, "damaged"},
		"damaged records":     {damaged(len(good)/2, strings.Repeat("\xaa", len(good))), 0o600, "damaged"},
		"of another program":  {damaged(68, "abcd"), 0o600, "another program"},
		"of a newer version":  {damaged(60, "\x00\x00\x00\x07"), 0o600, "the database is of a newer bashd (schema 7; this one knows up to 1)"},
		"of no version":       {damaged(60, "\x00\x00\x00\x00"), 0o600, "damaged"},
		"of negative version": {damaged(60, "\xff\xff\xff\xff"), 0o600, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bashd.db")
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, path, c.want)
			if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, c.data) {
				t.Errorf("it was changed, %v", err)
			}
		})
	}
}

func wantRefused(t *testing.T, path, want string) {
	t.Helper()
	db, err := Open(path)
	if err == nil {
		db.Close()
		t.Fatal("opened")
	}
	if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("it says %q, want %q", err, want)
	}
}

// TestPathsRefused: what is not a file of its own is refused, at the path and beside it.
func TestPathsRefused(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"symlink": func(path string) error {
			if err := os.WriteFile(path+".target", nil, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".target", path)
		},
		"dangling symlink": func(path string) error { return os.Symlink(path+".nowhere", path) },
		"directory":        func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":             func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		for _, suffix := range append([]string{""}, sidecars...) {
			t.Run(name+suffix, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "bashd.db")
				if err := make(path + suffix); err != nil {
					t.Fatal(err)
				}
				wantRefused(t, path, "not a regular file")
				if st, err := os.Stat(path + suffix + ".target"); err == nil && st.Size() > 0 {
					t.Error("it was written through")
				}
				if _, err := os.Lstat(path + suffix + ".nowhere"); err == nil {
					t.Error("a file was made at the end of the link")
				}
			})
		}
	}
	path := filepath.Join(t.TempDir(), "missing", "bashd.db")
	wantRefused(t, path, "no such file or directory")
}

// TestFileRemoved: nothing is promised that nobody could read again.
func TestFileRemoved(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed":     os.Remove,
		"moved":       func(path string) error { return os.Rename(path, path+".old") },
		"cut":         func(path string) error { return os.Truncate(path, 0) },
		"log removed": func(path string) error { return os.Remove(path + "-wal") },
		"replaced": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTemp(t)
			insertAll(t, db, settled(1))
			if err := spoil(db.path); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{
				"probe": db.Probe(), "insert": db.Insert(running(2), nil), "settle": db.Settle(settled(2)),
				"insert with a key": db.Insert(running(3), &exec.Key{Owner: "alice", Name: "k"}),
			} {
				if err == nil || !strings.Contains(err.Error(), "the database") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if name == "cut" {
				return // nobody can read that
			}
			if _, err := db.Get(settled(1).Run.ID); err != nil {
				t.Errorf("it cannot be read any more: %v", err)
			}
		})
	}
}
