package runner

import "syscall"

// fds are the descriptors that came with a Job.
type fds struct {
	stdin, stdout, stderr int
	workdir               int
	rulesets              []int
	sweeper               int
	script                int
}

// The kinds of message that a daemon sends, each a byte beside the descriptor of a memfd with the rest.
const (
	MessageSetup byte = 'S'
	MessageJob   byte = 'J'
)

// receive waits for a Setup, or for a Job and its descriptors. ok is false when the
// daemon closed the socket instead; both are nil when what came is neither.
func receive() (setup *Setup, job *Job, f fds, ok bool) {
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
		return nil, nil, f, false
	}
	got, err := parseFDs(oob[:oobn])
	if err != nil || len(got) == 0 {
		return nil, nil, f, true
	}
	content, err := readMemfd(got[0])
	syscall.Close(got[0])
	if err != nil {
		return nil, nil, f, true
	}
	if buf[0] == MessageSetup {
		setup, _ = ParseSetup(content)
		return setup, nil, f, true
	}
	if job, err = ParseJob(content); err != nil {
		return nil, nil, f, true
	}
	f, fits := assign(job, got[1:])
	if !fits {
		return nil, nil, f, true
	}
	return nil, job, f, true
}

func parseFDs(oob []byte) ([]int, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, errBadJob
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
			return nil, errBadJob
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
	f = fds{stdin: next(), stdout: next(), stderr: next(), workdir: -1, sweeper: -1, script: -1}
	if !j.Namespaced {
		f.workdir = next()
	}
	for range j.Rulesets {
		f.rulesets = append(f.rulesets, next())
	}
	if j.Sweeper {
		f.sweeper = next()
	}
	if j.HasScript {
		f.script = next()
	}
	return f, ok && len(got) == 0
}

func closeAll(f fds) {
	for _, fd := range append([]int{f.stdin, f.stdout, f.stderr, f.workdir, f.sweeper, f.script}, f.rulesets...) {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
}
