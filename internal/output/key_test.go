package output

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func openRoot(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, dir
}

func TestKeyIsMadeOnceAndStays(t *testing.T) {
	root, dir := openRoot(t)
	key, err := LoadOrCreateKey(root, "key")
	if err != nil || len(key) != KeyBytes || bytes.Equal(key, make([]byte, KeyBytes)) {
		t.Fatalf("%d bytes, %v", len(key), err)
	}
	again, err := LoadOrCreateKey(root, "key")
	if err != nil || !bytes.Equal(key, again) {
		t.Fatalf("another key the second time, or %v", err)
	}
	info, err := os.Lstat(filepath.Join(dir, "key"))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	otherRoot, _ := openRoot(t)
	if other, err := LoadOrCreateKey(otherRoot, "key"); err != nil || bytes.Equal(key, other) {
		t.Errorf("two directories share a key, or %v", err)
	}
}

// TestKeyRace: all who create it at once must go on with the same key.
func TestKeyRace(t *testing.T) {
	for range 20 {
		root, dir := openRoot(t)
		keys := make([][]byte, 16)
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() {
				key, err := LoadOrCreateKey(root, "key")
				if err != nil {
					t.Error(err)
				}
				keys[i] = key
			})
		}
		wg.Wait()
		for _, key := range keys {
			if !bytes.Equal(key, keys[0]) {
				t.Fatal("two keys")
			}
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("left behind: %v", entries)
		}
	}
}

func TestKeyRefusals(t *testing.T) {
	good := bytes.Repeat([]byte{9}, KeyBytes)
	write := func(name string, data []byte, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, prepare := range map[string]func(*testing.T, string){
		"empty":          write("key", nil, 0o600),
		"short":          write("key", good[1:], 0o600),
		"long":           write("key", append(good, 9), 0o600),
		"group-readable": write("key", good, 0o640),
		"group-writable": write("key", good, 0o620),
		"world-readable": write("key", good, 0o604),
		"symlink": func(t *testing.T, dir string) {
			write("target", good, 0o600)(t, dir)
			if err := os.Symlink("target", filepath.Join(dir, "key")); err != nil {
				t.Fatal(err)
			}
		},
		"dangling symlink": func(t *testing.T, dir string) {
			if err := os.Symlink("nowhere", filepath.Join(dir, "key")); err != nil {
				t.Fatal(err)
			}
		},
		"directory": func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "key"), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"fifo": func(t *testing.T, dir string) {
			if err := unix.Mkfifo(filepath.Join(dir, "key"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := openRoot(t)
			prepare(t, dir)
			before, err := os.Lstat(filepath.Join(dir, "key"))
			if err != nil {
				t.Fatal(err)
			}
			key, err := LoadOrCreateKey(root, "key")
			if err == nil || key != nil {
				t.Fatalf("accepted: %v", err)
			}
			if bytes.Contains([]byte(err.Error()), good[:8]) {
				t.Errorf("the error shows the key: %v", err)
			}
			after, err := os.Lstat(filepath.Join(dir, "key"))
			if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() || before.Size() != after.Size() {
				t.Error("what was refused was changed")
			}
			if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
				t.Error("a key was made at the end of the link")
			}
		})
	}
}

func TestKeyInUnwritableDirectory(t *testing.T) {
	root, dir := openRoot(t)
	if _, err := LoadOrCreateKey(root, "missing/key"); err == nil {
		t.Error("made a key in a directory that is not there")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	if _, err := LoadOrCreateKey(root, "../key"); err == nil {
		t.Error("left the root")
	}
}
