package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"bashd/internal/sandbox/denial"
)

// Policy is what one command may do to files. It is an immutable value, made
// by [Sandbox.Policy], and can say what it enforces.
type Policy struct {
	mode     Mode
	root     string   // canonical; writable under WorkspaceWrite, readable under ReadOnly
	temp     string   // the command's private temporary directory; empty under FullAccess and with private
	private  []string // directories that the command has of its own, so that those of the host are not seen
	readable []string // what stays readable although a hidden path covers it: the owner's own
	hidden   []string
}

// devices is all that a confined command sees of /dev. Their siblings, raw disks
// among them, are open to uid 0 even without a capability.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// privateDirs are those that a mount namespace replaces.
var privateDirs = []string{"/tmp", "/dev/shm"}

// Mode is the mode that the policy enforces.
func (p Policy) Mode() Mode { return p.mode }

// String tells the policy for people.
func (p Policy) String() string {
	switch p.mode {
	case WorkspaceWrite, ReadOnly:
		return fmt.Sprintf("%s: writes below %s", p.mode, strings.Join(slices.Concat(p.writable(), p.private), ", "))
	}
	return string(p.mode) + ": not confined"
}

// writable lists the directories below which the command may write.
func (p Policy) writable() (dirs []string) {
	if p.mode == WorkspaceWrite {
		dirs = append(dirs, p.root)
	}
	if p.temp != "" {
		dirs = append(dirs, p.temp)
	}
	return dirs
}

// exceptions lists what is readable inside hidden paths. The temporary directory is
// not among them: it lies in one of them, so that the list is the same for all
// commands of an owner and what is built from it can be kept.
func (p Policy) exceptions() []string {
	return append([]string{p.root}, p.readable...)
}

// Forbids reports that the policy refuses op at path, which is absolute, clean
// and free of symbolic links. It answers for the rules, not for the permissions
// that the file has besides.
func (p Policy) Forbids(path string, op denial.Op) bool {
	if !p.mode.Confined() {
		return false
	}
	if op == denial.Read {
		return p.Hides(path)
	}
	if slices.Contains(devices, path) {
		return false
	}
	inside := func(dir string) bool { return within(path, dir) }
	if slices.ContainsFunc(p.exceptions(), inside) {
		return !slices.ContainsFunc(p.writable(), inside)
	}
	return !slices.ContainsFunc(slices.Concat(p.writable(), p.private), inside)
}

// Hides reports that a confined command cannot read path. A private directory itself is there, if not the host's.
func (p Policy) Hides(path string) bool {
	if !p.mode.Confined() || slices.Contains(devices, path) || slices.Contains(p.private, path) {
		return false
	}
	// The deepest rule holds: what is hidden inside of what is shown is hidden.
	hidden := deepest(p.hidden, path)
	if p.private != nil {
		hidden = max(hidden, deepest(p.private, path))
		if path != "/run" {
			hidden = max(hidden, deepest([]string{"/run"}, path))
		}
	}
	return hidden > deepest(p.exceptions(), path)
}

// deepest is the length of the longest of dirs that holds path; 0: none does.
func deepest(dirs []string, path string) (n int) {
	for _, dir := range dirs {
		if within(path, dir) {
			n = max(n, len(dir))
		}
	}
	return n
}

// LeadsToHidden reports that the way of an absolute path leads to what a confined command cannot see, by a symbolic link or without. It is
// to be called by [Sandbox.AsCommand].
func (p Policy) LeadsToHidden(path string) bool {
	return p.mode.Confined() && denial.LeadsTo(path, p.covers)
}

// covers reports that nothing of path is seen: it is hidden, and leads to nothing that is not.
func (p Policy) covers(path string) bool {
	return p.Hides(path) && !slices.ContainsFunc(p.exceptions(), func(e string) bool { return within(e, path) })
}

// within reports that path is dir or lies below it. Both are clean and absolute.
func within(path, dir string) bool {
	if dir == "" {
		return false
	}
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// canonical resolves the links of as much of path as exists.
func canonical(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(canonical(dir), filepath.Base(path))
	}
	return path
}

// Holds reports that path lies in the policy's workspace root.
func (p Policy) Holds(path string) bool { return within(path, p.root) }

// sort names the commands that a runner may serve one after another: those of one owner under
// one mode. Empty for those that are not confined, each of which gets a runner of its own: it
// could have done anything to its runner.
func (p Policy) sort() string {
	if !p.mode.Confined() {
		return ""
	}
	return string(p.mode) + "\x00" + strings.Join(p.exceptions(), "\x00")
}
