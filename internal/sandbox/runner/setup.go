package runner

import "encoding/binary"

// Setup tells a runner, once and before its first Job, what all its commands have in common. The runner answers with
// KindReady or KindFailed. The memfd that holds the encoded Setup is followed by the sweeper's Landlock ruleset, if Sweeper, and by
// the directory of a control group (version 2), if Group.
type Setup struct {
	Nice      int    // niceness, 0: the runner's own
	Slack     uint64 // timer slack in nanoseconds, 0: the runner's own, which is large
	OOMScore  int    // oom_score_adj
	DropCaps  bool   // the commands have no capability and none to gain
	NoNewPriv bool   // must be set with Filter, unless the runner is root
	SetUser   bool   // they run as UID and GID, without supplementary groups
	UID, GID  uint32 // never 0 where SetUser
	Filter    string // seccomp program, eight bytes an instruction; empty: none
	Sweeper   bool   // start each command below a sweeper
	Group     bool   // start each command in the control group; the runner and its sweeper stay outside
	World     *World // of a runner that was started in mount, pid and IPC namespaces of its own; nil: it was not
}

// World is what the file tree of a runner in namespaces is to look like.
type World struct {
	Hidden    []string // absolute paths free of links; what is there is covered, what is not is skipped
	Links     []Link   // symbolic links below /run that stay
	TempBytes uint64   // size of a command's /tmp and /dev/shm together
	MaxPid    int      // the highest process id plus one; 0: the kernel's own
}

// Link is a symbolic link.
type Link struct{ Path, Target string }

const (
	setupDropCaps = 1 << iota
	setupNoNewPriv
	setupSetUser
	setupSweeper
	setupGroup
	setupWorld
)

// Append appends the encoding of s to b.
func (s *Setup) Append(b []byte) []byte {
	b = append(b, flagsOf(s.DropCaps, s.NoNewPriv, s.SetUser, s.Sweeper, s.Group, s.World != nil))
	b = binary.AppendVarint(b, int64(s.Nice))
	b = binary.AppendVarint(b, int64(s.OOMScore))
	b = binary.AppendUvarint(b, s.Slack)
	b = binary.AppendUvarint(b, uint64(s.UID))
	b = binary.AppendUvarint(b, uint64(s.GID))
	b = appendString(b, s.Filter)
	if w := s.World; w != nil {
		b = appendStrings(b, w.Hidden)
		b = binary.AppendUvarint(b, uint64(len(w.Links)))
		for _, l := range w.Links {
			b = appendString(appendString(b, l.Path), l.Target)
		}
		b = binary.AppendUvarint(b, w.TempBytes)
		b = binary.AppendUvarint(b, uint64(w.MaxPid))
	}
	return b
}

// ParseSetup is the inverse of [Setup.Append]. Anything that Append does not write is an error.
func ParseSetup(b []byte) (*Setup, error) {
	d := decoder{b: b}
	flags := d.byte()
	s := &Setup{
		DropCaps:  flags&setupDropCaps != 0,
		NoNewPriv: flags&setupNoNewPriv != 0,
		SetUser:   flags&setupSetUser != 0,
		Sweeper:   flags&setupSweeper != 0,
		Group:     flags&setupGroup != 0,
		Nice:      int(d.varint()),
		OOMScore:  int(d.varint()),
		Slack:     d.uvarint(1<<63 - 1),
		UID:       uint32(d.uvarint(1<<32 - 1)),
		GID:       uint32(d.uvarint(1<<32 - 1)),
		Filter:    d.string(),
	}
	if flags&setupWorld != 0 {
		s.World = d.world()
	}
	if d.bad || len(d.b) != 0 || flags >= setupWorld<<1 || s.SetUser && (s.UID == 0 || s.GID == 0) {
		return nil, errMalformed
	}
	return s, nil
}

func (d *decoder) world() *World {
	w := &World{Hidden: d.strings()}
	for range d.uvarint(64) {
		w.Links = append(w.Links, Link{d.string(), d.string()})
	}
	w.TempBytes, w.MaxPid = d.uvarint(1<<62), int(d.uvarint(1<<22))
	return w
}
