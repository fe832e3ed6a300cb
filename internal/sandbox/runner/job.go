package runner

import (
	"encoding/binary"
	"errors"
)

// Argv0 is the name under which a binary that links this package becomes a
// runner instead of itself.
const Argv0 = "bashd-runner"

// SocketFD is the descriptor on which a runner finds its end of the
// SOCK_SEQPACKET socketpair.
const SocketFD = 3

// OrdersFD is the descriptor on which a runner finds the read end of the pipe
// that orders come by. Its end, too, is the end of the daemon.
const OrdersFD = 4

// ScriptFD is the descriptor on which a command finds its script when the Job
// says HasScript.
const ScriptFD = 3

// Job is one command to start. Its descriptors travel beside it, in this
// order: the memfd that holds the encoded Job, stdin, stdout, stderr, then Rulesets Landlock rulesets, then the script (if HasScript).
type Job struct {
	Sequence  uint32   // 1 for a runner's first job, and rising; orders name it
	Shell     string   // path that is executed
	Argv      []string // its arguments, argv[0] first
	Env       []string // NAME=value, complete
	Limits    []Limit
	Rulesets  int // how many Landlock rulesets to enter, in order
	HasScript bool
	Workdir   string // absolute; the command enters it by its own permissions, every directory on the way included

	// For a runner with a World.
	NullStdin  bool // stdin is the null device: the runner takes its own
	Shows      []Show
	TempRights uint64 // what the rulesets are to grant in the private /tmp and /dev/shm
}

// Show is a place of the host that a namespaced command sees although it is hidden, or may write to.
type Show struct {
	Path          string // absolute, free of links
	Writable      bool
	Device, Inode uint64 // which it must be; 0: any, and it may be missing
}

// Limit is one resource limit of the command.
type Limit struct {
	Resource int // RLIMIT_*
	Soft     uint64
	Hard     uint64
}

const (
	flagHasScript = 1 << iota
	flagNullStdin
)

// flagsOf packs booleans, the first in the lowest bit.
func flagsOf(set ...bool) (f byte) {
	for i, on := range set {
		if on {
			f |= 1 << i
		}
	}
	return f
}

// Append appends the encoding of j to b.
func (j *Job) Append(b []byte) []byte {
	b = append(b, flagsOf(j.HasScript, j.NullStdin))
	b = binary.AppendUvarint(b, uint64(j.Sequence))
	b = binary.AppendUvarint(b, uint64(j.Rulesets))
	b = appendString(b, j.Shell)
	b = appendStrings(b, j.Argv)
	b = appendStrings(b, j.Env)
	b = binary.AppendUvarint(b, uint64(len(j.Limits)))
	for _, l := range j.Limits {
		b = binary.AppendUvarint(b, uint64(l.Resource))
		b = binary.AppendUvarint(b, l.Soft)
		b = binary.AppendUvarint(b, l.Hard)
	}
	b = binary.AppendUvarint(b, j.TempRights)
	b = appendString(b, j.Workdir)
	b = binary.AppendUvarint(b, uint64(len(j.Shows)))
	for _, s := range j.Shows {
		b = append(b, flagsOf(s.Writable))
		b = binary.AppendUvarint(b, s.Device)
		b = binary.AppendUvarint(b, s.Inode)
		b = appendString(b, s.Path)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, ss []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(ss)))
	for _, s := range ss {
		b = appendString(b, s)
	}
	return b
}

var errMalformed = errors.New("malformed message")

// ParseJob is the inverse of [Job.Append]. Anything that Append does not write is an error.
func ParseJob(b []byte) (*Job, error) {
	d := decoder{b: b}
	flags := d.byte()
	j := &Job{
		HasScript: flags&flagHasScript != 0,
		NullStdin: flags&flagNullStdin != 0,
		Sequence:  uint32(d.uvarint(1<<32 - 1)),
		Rulesets:  int(d.uvarint(16)),
		Shell:     d.string(),
		Argv:      d.strings(),
		Env:       d.strings(),
	}
	for range d.uvarint(64) {
		j.Limits = append(j.Limits, Limit{int(d.uvarint(64)), d.uvarint(^uint64(0)), d.uvarint(^uint64(0))})
	}
	j.TempRights, j.Workdir = d.uvarint(^uint64(0)), d.string()
	for range d.uvarint(64) {
		s := Show{Writable: d.byte() == 1, Device: d.uvarint(^uint64(0)), Inode: d.uvarint(^uint64(0)), Path: d.string()}
		if s.Path == "" || s.Path[0] != '/' {
			d.bad = true
		}
		j.Shows = append(j.Shows, s)
	}
	if d.bad || len(d.b) != 0 || flags >= flagNullStdin<<1 {
		return nil, errMalformed
	}
	return j, nil
}

// decoder reads an encoded Job; after the first mistake it is bad and
// everything it returns is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string {
	n := d.uvarint(uint64(len(d.b)))
	if n > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) strings() []string {
	n := d.uvarint(uint64(len(d.b)))
	if n == 0 {
		return nil
	}
	ss := make([]string, 0, n)
	for range n {
		if d.bad {
			return nil
		}
		ss = append(ss, d.string())
	}
	return ss
}
