package runner

import "syscall"

// fds are the descriptors that came with a Job.
type fds struct {
	stdin, stdout, stderr int
	rulesets              []int
	script                int
}

// The kinds of message that a daemon sends, each a byte beside the descriptor of a memfd with the rest.
const (
	MessageSetup byte = 'S'
	MessageJob   byte = 'J'
)

// message is a Setup with the sweeper's ruleset, or a Job with its descriptors; neither where what came makes no sense.
type message struct {
	setup   *Setup
	sweeper int // -1: none
	group   int // -1: none
	job     *Job
	fds     fds
}

// receive waits for a message. ok is false when the
// daemon closed the socket instead.
func receive() (m message, ok bool) {
	var buf [8]byte
	oob := make([]byte, syscall.CmsgSpace(32*4))
	var n, oobn int
	var err error
	for {
		n, oobn, _, _, err = syscall.Recvmsg(SocketFD, buf[:], oob, syscall.MSG_CMSG_CLOEXEC)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil || n == 0 {
		return m, false
	}
	got, err := parseFDs(oob[:oobn])
	if err != nil || len(got) == 0 {
		return m, true
	}
	content, err := readMemfd(got[0])
	syscall.Close(got[0])
	if err != nil {
		return m, true
	}
	if buf[0] == MessageSetup {
		return setupOf(content, got[1:]), true
	}
	return jobOf(content, got[1:]), true
}

func setupOf(content []byte, got []int) (m message) {
	s, err := ParseSetup(content)
	if err != nil {
		return m
	}
	m = message{setup: s, sweeper: -1, group: -1}
	for _, want := range []struct {
		is bool
		fd *int
	}{{s.Sweeper, &m.sweeper}, {s.Group, &m.group}} {
		if want.is && len(got) > 0 {
			*want.fd, got = got[0], got[1:]
		} else if want.is {
			return message{}
		}
	}
	if len(got) > 0 {
		return message{}
	}
	return m
}

func jobOf(content []byte, got []int) (m message) {
	j, err := ParseJob(content)
	if err != nil {
		return m
	}
	f, fits := assign(j, got)
	if !fits {
		return m
	}
	return message{job: j, fds: f}
}

func parseFDs(oob []byte) ([]int, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, errMalformed
	}
	return syscall.ParseUnixRights(&msgs[0])
}

func readMemfd(memfd int) ([]byte, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(memfd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, st.Size)
	for done := 0; done < len(b); {
		n, err := syscall.Pread(memfd, b[done:], int64(done))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, errMalformed
		}
		done += n
	}
	return b, nil
}

// assign tells the descriptors that follow the Job apart; see [Job].
func assign(j *Job, got []int) (f fds, ok bool) {
	next := func() int {
		if len(got) == 0 {
			ok = false
			return -1
		}
		fd := got[0]
		got = got[1:]
		return fd
	}
	ok = true
	f = fds{stdin: next(), stdout: next(), stderr: next(), script: -1}
	for range j.Rulesets {
		f.rulesets = append(f.rulesets, next())
	}
	if j.HasScript {
		f.script = next()
	}
	return f, ok && len(got) == 0
}

func closeAll(f fds) {
	for _, fd := range append([]int{f.stdin, f.stdout, f.stderr, f.script}, f.rulesets...) {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
}
