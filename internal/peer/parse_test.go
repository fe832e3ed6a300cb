package peer

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func netlinkMessage(kind uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, body...)
	return append(b, make([]byte, align4(len(b))-len(b))...)
}

func testRequest(t testing.TB) []byte {
	b, err := diagRequest(netip.MustParseAddrPort("127.0.0.1:1000"), netip.MustParseAddrPort("127.0.0.1:80"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testReply answers request for an established socket of uid 1000, inode 77, cookie 2<<32|1, control group 5.
func testReply(request []byte) []byte {
	b := []byte{request[0], 1, 0, 0}
	b = append(b, request[8:48]...)
	b = append(b, request[48:52]...)
	b = b[:4+40]
	b = binary.NativeEndian.AppendUint32(b, 1)
	b = binary.NativeEndian.AppendUint32(b, 2)
	for _, v := range []uint32{0, 0, 0, 1000, 77} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = appendAttribute(b, 4, []byte("bbr\x00"))
	return appendAttribute(b, diagAttrCgroupID, binary.NativeEndian.AppendUint64(nil, 5))
}

func TestParseSocket(t *testing.T) {
	request := testRequest(t)
	reply := testReply(request)
	got, err := parseSocket(reply, request)
	want := socket{state: 1, uid: 1000, inode: 77, cookie: 2<<32 | 1, cgroup: 5}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for size := range len(reply) {
		if _, err := parseSocket(reply[:size], request); err == nil && size != diagReplyBytes && size != diagReplyBytes+8 {
			t.Errorf("no error for an answer cut to %d bytes", size)
		}
	}
	other := slices.Clone(reply)
	other[6]++ // the peer's port
	if _, err := parseSocket(other, request); !errors.Is(err, errNoSocket) {
		t.Errorf("answer about another port: %v, want errNoSocket", err)
	}
	if _, err := diagRequest(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("[::1]:1"), 0); err == nil {
		t.Error("no error for mixed families")
	}
}

func TestFindReply(t *testing.T) {
	errno := func(e unix.Errno) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e))) }
	wanted := netlinkMessage(20, 7, []byte("body"))
	tests := []struct {
		name     string
		datagram []byte
		body     string
		found    bool
		err      error
	}{
		{"empty", nil, "", false, nil},
		{"the answer", wanted, "body", true, nil},
		{"behind a stale one", append(netlinkMessage(20, 6, []byte("old")), wanted...), "body", true, nil},
		{"only a stale one", netlinkMessage(20, 6, []byte("old")), "", false, nil},
		{"no such socket", netlinkMessage(unix.NLMSG_ERROR, 7, errno(unix.ENOENT)), "", false, unix.ENOENT},
		{"a stale error", netlinkMessage(unix.NLMSG_ERROR, 6, errno(unix.ENOENT)), "", false, nil},
		{"an acknowledgement", netlinkMessage(unix.NLMSG_ERROR, 7, errno(0)), "", false, errMalformed},
		{"an error without code", netlinkMessage(unix.NLMSG_ERROR, 7, nil), "", false, errMalformed},
		{"another type", netlinkMessage(21, 7, nil), "", false, errMalformed},
		{"longer than it is", wanted[:len(wanted)-1], "", false, errMalformed},
		{"shorter than a header", wanted[:3], "", false, errMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, found, err := findReply(tt.datagram, 7, 20)
			if string(body) != tt.body || found != tt.found || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, %v, want %q, %v, %v", body, found, err, tt.body, tt.found, tt.err)
			}
		})
	}
}

func FuzzNetlinkAnswer(f *testing.F) {
	request := testRequest(f)
	reply := testReply(request)
	f.Add(netlinkMessage(20, 7, reply))
	f.Add(netlinkMessage(20, 7, reply[:diagReplyBytes]))
	f.Add(netlinkMessage(unix.NLMSG_ERROR, 7, []byte{0xfe, 0xff, 0xff, 0xff}))
	f.Add(append(netlinkMessage(20, 6, nil), netlinkMessage(20, 7, reply)...))
	f.Add(netlinkMessage(20, 7, append(slices.Clone(reply[:diagReplyBytes]), 3, 0, 21, 0)))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		body, found, err := findReply(datagram, 7, 20)
		if found && err != nil || !found && body != nil {
			t.Fatalf("body %v, found %v, error %v", body, found, err)
		}
		if _, err := parseRouteIsLocal(body); err == nil && len(body) < unix.SizeofRtMsg {
			t.Fatal("route from a short body")
		}
		s, err := parseSocket(body, request)
		if err != nil && s != (socket{}) {
			t.Fatalf("a socket with error %v", err)
		}
		if err == nil && (len(body) < diagReplyBytes || s.state > 31) {
			t.Fatalf("socket %+v from %d bytes", s, len(body))
		}
	})
}

