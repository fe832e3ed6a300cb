package prober

import (
	"slices"
	"syscall"
)

// probe is an effect and the way to try it. Exactly one of try and call is set.
type probe struct {
	Effect
	needs need
	try   func(p *prober, at place) outcome
	call  func(p *prober, at place) (rawCall, error) // for what changes the caller: done in a child, see batch.go
	after func(p *prober, at place)                  // undoes what a call did to the host
	// allowed are errors of a call that come only after the kernel has granted the permission.
	allowed []syscall.Errno
}

// need says what the scene holds for a probe. The objects are called by its name and a suffix; in directories of their own they would
// be easier to tell apart, but some file systems take a millisecond for each.
type need uint

const (
	needFile    need = 1 << iota // out/<name>.file
	needDir                      // out/<name>.dir, empty
	needAttr                     // an extended attribute on out/<name>.file
	needWs                       // ws/<name>.file
	needWsDir                    // ws/<name>.dir
	needTrace                    // it leaves something in ws if it works
	needLink                     // ws/<name>.link, a symbolic link to out/<name>.file
	needHidden                   // hidden/<name>.file
	needProgram                  // hidden/<name>.program, executable
	needVictim                   // it is about the victim, whose signal for it Judge waits for
)

// place is where a probe finds its objects: a suffix completes the paths.
type place struct {
	name                  string
	out, ws, hidden, temp string
	file                  string // out/<name>.file
	signal                syscall.Signal
}

// state is what became of one try.
type state byte

const (
	did     state = 'd'
	refused state = 'r'
	skipped state = 's'
	unseen  state = 'u' // only the object can tell
)

type outcome struct {
	state state
	errno syscall.Errno // where refused
	why   string        // where skipped
}

func skip(why string) outcome { return outcome{state: skipped, why: why} }

// result makes an outcome of an error.
func result(err error) outcome {
	if err == nil {
		return outcome{state: did}
	}
	errno, ok := err.(syscall.Errno)
	if !ok || errno == 0 {
		errno = syscall.EIO // cannot be: everything here is a system call
	}
	return outcome{state: refused, errno: errno}
}

// reached makes an outcome of a call that was made so that it must fail: the errors in which show that
// the permission was granted.
func reached(err error, which ...syscall.Errno) outcome {
	if errno, ok := err.(syscall.Errno); ok && slices.Contains(which, errno) {
		return outcome{state: did}
	}
	return result(err)
}

// probes lists everything that is tried, in a fixed order. What may disturb others comes late.
func probes() []probe {
	return slices.Concat(
		inheritedProbes(), worksProbes(), writeProbes(), truncateProbes(), nameProbes(), metadataProbes(), timestampProbes(),
		legacyProbes(), workspaceProbes(), hiddenProbes(), deviceProbes(), signalProbes(), schedulingProbes(), secretProbes(), socketProbes(),
		heldProbes(), systemProbes(), namespaceProbes(), mountProbes(), kernelProbes(), identityProbes(), lateProbes(),
	)
}

// pathOp is an operation on a path, which can be taken by several ways.
type pathOp struct {
	name  string
	text  string
	needs need
	do    func(p *prober, path string) error
	ways  bool // also by the ways of ways
}

// way is a way to a file outside.
type way struct {
	suffix, text string
	needs        need
	path         func(at place) string
}

var ways = []way{
	{"-by-link", " through a symbolic link in the workspace", needLink, func(at place) string { return at.ws + ".link" }},
	{"-by-root", " through /proc/self/root", 0, func(at place) string { return "/proc/self/root" + at.file }},
	{"-by-cwd", " through /proc/self/cwd", 0, func(at place) string { return "/proc/self/cwd/../out/" + at.name + ".file" }},
}

// onPaths makes probes of operations on out/<name>.file.
func onPaths(class Class, ops []pathOp) (list []probe) {
	for _, op := range ops {
		list = append(list, probe{
			Effect: Effect{op.name, class, op.text}, needs: op.needs | needFile,
			try: func(p *prober, at place) outcome { return result(op.do(p, at.file)) },
		})
		if !op.ways {
			continue
		}
		for _, w := range ways {
			list = append(list, probe{
				Effect: Effect{op.name + w.suffix, class, op.text + w.text}, needs: op.needs | needFile | w.needs,
				try: func(p *prober, at place) outcome { return result(op.do(p, w.path(at))) },
			})
		}
	}
	return list
}
