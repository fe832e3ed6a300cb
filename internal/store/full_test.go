package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bashd/internal/exec"
)

// thick is a settled record that takes some room.
func thick(seq int64) exec.Record {
	r := settled(seq)
	r.Run.Stdout.Tail = make([]byte, 20<<10)
	return r
}

// fillUp inserts until nothing goes in any more, looks whether what was promised is there, has relieve make
// room and looks whether everything goes on.
func fillUp(db *DB, relieve func() error) error {
	if err := db.Insert(running(1), nil); err != nil {
		return err
	}
	last := int64(1)
	for err := error(nil); err == nil; {
		if err = db.Insert(thick(last+1), nil); err == nil {
			last++
		}
		if last > 2000 {
			return errors.New("it never becomes full")
		}
	}
	if err := wantFull(db, last); err != nil {
		return err
	}
	if err := relieve(); err != nil {
		return err
	}
	err := errors.Join(
		db.Probe(), db.Insert(thick(last+1), nil), db.Settle(settled(1)), db.Delete(thick(2).Run.ID),
		db.Insert(running(last+2), &exec.Key{Owner: "alice", Route: exec.Background, Name: "k"}),
	)
	if err != nil {
		return fmt.Errorf("after there is room again: %w", err)
	}
	if r, err := db.Get(running(1).Run.ID); err != nil || !r.Run.Status.Terminal() {
		return fmt.Errorf("what was settled is %s, %w", r.Run.Status, err)
	}
	return nil
}

// wantFull: large writes fail, reads go on.
func wantFull(db *DB, last int64) error {
	key := exec.Key{Owner: "alice", Route: exec.Background, Name: "k"}
	for range 3 {
		if db.Insert(thick(last+1), nil) == nil || db.Insert(thick(last+1), &key) == nil {
			return errors.New("an insert succeeds")
		}
	}
	for seq := int64(1); seq <= last; seq++ {
		if _, err := db.Get(running(seq).Run.ID); err != nil {
			return fmt.Errorf("%d of %d: %w", seq, last, err)
		}
	}
	if _, err := db.LookupKey(key); !errors.Is(err, exec.ErrNoRecord) {
		return fmt.Errorf("a key of a failed insert: %w", err)
	}
	if found, err := db.List(exec.Query{Owner: "alice", Kind: exec.Background, Limit: 10}); err != nil || len(found) == 0 || found[0].Seq != last {
		return fmt.Errorf("list: %v, %w", found, err)
	}
	return nil
}

// TestDatabaseFull: SQLite's own limit stands in for that of a disk.
func TestDatabaseFull(t *testing.T) {
	db := openTemp(t)
	limit := func(pages int) error {
		var errs []error
		for _, p := range []*pool{db.process, db.power} {
			_, err := p.Exec(fmt.Sprint("PRAGMA max_page_count = ", pages))
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if err := limit(200); err != nil {
		t.Fatal(err)
	}
	if err := fillUp(db, func() error { return limit(1 << 30) }); err != nil {
		t.Error(err)
	}
}

// childFill works on a file system of two megabytes, a part of which a file takes that can be removed.
func childFill(dir string) error {
	if err := unix.Mount("store", dir, "tmpfs", 0, "size=2m"); err != nil {
		return fmt.Errorf("%s: %w", noMount, err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	db, err := Open(filepath.Join(dir, "bashd.db"))
	if err != nil {
		return err
	}
	err = fillUp(db, func() error {
		if db.Probe() == nil && db.Insert(thick(5000), nil) == nil {
			return errors.New("the disk is not full at all")
		}
		return os.Remove(ballast)
	})
	if err != nil {
		return err
	}
	// A full disk keeps nobody from starting after a crash, nor from seeing what is there. (After an orderly end the files
	// beside the database are gone, and SQLite needs room for them.)
	if err := fillDisk(filepath.Join(dir, "rest")); err != nil {
		return err
	}
	again, err := Open(db.path)
	if err != nil {
		return fmt.Errorf("opening it on a full disk: %w", err)
	}
	_, err = again.Get(running(1).Run.ID)
	return errors.Join(err, again.Close(), db.Close())
}

// fillDisk writes a file until nothing more goes in.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, size := range []int{64 << 10, 4 << 10} {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
		err = nil
	}
	return f.Close()
}

const noMount = "no file system of its own"

// TestDiskFull is TestDatabaseFull on a real file system.
func TestDiskFull(t *testing.T) {
	cmd := child(t, "fill", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if errors.Is(err, os.ErrPermission) || strings.Contains(string(out), noMount) {
		t.Skipf("namespaces are not to be had: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

const immutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h

// freeze makes files that even root cannot change, and returns what undoes that.
func freeze(t *testing.T, paths ...string) (thaw func()) {
	t.Helper()
	set := func(path string, frozen bool) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		if flags &^= immutable; frozen {
			flags |= immutable
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	thaw = func() {
		for _, path := range paths {
			_ = set(path, false)
		}
	}
	t.Cleanup(thaw)
	for _, path := range paths {
		if err := set(path, true); err != nil {
			t.Skipf("files cannot be made immutable here: %v", err)
		}
	}
	return thaw
}

// TestReadOnlyFile: writes fail, reads go on, and when it can be written again it is.
func TestReadOnlyFile(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1))
	thaw := freeze(t, db.path+"-wal")
	for range 3 {
		if db.Probe() == nil || db.Insert(running(2), nil) == nil {
			t.Fatal("it was written")
		}
	}
	if _, err := db.Get(settled(1).Run.ID); err != nil {
		t.Error(err)
	}
	thaw()
	if err := db.Probe(); err != nil {
		t.Error(err)
	}
	insertAll(t, db, running(2))
}

// TestOpenReadOnlyFile: what cannot be written is told at the start.
func TestOpenReadOnlyFile(t *testing.T) {
	db := openTemp(t)
	insertAll(t, db, settled(1))
	db.Close()
	if os.Getuid() == 0 {
		freeze(t, db.path)
	} else if err := os.Chmod(db.path, 0o400); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, db.path, "cannot be written")
}