func TestParseParent(t *testing.T) {
	tests := []struct {
		stat string
		ppid int
		ok   bool
	}{
		{"12 (bash) S 7 12 12 0", 7, true},
		{"12 (a) S 1 (b) R 9 1", 9, true},
		{"12 (x\n) S 3) Z 0 0", 0, true},
		{"12 (bash) S", 0, false},
		{"12 bash S 7", 0, false},
		{"12 (bash) S -7 1", 0, false},
		{"", 0, false},
	}
	for _, tt := range tests {
		ppid, err := parseParent([]byte(tt.stat))
		if ppid != tt.ppid || (err == nil) != tt.ok {
			t.Errorf("parseParent(%q) = %d, %v", tt.stat, ppid, err)
		}
	}
}

func FuzzParseParent(f *testing.F) {
	f.Add([]byte("12 (a) S 1 (b) R 9 1"))
	f.Add([]byte(")))"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if ppid, err := parseParent(stat); err == nil && ppid < 0 {
			t.Fatalf("parent %d", ppid)
		}
	})
}

func TestParsePidfdInfo(t *testing.T) {
	for info, want := range map[string]int{
		"pos:\t0\nflags:\t02000002\nPid:\t42\nNSpid:\t42\n": 42,
		"Pid:\t-1\nNSpid:\t-1\n":                            -1,
		"Pid:\t0\n":                                         0,
	} {
		if got, err := parsePidfdInfo(info); err != nil || got != want {
			t.Errorf("parsePidfdInfo(%q) = %d, %v", info, got, err)
		}
	}
	if _, err := parsePidfdInfo("pos:\t0\n"); err == nil {
		t.Error("no error without a pid")
	}
}

// A handle must not speak for whoever got the number of its process.
func TestProcessHandleOfDeadProcess(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = childEnviron([]string{"idle"})
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := openProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if ppid, err := p.parent(); err != nil || ppid != os.Getpid() {
		t.Errorf("parent %d, %v, want this process", ppid, err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if ppid, err := p.parent(); err == nil {
		t.Errorf("parent %d of a process that is gone", ppid)
	}
	if _, err := p.ancestorIn(func(int) bool { return true }); err == nil {
		t.Error("ancestor of a process that is gone")
	}
}

func TestCommandsListsTheWholeTree(t *testing.T) {
	if childrenOf(os.Getppid()) == nil {
		t.Skip("/proc does not list children here")
	}
	l := listen(t, "tcp4", "127.0.0.1:0")
	runner := start(t, "runner", "detach", "detach", "hold", "tcp", l.Addr().String())
	runner.expect(t, "ready")
	got := commands([]int{runner.Process.Pid, 0, -1})
	if len(got) < 2 || !got[runner.Process.Pid] || got[os.Getpid()] || got[0] {
		t.Errorf("commands are %v", got)
	}
}

func TestCgroupParsing(t *testing.T) {
	path, err := cgroupPath([]byte("4:memory:/x\n0::/a b/c\n"), nil)
	if err != nil || path != "/a b/c" {
		t.Errorf("path %q, %v", path, err)
	}
	if _, err := cgroupPath([]byte("4:memory:/x\n"), nil); err == nil {
		t.Error("no error without cgroup v2")
	}
	mountinfo := "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n" +
		"31 23 0:27 /a /mnt/part rw - cgroup2 cgroup2 rw\n" +
		"32 23 0:28 / /old rw - cgroup cgroup rw,memory\nnonsense\n"
	got := cgroupDirs(mountinfo, "/a/b")
	if want := []string{"/sys/fs/cgroup/a/b", "/mnt/part/b"}; !slices.Equal(got, want) {
		t.Errorf("directories %q, want %q", got, want)
	}
	stat := filepath.Join(t.TempDir(), "cgroup.stat")
	if err := os.WriteFile(stat, []byte("nr_descendants 1\nnr_dying_descendants 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := dyingDescendants(stat); err != nil || n != 3 {
		t.Errorf("%d dying, %v", n, err)
	}
	if _, err := dyingDescendants(stat + "x"); err == nil {
		t.Error("no error without a count")
	}
	if !(cgroups{}).mayBeOurs(5) {
		t.Error("cleared by a group, though none is known")
	}
}
