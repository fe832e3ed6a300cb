package reclaim

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mode is of a path, or of nothing.
func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// TestWay takes the modes of a file and of each directory above it.
func TestWay(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	file := filepath.Join(top, "a", "b", "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if mended, err := Way(file); len(mended) > 0 || err != nil {
		t.Errorf("nothing was wrong: %q %v", mended, err)
	}
	taken := []string{top, filepath.Join(top, "a"), filepath.Join(top, "a", "b"), file}
	for _, path := range slices.Backward(taken) {
		if err := os.Chmod(path, 0o044); err != nil {
			t.Fatal(err)
		}
	}
	if mended, err := Way(file); !slices.Equal(mended, taken) || err != nil {
		t.Errorf("mended %q, %v", mended, err)
	}
	for _, path := range taken {
		want := fs.FileMode(0o744)
		if path == file {
			want = 0o644
		}
		if got := mode(t, path); got != want {
			t.Errorf("%s: %04o, want %04o: the owner's permissions, and nobody else's", path, got, want)
		}
	}
	if mended, err := Way(filepath.Join(top, "missing", "file")); len(mended) > 0 || err != nil {
		t.Errorf("what does not exist: %q %v", mended, err)
	}
}

// TestLinksAreNotFollowed: a link must not lead to somebody's file.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if mended, err := Way(link); len(mended) > 0 || err != nil || mode(t, victim) != 0 {
		t.Errorf("mended %q, %v, the victim is %04o", mended, err, mode(t, victim))
	}
}

// TestForeignFiles: what belongs to somebody else stays as it is.
func TestForeignFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file that belongs to somebody else")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if mended, err := Way(file); len(mended) > 0 || err != nil || mode(t, file) != 0 {
		t.Errorf("mended %q, %v, it is %04o", mended, err, mode(t, file))
	}
}
