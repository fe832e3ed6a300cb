package sandbox

import (
	"slices"
	"strings"
	"testing"
)

// TestAliases: the same files at other places are hidden there, too.
func TestAliases(t *testing.T) {
	mounts := parseMounts(strings.NewReplacer(`\u00a0`, "\u00a0", `\r`, "\r").Replace(`22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 8:1 /srv/data /mnt/bind\040one rw - ext4 /dev/sda1 rw
25 22 8:1 /srv/data/secret/deep /mnt/deep rw - ext4 /dev/sda1 rw
26 22 8:2 / /vol rw - ext4 /dev/sdb rw
27 22 8:2 /sub /elsewhere rw - ext4 /dev/sdb rw
28 22 8:1 /srv/database /mnt/other rw - ext4 /dev/sda1 rw
29 22 8:3 / /srv/data/secret/mounted rw - ext4 /dev/sdc rw
30 22 8:4 / /deep/secret/volume rw - ext4 /dev/sdd rw
31 22 8:4 /part /seen/volume rw - ext4 /dev/sdd rw
32 22 8:1 /over /mnt/over rw - ext4 /dev/sda1 rw
33 22 0:40 / /over/secret rw - tmpfs t rw
34 22 8:1 /odd /mnt/o\u00a0d\rd rw - ext4 /dev/sda1 rw
`))
	for path, want := range map[string][]string{
		"/srv/data/secret":         {"/mnt/bind one/secret", "/mnt/bind one/secret/mounted", "/mnt/deep", "/srv/data/secret"},
		"/srv/data":                {"/mnt/bind one", "/mnt/bind one/secret/mounted", "/mnt/deep", "/srv/data"},
		"/vol/sub/x":               {"/elsewhere/x", "/vol/sub/x"},
		"/elsewhere":               {"/elsewhere", "/vol/sub"},
		"/mnt/bind one/a":          {"/mnt/bind one/a", "/srv/data/a"},
		"/srv/data/secret/mounted": {"/mnt/bind one/secret/mounted", "/srv/data/secret/mounted"},
		"/proc":                    {"/proc"},
		"/nowhere":                 {"/nowhere"},
		"/deep/secret":             {"/deep/secret", "/seen/volume"},
		"/over/secret":             {"/mnt/over/secret", "/over/secret"},
		"/odd":                     {"/mnt/o\u00a0d\rd", "/odd"},
	} {
		if got := withAliases([]string{path}, mounts); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// FuzzMounts: whatever a mountinfo holds, looking for aliases ends, and what is hidden stays so.
func FuzzMounts(f *testing.F) {
	f.Add("24 22 8:1 /srv/data /mnt/bind\\040one rw - ext4 /dev/sda1 rw\n", "/srv/data/x")
	f.Fuzz(func(t *testing.T, mountinfo, path string) {
		if got := withAliases([]string{path}, parseMounts(mountinfo)); !slices.Contains(got, path) {
			t.Errorf("%q is not in %q", path, got)
		}
	})
}

// TestDeepestRuleHolds: a policy shows what lies in what is hidden, and hides what lies in that.
func TestDeepestRuleHolds(t *testing.T) {
	p := Policy{mode: ReadOnly, root: "/ws/own", hidden: []string{"/ws", "/ws/own/secret"}}
	for path, hidden := range map[string]bool{
		"/ws": true, "/ws/other": true, "/ws/own": false, "/ws/own/x": false, "/ws/own/secret": true, "/ws/own/secret/x": true, "/wsx": false,
	} {
		if p.Hides(path) != hidden {
			t.Errorf("%s is hidden: %v", path, !hidden)
		}
	}
	if p.covers("/ws") || !p.covers("/ws/other") {
		t.Error("covers does not tell what leads to something that is shown")
	}
}
