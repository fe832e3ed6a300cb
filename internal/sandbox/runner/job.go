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
// order: the memfd that holds the encoded Job, stdin, stdout, stderr, the
// working directory (unless Namespaced), then Rulesets Landlock rulesets, then the
// sweeper's ruleset (if Sweeper), then the script (if HasScript).
type Job struct {
	Sequence  uint32   // 1 for a runner's first job, and rising; orders name it
	Shell     string   // path that is executed
	Argv      []string // its arguments, argv[0] first
	Env       []string // NAME=value, complete
	Limits    []Limit
	Nice      int  // niceness, 0: the runner's own
	OOMScore  int  // oom_score_adj of the command
	DropCaps  bool // the command ends with no capability and none to gain
	NoNewPriv bool
	Rulesets  int    // how many Landlock rulesets to enter, in order
	Filter    string // seccomp program, eight bytes an instruction; empty: none
	Sweeper   bool   // start the command below a sweeper
	HasScript bool
	SetUser   bool // the command runs as UID and GID, without supplementary groups
	UID, GID  uint32

	// For a runner in namespaces of its own (see Setup).
	Namespaced bool
	NullStdin  bool   // stdin is the null device: the runner takes its own
	Workdir    string // absolute; no descriptor is sent for it
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
	flagDropCaps = 1 << iota
	flagNoNewPriv
	flagSweeper
	flagHasScript
	flagSetUser
	flagNamespaced
	flagNullStdin
)

// Append appends the encoding of j to b.
func (j *Job) Append(b []byte) []byte {
	b = append(b, j.flags())
	b = binary.AppendUvarint(b, uint64(j.Sequence))
	b = binary.AppendUvarint(b, uint64(j.Rulesets))
	b = binary.AppendVarint(b, int64(j.Nice))
	b = binary.AppendVarint(b, int64(j.OOMScore))
	b = appendString(b, j.Filter)
	b = appendString(b, j.Shell)
	b = appendStrings(b, j.Argv)
	b = appendStrings(b, j.Env)
	b = binary.AppendUvarint(b, uint64(len(j.Limits)))
	for _, l := range j.Limits {
		b = binary.AppendUvarint(b, uint64(l.Resource))
		b = binary.AppendUvarint(b, l.Soft)
		b = binary.AppendUvarint(b, l.Hard)
	}
	b = binary.AppendUvarint(b, uint64(j.UID))
	b = binary.AppendUvarint(b, uint64(j.GID))
	b = binary.AppendUvarint(b, j.TempRights)
	b = appendString(b, j.Workdir)
	b = binary.AppendUvarint(b, uint64(len(j.Shows)))
	for _, s := range j.Shows {
		writable := uint64(0)
		if s.Writable {
			writable = 1
		}
		b = binary.AppendUvarint(b, writable)
		b = binary.AppendUvarint(b, s.Device)
		b = binary.AppendUvarint(b, s.Inode)
		b = appendString(b, s.Path)
	}
	return b
}

func (j *Job) flags() (f byte) {
	set := func(bit byte, on bool) {
		if on {
			f |= bit
		}
	}
	set(flagDropCaps, j.DropCaps)
	set(flagNoNewPriv, j.NoNewPriv)
	set(flagSweeper, j.Sweeper)
	set(flagHasScript, j.HasScript)
	set(flagSetUser, j.SetUser)
	set(flagNamespaced, j.Namespaced)
	set(flagNullStdin, j.NullStdin)
	return f
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

var errBadJob = errors.New("malformed job")

// ParseJob is the inverse of [Job.Append]. Anything that Append does not write is an error.
func ParseJob(b []byte) (*Job, error) {
	d := decoder{b: b}
	flags := d.byte()
	j := &Job{
		DropCaps:   flags&flagDropCaps != 0,
		NoNewPriv:  flags&flagNoNewPriv != 0,
		Sweeper:    flags&flagSweeper != 0,
		HasScript:  flags&flagHasScript != 0,
		SetUser:    flags&flagSetUser != 0,
		Namespaced: flags&flagNamespaced != 0,
		NullStdin:  flags&flagNullStdin != 0,
		Sequence:   uint32(d.uvarint(1<<32 - 1)),
		Rulesets:   int(d.uvarint(16)),
		Nice:       int(d.varint()),
		OOMScore:   int(d.varint()),
		Filter:     d.string(),
		Shell:      d.string(),
		Argv:       d.strings(),
		Env:        d.strings(),
	}
	for range d.uvarint(64) {
		j.Limits = append(j.Limits, Limit{int(d.uvarint(64)), d.uvarint(^uint64(0)), d.uvarint(^uint64(0))})
	}
	j.UID, j.GID = uint32(d.uvarint(1<<32-1)), uint32(d.uvarint(1<<32-1))
	j.TempRights, j.Workdir = d.uvarint(^uint64(0)), d.string()
	for range d.uvarint(64) {
		s := Show{Writable: d.uvarint(1) == 1, Device: d.uvarint(^uint64(0)), Inode: d.uvarint(^uint64(0)), Path: d.string()}
		if s.Path == "" || s.Path[0] != '/' {
			d.bad = true
		}
		j.Shows = append(j.Shows, s)
	}
	if d.bad || len(d.b) != 0 {
		return nil, errBadJob
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
