package sandbox_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

// place is what one attempt is made on: a directory of its own in what must not change, with a file and an empty directory
// in it, and a directory of its own where the command may write, with a file and links to the former in it.
type place struct{ out, in string }

func (p place) file() string  { return p.out + "/file" }
func (p place) dir() string   { return p.out + "/empty" }
func (p place) fresh() string { return p.out + "/new" }
func (p place) mine() string  { return p.in + "/mine" }

// Attributes of the file, one from the start.
const (
	attrThere = "user.bashd-there"
	attrNew   = "user.bashd-new"
)

// attempt is one way to change something.
type attempt struct {
	name     string
	gap      string // the gap that it is, where it succeeds outside; empty: it must never
	optional bool   // not every kernel, file system or user can do it even unconfined
	do       func(p place) error
}

// writes are the attempts of item 1.
var writes = []attempt{
	{"write", "", false, func(p place) error { return writeTo(p.file(), unix.O_WRONLY) }},
	{"append", "", false, func(p place) error { return writeTo(p.file(), unix.O_WRONLY|unix.O_APPEND) }},
	{"read-write", "", false, func(p place) error { return writeTo(p.file(), unix.O_RDWR) }},
	{"reopen", "", false, func(p place) error {
		return withOpen(p.file(), unix.O_RDONLY, func(fd int) error {
			return writeTo(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY)
		})
	}},
	{"by-root", "", false, func(p place) error { return writeTo("/proc/self/root"+p.file(), unix.O_WRONLY) }},
	{"by-link", "", false, func(p place) error { return writeTo(p.in+"/link", unix.O_WRONLY) }},
	{"by-directory-link", "", false, func(p place) error { return writeTo(p.in+"/dirlink/new", unix.O_WRONLY|unix.O_CREAT) }},
	{"by-descriptor", "", false, func(p place) error {
		return withOpen(p.out, unix.O_RDONLY|unix.O_DIRECTORY, func(dir int) error {
			fd, err := unix.Openat(dir, "file", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.Write(fd, []byte("X"))
			return err
		})
	}},
	{"map", "", false, func(p place) error {
		return withOpen(p.file(), unix.O_RDWR, func(fd int) error {
			b, err := unix.Mmap(fd, 0, 4, unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			b[0] = 'X'
			return unix.Munmap(b)
		})
	}},
	{"create", "", false, func(p place) error { return writeTo(p.fresh(), unix.O_WRONLY|unix.O_CREAT) }},
	{"create-unnamed", "", true, func(p place) error {
		return withOpen(p.out, unix.O_WRONLY|unix.O_TMPFILE, func(int) error { return nil })
	}},
	{"truncate", sandbox.GapTruncate, false, func(p place) error { return unix.Truncate(p.file(), 1) }},
	{"open-truncate", sandbox.GapTruncate, false, func(p place) error {
		return withOpen(p.file(), unix.O_RDONLY|unix.O_TRUNC, func(int) error { return nil })
	}},
	{"mkdir", "", false, func(p place) error { return unix.Mkdir(p.fresh(), 0o755) }},
	{"mkfifo", "", false, func(p place) error { return unix.Mkfifo(p.fresh(), 0o644) }},
	{"mknod-file", "", false, func(p place) error { return unix.Mknod(p.fresh(), unix.S_IFREG|0o644, 0) }},
	{"mknod-null", "", true, func(p place) error { return unix.Mknod(p.fresh(), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))) }},
	{"bind-socket", "", false, func(p place) error {
		return inDir(p.out, func() error { return bindSocket("new") })
	}},
	{"symlink", "", false, func(p place) error { return unix.Symlink("x", p.fresh()) }},
	{"unlink", "", false, func(p place) error { return unix.Unlink(p.file()) }},
	{"rmdir", "", false, func(p place) error { return unix.Rmdir(p.dir()) }},
	{"rename-out", "", false, func(p place) error { return unix.Rename(p.mine(), p.fresh()) }},
	{"rename-over", "", false, func(p place) error { return unix.Rename(p.mine(), p.file()) }},
	{"rename-in", "", false, func(p place) error { return unix.Rename(p.file(), p.in+"/taken") }},
	{"rename-beside", "", false, func(p place) error { return unix.Rename(p.file(), p.fresh()) }},
	{"rename-directory", "", false, func(p place) error { return unix.Rename(p.dir(), p.fresh()) }},
	{"exchange", "", false, func(p place) error {
		return unix.Renameat2(unix.AT_FDCWD, p.file(), unix.AT_FDCWD, p.mine(), unix.RENAME_EXCHANGE)
	}},
	{"whiteout", "", true, func(p place) error {
		return unix.Renameat2(unix.AT_FDCWD, p.file(), unix.AT_FDCWD, p.fresh(), unix.RENAME_WHITEOUT)
	}},
	{"link-in", "", false, func(p place) error { return unix.Link(p.file(), p.in+"/hard") }},
	{"link-out", "", false, func(p place) error { return unix.Link(p.mine(), p.fresh()) }},
	{"link-beside", "", false, func(p place) error { return unix.Link(p.file(), p.fresh()) }},
	{"link-descriptor", "", true, func(p place) error {
		return withOpen(p.file(), unix.O_RDONLY, func(fd int) error {
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p.in+"/hard", unix.AT_SYMLINK_FOLLOW)
		})
	}},
	{"copy-range", "", false, func(p place) error {
		return withOpen(p.mine(), unix.O_RDONLY, func(from int) error {
			return withOpen(p.file(), unix.O_WRONLY, func(to int) error {
				_, err := unix.CopyFileRange(from, nil, to, nil, 4, 0)
				return err
			})
		})
	}},
	{"by-another-thread", "", false, func(p place) error {
		failed := make(chan error)
		go func() { failed <- writeTo(p.file(), unix.O_WRONLY) }()
		return <-failed
	}},
}

