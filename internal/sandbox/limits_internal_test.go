package sandbox

import "testing"

// TestKernelRelease: what is not certainly new enough must not be taken for it, since a host would pay for that.
func TestKernelRelease(t *testing.T) {
	for release, want := range map[string]bool{
		"6.14.0-rc1": true, "6.14": true, "6.18.5": true, "7.0.0": true, "10.1": true,
		"6.13.12": false, "6.12.95+deb12-cloud-amd64": false, "6.1.0-50-cloud-amd64": false, "5.15.0": false, "4.4.0": false,
		"": false, "6": false, "linux": false, ".14": false,
	} {
		if atLeast(release, 6, 14) != want {
			t.Errorf("%q: %t", release, !want)
		}
	}
}
