package runner

import "encoding/binary"

// Setup tells a runner that was started in namespaces of its own (mounts, pids, IPC) what its file tree is to look like. It comes
// once, before the first Job; the runner answers with KindReady or KindFailed.
type Setup struct {
	Hidden    []string // absolute paths free of links; what is there is covered, what is not is skipped
	Links     []Link   // symbolic links below /run that stay
	TempBytes uint64   // size of a command's /tmp and /dev/shm together
	MaxPid    int      // the highest process id plus one; 0: the kernel's own
}

// Link is a symbolic link.
type Link struct{ Path, Target string }

// Append appends the encoding of s to b.
func (s *Setup) Append(b []byte) []byte {
	b = appendStrings(b, s.Hidden)
	b = binary.AppendUvarint(b, uint64(len(s.Links)))
	for _, l := range s.Links {
		b = appendString(appendString(b, l.Path), l.Target)
	}
	b = binary.AppendUvarint(b, s.TempBytes)
	return binary.AppendUvarint(b, uint64(s.MaxPid))
}

// ParseSetup is the inverse of [Setup.Append]. Anything that Append does not write is an error.
func ParseSetup(b []byte) (*Setup, error) {
	d := decoder{b: b}
	s := &Setup{Hidden: d.strings()}
	for range d.uvarint(64) {
		s.Links = append(s.Links, Link{d.string(), d.string()})
	}
	s.TempBytes, s.MaxPid = d.uvarint(1<<62), int(d.uvarint(1<<22))
	if d.bad || len(d.b) != 0 {
		return nil, errBadJob
	}
	return s, nil
}