// changes are the attempts of item 2.
var changes = []attempt{
	{"chmod", sandbox.GapMetadata, false, func(p place) error { return unix.Chmod(p.file(), 0o600) }},
	{"chmod-directory", sandbox.GapMetadata, false, func(p place) error { return unix.Chmod(p.dir(), 0o777) }},
	{"chmod-by-link", sandbox.GapMetadata, false, func(p place) error { return unix.Chmod(p.in+"/link", 0o600) }},
	{"fchmod", sandbox.GapMetadata, false, func(p place) error {
		return withRead(p, func(fd int) error { return unix.Fchmod(fd, 0o600) })
	}},
	{"chmod-descriptor", sandbox.GapMetadata, false, func(p place) error {
		return withOpen(p.file(), unix.O_PATH, func(fd int) error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o600) })
	}},
	{"fchmodat", sandbox.GapMetadata, false, func(p place) error { return unix.Fchmodat(unix.AT_FDCWD, p.file(), 0o600, 0) }},
	{"fchmodat2", sandbox.GapMetadata, true, func(p place) error {
		return raw(unix.SYS_FCHMODAT2, here, str(p.file()), 0o600, 0, 0)
	}},
	{"chown", sandbox.GapMetadata, false, func(p place) error { return unix.Chown(p.file(), os.Geteuid(), os.Getegid()) }},
	{"lchown", sandbox.GapMetadata, false, func(p place) error { return unix.Lchown(p.file(), os.Geteuid(), os.Getegid()) }},
	{"fchown", sandbox.GapMetadata, false, func(p place) error {
		return withRead(p, func(fd int) error { return unix.Fchown(fd, os.Geteuid(), os.Getegid()) })
	}},
	{"fchownat", sandbox.GapMetadata, false, func(p place) error {
		return unix.Fchownat(unix.AT_FDCWD, p.file(), os.Geteuid(), os.Getegid(), 0)
	}},
	{"utimensat", sandbox.GapTimestamps, false, func(p place) error { return unix.UtimesNanoAt(unix.AT_FDCWD, p.file(), past, 0) }},
	{"utimensat-now", sandbox.GapTimestamps, false, func(p place) error { return raw(unix.SYS_UTIMENSAT, here, str(p.file()), 0, 0) }},
	{"futimens", sandbox.GapTimestamps, false, func(p place) error {
		return withRead(p, func(fd int) error {
			return raw(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&past[0])), 0)
		})
	}},
	{"utimensat-directory", sandbox.GapTimestamps, false, func(p place) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p.dir(), past, 0)
	}},
	{"setxattr", sandbox.GapMetadata, false, func(p place) error { return unix.Setxattr(p.file(), attrNew, []byte("x"), 0) }},
	{"lsetxattr", sandbox.GapMetadata, false, func(p place) error { return unix.Lsetxattr(p.file(), attrNew, []byte("x"), 0) }},
	{"fsetxattr", sandbox.GapMetadata, false, func(p place) error {
		return withRead(p, func(fd int) error { return unix.Fsetxattr(fd, attrNew, []byte("x"), 0) })
	}},
	{"setxattrat", sandbox.GapMetadata, true, func(p place) error {
		value := []byte("x")
		args := struct {
			value       uintptr
			size, flags uint32
		}{uintptr(unsafe.Pointer(&value[0])), 1, 0}
		return raw(unix.SYS_SETXATTRAT, here, str(p.file()), 0, str(attrNew), uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	}},
	{"removexattr", sandbox.GapMetadata, false, func(p place) error { return unix.Removexattr(p.file(), attrThere) }},
	{"lremovexattr", sandbox.GapMetadata, false, func(p place) error { return unix.Lremovexattr(p.file(), attrThere) }},
	{"fremovexattr", sandbox.GapMetadata, false, func(p place) error {
		return withRead(p, func(fd int) error { return unix.Fremovexattr(fd, attrThere) })
	}},
	{"removexattrat", sandbox.GapMetadata, true, func(p place) error {
		return raw(unix.SYS_REMOVEXATTRAT, here, str(p.file()), 0, str(attrThere))
	}},
	{"acl", sandbox.GapMetadata, true, func(p place) error { return unix.Setxattr(p.file(), "system.posix_acl_access", acl(), 0) }},
	{"default-acl", sandbox.GapMetadata, true, func(p place) error {
		return unix.Setxattr(p.dir(), "system.posix_acl_default", acl(), 0)
	}},
	{"facl", sandbox.GapMetadata, true, func(p place) error {
		return withRead(p, func(fd int) error { return unix.Fsetxattr(fd, "system.posix_acl_access", acl(), 0) })
	}},
	{"chattr", sandbox.GapMetadata, true, func(p place) error {
		return withRead(p, func(fd int) error {
			flags := uint64(noDump)
			return raw(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_SETFLAGS, uintptr(unsafe.Pointer(&flags)))
		})
	}},
	{"xflags", sandbox.GapMetadata, true, func(p place) error {
		return withRead(p, func(fd int) error {
			attr := [7]uint32{xNoDump}
			return raw(unix.SYS_IOCTL, uintptr(fd), setXFlags, uintptr(unsafe.Pointer(&attr)))
		})
	}},
	{"set-version", sandbox.GapMetadata, true, func(p place) error {
		return withRead(p, func(fd int) error {
			version := uint64(7)
			return raw(unix.SYS_IOCTL, uintptr(fd), setVersion, uintptr(unsafe.Pointer(&version)))
		})
	}},
	{"file-setattr", sandbox.GapMetadata, true, func(p place) error {
		attr := [3]uint64{xNoDump}
		return raw(unix.SYS_FILE_SETATTR, here, str(p.file()), uintptr(unsafe.Pointer(&attr)), 24, 0)
	}},
}

