package cgroup

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestOwnPath(t *testing.T) {
	tests := []struct{ name, contents, want string }{
		{"unified", "0::/system.slice/bashd.service\n", "/system.slice/bashd.service"},
		{"hybrid", "4:memory:/x\n1:name=systemd:/y\n0::/z\n", "/z"},
		{"root", "0::/\n", "/"},
		{"a colon", "0::/a:b\n", "/a:b"},
		{"a space", "0::/a b\n", "/a b"},
		{"version 1 only", "4:memory:/x\n", ""},
		{"named like it", "10::/x\n", ""},
		{"nothing", "", ""},
		{"outside its namespace", "0::/../other\n", ""},
		{"its namespace's parent", "0::/..\n", ""},
		{"two dots of another meaning", "0::/..a\n", "/..a"},
		{"removed", "0::/x (deleted)\n", ""},
		{"no path", "0::\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ownPath(tt.contents)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestMountedAt(t *testing.T) {
	const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
`
	tests := []struct {
		name, mountinfo, group string
		want                   []string
	}{
		{"hybrid", hybrid, "/a/b", []string{"/sys/fs/cgroup/unified/a/b"}},
		{"the root", hybrid, "/", []string{"/sys/fs/cgroup/unified"}},
		{"a part", "1 2 0:3 /a /cg rw - cgroup2 none rw\n", "/a/b", []string{"/cg/b"}},
		{"the part itself", "1 2 0:3 /a /cg rw - cgroup2 none rw\n", "/a", []string{"/cg"}},
		{"another part", "1 2 0:3 /a /cg rw - cgroup2 none rw\n", "/ab", nil},
		{"outside", "1 2 0:3 /../.. /cg rw - cgroup2 none rw\n", "/a", nil},
		{"a space", `1 2 0:3 / /my\040cg rw - cgroup2 none rw` + "\n", "/a", []string{"/my cg/a"}},
		{"twice", "1 2 0:3 / /x rw - cgroup2 - rw\n1 2 0:3 / /y rw - cgroup2 - rw\n", "/a", []string{"/x/a", "/y/a"}},
		{"a type like it", "1 2 0:3 / /x rw - cgroup2x none rw\n", "/a", nil},
		{"too short", "1 2 0:3 / - cgroup2 none rw\n", "/a", nil},
		{"no type", "1 2 0:3 / /x rw shared:1\n", "/a", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mountedAt(tt.mountinfo, tt.group); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`a`: `a`, `a\040b`: `a b`, `\134040`: `\040`, `\`: `\`, `a\04`: `a\04`, `\999`: `\999`, `\777`: `\777`, `\040\011`: " \t",
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPids(t *testing.T) {
	tests := []struct {
		contents string
		want     []int
		bad      bool
	}{
		{"", nil, false},
		{"1\n20\n", []int{1, 20}, false},
		{"0\n", []int{0}, false},
		{"1\n20", []int{1}, false}, // cut off: could be 200
		{"x\n", nil, true},
		{"-1\n", nil, true},
		{"4294967297\n", nil, true},
		{"\n", nil, true},
	}
	for _, tt := range tests {
		got, err := pids(tt.contents)
		if !slices.Equal(got, tt.want) || (err != nil) != tt.bad {
			t.Errorf("pids(%q) = %v, %v", tt.contents, got, err)
		}
	}
}

func TestValue(t *testing.T) {
	const events = "populated 1\nfrozen 0\noom_kill 7\n"
	for key, want := range map[string]uint64{"populated": 1, "frozen": 0, "oom_kill": 7} {
		if got, err := value(events, key); err != nil || got != want {
			t.Errorf("%s = %d, %v, want %d", key, got, err, want)
		}
	}
	for _, key := range []string{"oom", "kill", "", "populated 1"} {
		if got, err := value(events, key); err == nil {
			t.Errorf("%q = %d", key, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"bashd-1-0123abcd": true, "bashd-server": false, "bashd-1-0123abc": false, "bashd-1-0123ABCD": false, "bashd--0123abcd": false,
		"bashd-x-0123abcd": false, "bashd-1": false, "xbashd-1-0123abcd": false, "bashd-1-0123abcd-": false,
	} {
		if got := isOurs(name); got != want {
			t.Errorf("isOurs(%q) = %t", name, got)
		}
	}
	for name, want := range map[string]bool{
		"a": true, "run_01-Z": true, "": false, ".": false, "..": false, "a/b": false, "cgroup.procs": false, "a b": false, "é": false, "a\n": false,
		strings.Repeat("x", 100): true, strings.Repeat("x", 101): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%q) = %t", name, got)
		}
	}
}

func FuzzOwnPath(f *testing.F) {
	f.Add("0::/a\n")
	f.Add("1:x:/y\n0::/../a\n")
	f.Fuzz(func(t *testing.T, contents string) {
		path, err := ownPath(contents)
		if (err == nil) != strings.HasPrefix(path, "/") {
			t.Errorf("%q, %v", path, err)
		}
		if path == "/.." || strings.HasPrefix(path, "/../") {
			t.Errorf("%q leads out", path)
		}
	})
}

func FuzzMountedAt(f *testing.F) {
	f.Add("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "/a")
	f.Add(`1 2 0:3 /a /my\040cg rw - cgroup2 none rw`+"\n", "/a/b")
	f.Fuzz(func(t *testing.T, mountinfo, group string) {
		for _, path := range mountedAt(mountinfo, group) {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				t.Errorf("%q is no clean absolute path", path)
			}
		}
	})
}

func FuzzPids(f *testing.F) {
	f.Add("1\n2\n")
	f.Add("12")
	f.Fuzz(func(t *testing.T, contents string) {
		list, err := pids(contents)
		if err != nil {
			return
		}
		whole := strings.Split(contents[:strings.LastIndexByte(contents, '\n')+1], "\n")
		if len(whole)-1 != len(list) {
			t.Fatalf("%d of %d", len(list), len(whole)-1)
		}
		for i, pid := range list {
			// Never another process than the one that stands there.
			if n, err := strconv.Atoi(whole[i]); err != nil || n != pid || pid < 0 {
				t.Errorf("%d from %q", pid, whole[i])
			}
		}
	})
}

func FuzzValue(f *testing.F) {
	f.Add("populated 1\n", "populated")
	f.Fuzz(func(t *testing.T, contents, key string) {
		if n, err := value(contents, key); err == nil && !strings.Contains(contents, key+" ") {
			t.Errorf("%d for %q", n, key)
		}
	})
}
