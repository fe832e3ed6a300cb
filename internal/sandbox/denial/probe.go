package denial

import (
	"path"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slots bounds the threads that probe, those included that a file system holds.
var slots = make(chan struct{}, maxProbes)

// verdict is a claim that held.
type verdict struct {
	claim claim
	path  string
	op    Op
}

// probe returns the first claim that holds. It gives up after maxTime.
func probe(e Evidence, claims []claim) (verdict, bool) {
	deadline := time.Now().Add(maxTime)
	timeout := time.NewTimer(maxTime)
	defer timeout.Stop()
	select {
	case slots <- struct{}{}:
	case <-timeout.C:
		return verdict{}, false
	}
	// Buffered: a thread that comes too late must not wait for a reader.
	results := make(chan *verdict, 1)
	onThread(func() {
		defer func() { <-slots }()
		results <- judge(e, claims, deadline)
	})
	select {
	case v := <-results:
		if v != nil {
			return *v, true
		}
	case <-timeout.C:
	}
	return verdict{}, false
}

// judge runs on a thread of its own and returns nil if no claim holds.
func judge(e Evidence, claims []claim, deadline time.Time) *verdict {
	if takeOn(e.Cred) != nil {
		return nil
	}
	p := prober{e, deadline}
	for _, c := range claims {
		if v := p.claim(c); v != nil {
			return v
		}
		if time.Now().After(deadline) {
			break
		}
	}
	return nil
}

// prober asks the kernel on a thread that holds the command's credentials.
type prober struct {
	e        Evidence
	deadline time.Time
}

// claim judges one message: every file that it names must have been allowed
// without the sandbox, and one of them must be forbidden by it.
func (p prober) claim(c claim) *verdict {
	var found *verdict
	for _, n := range c.names {
		kinds := []kind{n.kind}
		if n.kind == unclear {
			kinds = []kind{change, read}
		}
		allowed := false
		for _, k := range kinds {
			loc, ok := p.locate(n, k)
			if !ok || !p.allows(k, loc) {
				continue
			}
			allowed = true
			if found == nil && k != link && p.e.Forbidden(loc.path, k.op()) {
				found = &verdict{c, loc.path, k.op()}
				break
			}
		}
		if !allowed {
			return nil
		}
	}
	return found
}

// locate resolves the reading of n that exists, else the first one.
func (p prober) locate(n name, k kind) (location, bool) {
	var first *location
	for _, text := range n.texts {
		if !path.IsAbs(text) {
			if !path.IsAbs(p.e.Workdir) {
				return location{}, false
			}
			text = p.e.Workdir + "/" + text
		}
		loc, err := resolve(text, k != entry && k != link, p.e.Hidden, p.deadline)
		if err != nil {
			continue
		}
		if loc.exists {
			return loc, true
		}
		if first == nil && (n.trust == sure || n.trust == word && loc.inDir) {
			first = &loc
		}
	}
	if first == nil {
		return location{}, false
	}
	return *first, true
}

// allows reports whether the kernel would let the command do k at loc.
func (p prober) allows(k kind, loc location) bool {
	if !loc.exists {
		return (k == change || k == entry) && access(loc.dir, unix.W_OK|unix.X_OK)
	}
	format := loc.stat.Mode & unix.S_IFMT
	switch k {
	case change:
		return access(loc.path, unix.W_OK)
	case entry:
		return !isFrozen(loc.stat) && access(loc.dir, unix.W_OK|unix.X_OK) && p.mayTake(loc)
	case link: // as with fs.protected_hardlinks
		owner := loc.stat.Uid == p.e.Cred.UID
		return !isFrozen(loc.stat) &&
			(owner || format == unix.S_IFREG && access(loc.path, unix.R_OK|unix.W_OK))
	case meta:
		return loc.stat.Uid == p.e.Cred.UID && !isFrozen(loc.stat) && !isReadOnly(loc.path)
	case read:
		return access(loc.path, unix.R_OK)
	case enter:
		return format == unix.S_IFDIR && access(loc.path, unix.X_OK)
	case execute:
		return format == unix.S_IFREG && access(loc.path, unix.X_OK)
	}
	return false
}

// mayTake applies the sticky bit: in such a directory only the owners of the
// file and of the directory may remove it.
func (p prober) mayTake(loc location) bool {
	var dir unix.Statx_t
	if lstat(loc.dir, &dir) != nil {
		return false
	}
	uid := p.e.Cred.UID
	return dir.Mode&unix.S_ISVTX == 0 || loc.stat.Uid == uid || dir.Uid == uid
}

// isFrozen reports the attributes that withstand even an owner.
func isFrozen(st unix.Statx_t) bool {
	return st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0
}

// isReadOnly reports whether p's file system is mounted read-only for everyone.
func isReadOnly(p string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(p, &fs) != nil || fs.Flags&unix.ST_RDONLY != 0
}

// access asks the kernel whether the thread's file credentials permit mode at
// p. AT_EACCESS keeps it from substituting the real ids; unix.Faccessat is
// avoided because it answers EPERM (an immutable file) by an emulation that
// knows neither fsuid nor ACLs.
func access(p string, mode uint32) bool {
	name, err := unix.BytePtrFromString(p)
	if err != nil {
		return false
	}
	cwd := unix.AT_FDCWD
	for {
		_, _, errno := unix.Syscall6(unix.SYS_FACCESSAT2, uintptr(cwd), uintptr(unsafe.Pointer(name)),
			uintptr(mode), unix.AT_EACCESS, 0, 0)
		if errno != unix.EINTR {
			return errno == 0
		}
	}
}
