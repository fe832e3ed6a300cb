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

// TestWay takes the permissions of directories one below the other.
func TestWay(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	dirs := []string{top, filepath.Join(top, "a"), filepath.Join(top, "a", "b")}
	last := dirs[2]
	if err := os.MkdirAll(last, 0o755); err != nil {
		t.Fatal(err)
	}
	take := func(mode fs.FileMode) {
		t.Helper()
		for _, dir := range slices.Backward(dirs) {
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, usable := range []fs.FileMode{0o755, 0o555, 0o111} { // the last two by the owner's own will, as /proc
		take(usable)
		if mended, err := Way(last); len(mended) > 0 || err != nil || mode(t, top) != usable {
			t.Errorf("%04o: mended %q, %v", usable, mended, err)
		}
		if err := os.Chmod(top, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	take(0o755)
	take(0o044)
	if mended, err := Way(last); !slices.Equal(mended, dirs) || err != nil {
		t.Errorf("mended %q, %v", mended, err)
	}
	for _, dir := range dirs {
		if got := mode(t, dir); got != 0o744 {
			t.Errorf("%s: %04o: want the owner's permissions, and nobody else's", dir, got)
		}
	}
	if mended, err := Way(filepath.Join(top, "missing", "dir")); len(mended) > 0 || err != nil {
		t.Errorf("what does not exist: %q %v", mended, err)
	}
	take(0o555)
	if err := Dir(last); err != nil || mode(t, last) != 0o755 || mode(t, top) != 0o555 {
		t.Errorf("%v, %04o below %04o", err, mode(t, last), mode(t, top))
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dirs[1], 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestLinksAreNotFollowed: a link must not lead to somebody's file.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.Mkdir(victim, 0); err != nil {
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
	file := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(file, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if mended, err := Way(file); len(mended) > 0 || err != nil || mode(t, file) != 0 {
		t.Errorf("mended %q, %v, it is %04o", mended, err, mode(t, file))
	}
}