// Numbers of linux/fs.h that package unix lacks.
const (
	noDump     = 0x40       // FS_NODUMP_FL
	xNoDump    = 0x80       // FS_XFLAG_NODUMP
	setXFlags  = 0x401c5820 // FS_IOC_FSSETXATTR
	setVersion = 0x40087602 // FS_IOC_SETVERSION
)

var past = []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}

// here is AT_FDCWD as a register holds it.
const here = ^uintptr(99)

func raw(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// strings that were handed to a system call stay where they are.
var kept [][]byte

func str(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

func withOpen(path string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

func withRead(p place, do func(fd int) error) error { return withOpen(p.file(), unix.O_RDONLY, do) }

func writeTo(path string, flags int) error {
	return withOpen(path, flags, func(fd int) error {
		_, err := unix.Write(fd, []byte("X"))
		return err
	})
}

func inDir(dir string, do func() error) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	err := do()
	if back := unix.Chdir("/"); err == nil {
		err = back
	}
	return err
}

func bindSocket(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: name})
}

// acl is what setfacl -m u:1:r writes.
func acl() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, 1<<32 - 1}, {2, 4, 1}, {4, 4, 1<<32 - 1}, {0x10, 4, 1<<32 - 1}, {0x20, 4, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// tables are the attempts by the name under which the command is told of them.
var tables = map[string][]attempt{"writes": writes, "changes": changes}

// attackFiles makes all attempts of a table on the places below OUT, with what it makes itself for them below IN.
func attackFiles() {
	for _, a := range tables[os.Getenv("TABLE")] {
		p := place{os.Getenv("OUT") + "/" + a.name, os.Getenv("IN") + "/" + a.name}
		if err := p.makeIn(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		tell(a.name, a.do(p))
	}
}

// makeIn makes the command's own part of a place.
func (p place) makeIn() error {
	if err := os.MkdirAll(p.in, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(p.mine(), []byte("mine"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink(p.file(), p.in+"/link"); err != nil {
		return err
	}
	return os.Symlink(p.out, p.in+"/dirlink")
}

// makePlaces makes what the attempts are made on, as the commands' own files, so that nothing but the sandbox refuses anything.
func (f *fixture) makePlaces(t *testing.T, dir string, table []attempt) {
	t.Helper()
	for _, a := range table {
		p := place{out: filepath.Join(dir, a.name)}
		must(t, os.MkdirAll(p.dir(), 0o755))
		must(t, os.WriteFile(p.file(), []byte("content"), 0o644))
		if err := unix.Setxattr(p.file(), attrThere, []byte("x"), 0); err != nil {
			t.Logf("attributes cannot be tried here: %v", err)
		}
	}
	f.grant(t, dir)
}

// TestPromise1To3Files:
//
//   - 1: nothing outside what a mode allows can be written, made, renamed, linked or removed.
//   - 2: where a mode is fully enforced no mode, owner, time, attribute, ACL or flag outside can be changed; where it
//     is not, the report says so, and of what.
//   - 3: a workspace that becomes a link lets nobody write where the link leads.
func TestPromise1To3Files(t *testing.T) {
	t.Parallel()
	everyTier(t, func(t *testing.T, f *fixture) {
		for item, table := range map[string]string{"1 writes": "writes", "2 metadata": "changes"} {
			for _, mode := range confinedModes {
				t.Run(item+"/"+string(mode), func(t *testing.T) { testAttempts(t, f, mode, table) })
			}
			t.Run(item+"/unconfined", func(t *testing.T) { controlAttempts(t, f, table) })
		}
		t.Run("1 what works", func(t *testing.T) { testWritesInside(t, f) })
		t.Run("3 replaced parent", func(t *testing.T) { testReplacedParent(t, f) })
		t.Run("3 swapped workspace", func(t *testing.T) { testSwappedWorkspace(t, f) }) // last: it leaves a link there
	})
}

func testAttempts(t *testing.T, f *fixture, mode sandbox.Mode, table string) {
	f.needs(t, mode)
	targets := map[string]string{"outside": f.out + "/" + string(mode) + "-" + table}
	in := f.tempOf(mode) + "/" + table
	if mode == sandbox.WorkspaceWrite {
		in = f.ws + "/" + table
	} else {
		targets["workspace"] = f.ws + "/" + string(mode) + "-" + table
	}
	for name, out := range targets {
		t.Run(name, func(t *testing.T) {
			f.makePlaces(t, out, tables[table])
			before, bytes := facts(t, out), contents(t, out)
			results := f.tries(t, mode, "files", "TABLE="+table, "OUT="+out, "IN="+in+"-"+name)
			after := facts(t, out)
			f.judge(t, mode, table, results)
			for _, a := range tables[table] {
				if results[a.name] != succeeded {
					unchanged(t, below(before, out+"/"+a.name), below(after, out+"/"+a.name))
				}
			}
			left := contents(t, out)
			for _, a := range tables[table] {
				if results[a.name] == succeeded && a.gap == sandbox.GapTruncate {
					delete(bytes, out+"/"+a.name+"/file") // as judge has seen, the report tells that
					delete(left, out+"/"+a.name+"/file")
				}
			}
			unchanged(t, bytes, left)
		})
	}
}

// judge compares what succeeded with what the report tells.
func (f *fixture) judge(t *testing.T, mode sandbox.Mode, table string, results map[string]string) {
	t.Helper()
	report := f.Report().Mode(mode)
	open := map[string]bool{}
	for _, a := range tables[table] {
		switch result := results[a.name]; {
		case result == "":
			t.Errorf("%s was not tried", a.name)
		case result != succeeded:
		case a.gap == "" || !f.tells(mode, a.gap):
			t.Errorf("%s succeeded; the gaps are %v", a.name, report.Gaps)
		case report.Enforcement == sandbox.Full:
			t.Errorf("%s succeeded, and the enforcement is told to be full", a.name)
		default:
			open[a.gap] = true
		}
	}
	for _, gap := range []string{sandbox.GapMetadata, sandbox.GapTimestamps} {
		if table == "changes" && f.tells(mode, gap) && !open[gap] {
			t.Errorf("the report has the gap %s, but nothing of it could be done", gap)
		}
	}
}

// controlAttempts sees that the attempts are such that they succeed without a sandbox.
func controlAttempts(t *testing.T, f *fixture, table string) {
	out := f.out + "/free-" + table
	f.makePlaces(t, out, tables[table])
	before := facts(t, out)
	results := f.tries(t, sandbox.FullAccess, "files", "TABLE="+table, "OUT="+out, "IN="+f.ws+"/free-"+table)
	after := facts(t, out)
	for _, a := range tables[table] {
		if results[a.name] != succeeded {
			if !a.optional {
				t.Errorf("%s fails unconfined, too: %s", a.name, results[a.name])
			}
			continue
		}
		same := true
		for path, fact := range below(before, out+"/"+a.name) {
			same = same && after[path] == fact
		}
		if same && a.name != "create-unnamed" {
			t.Errorf("%s succeeded, and nothing of it is seen: the comparison is blind to it", a.name)
		}
	}
}

// testWritesInside: what the modes allow.
func testWritesInside(t *testing.T, f *fixture) {
	for mode, script := range map[sandbox.Mode]string{
		sandbox.ReadOnly: `echo x >/dev/null && echo x >"$TMPDIR/x" && cat "$TMPDIR/x"`,
		sandbox.WorkspaceWrite: `set -e; echo x >/dev/null; mkdir -p "$WS/one" "$WS/two"; echo x >"$WS/one/x"; mv "$WS/one/x" "$WS/two/y"
			ln "$WS/two/y" "$WS/one/z"
			mv "$WS/one" "$WS/two/three"; cat "$WS/two/three/z"`,
	} {
		t.Run(string(mode), func(t *testing.T) {
			f.needs(t, mode)
			if got := f.run(t, f.command(t, mode, script)); got.stdout != "x\n" || got.stderr != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
	if b, err := os.ReadFile(f.ws + "/two/y"); f.Report().WorkspaceWrite.Unavailable == "" && string(b) != "x\n" {
		t.Errorf("the workspace holds %q, %v", b, err)
	}
}

// testSwappedWorkspace has the workspace become a link, and a directory again, and a link, while commands start.
func testSwappedWorkspace(t *testing.T, f *fixture) {
	f.needs(t, sandbox.WorkspaceWrite)
	must(t, os.WriteFile(f.out+"/file", []byte("content"), 0o644))
	f.grant(t, f.out)
	before := facts(t, f.out)
	c := f.command(t, sandbox.WorkspaceWrite, `cd "$WS"; echo x >"$WS/file"; echo x >"$OUT/file"; : >"$OUT/new"; echo x >"$WS/sub/file"`)
	c.Workdir = "/"
	link := f.ws + "-link"
	must(t, os.Symlink(f.out, link))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, f.ws, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	ran, refused := 0, 0
	for range 30 {
		p, err := f.Start(t.Context(), c)
		if err != nil {
			refused++
			continue
		}
		finish(t, p)
		ran++
	}
	close(stop)
	swapping.Wait()
	t.Logf("%d ran, %d were refused", ran, refused)
	unchanged(t, before, facts(t, f.out))
}

// testReplacedParent puts a link in the place of a directory on the way to the workspace.
func testReplacedParent(t *testing.T, f *fixture) {
	f.needs(t, sandbox.WorkspaceWrite)
	parent := filepath.Dir(f.ws) + "/parent"
	must(t, os.MkdirAll(parent+"/ws", 0o755))
	must(t, os.MkdirAll(f.out+"/ws", 0o755))
	must(t, os.Chmod(f.out, 0o755))
	f.grant(t, f.out)
	f.grant(t, parent)
	before := facts(t, f.out)
	policy, err := f.Policy(sandbox.WorkspaceWrite, parent+"/ws", f.temp, []string{f.own})
	must(t, err)
	c := f.command(t, sandbox.WorkspaceWrite, `echo x >"$TARGET/new"`)
	c.Policy, c.Workdir, c.Env = policy, "/", append(c.Env, "TARGET="+parent+"/ws")
	must(t, os.Rename(parent, parent+"-before"))
	must(t, os.Symlink(f.out, parent))
	if p, err := f.Start(t.Context(), c); err == nil {
		t.Errorf("it ran: %+v", finish(t, p))
	} else if !strings.Contains(err.Error(), "roots") && !strings.Contains(err.Error(), "landlock") {
		t.Errorf("it was refused for something else: %v", err)
	}
	unchanged(t, before, facts(t, f.out))
}
