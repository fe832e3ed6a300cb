package sandbox

import (
	"os"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/runner"
)

// launch holds what Start opens, so that one release closes whatever was not
// handed on.
type launch struct {
	fds                   []int // the command's, in the order of runner.Job
	stdin, stdout, stderr *os.File
}

func (l *launch) release() {
	for _, fd := range l.fds {
		unix.Close(fd)
	}
	for _, f := range []*os.File{l.stdin, l.stdout, l.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// loader is the command line of a script that is longer than one argument may
// be. It reads the script from descriptor 3, closes that, and evaluates it, after which nothing of
// the loader is left.
const loader = `mapfile -d '' -u 3 BASHD_SCRIPT; exec 3<&-; eval "unset BASHD_SCRIPT; ${BASHD_SCRIPT[0]}"`

// maxArgument is the longest single argument of execve, without its NUL.
const maxArgument = 128*1024 - 1

// prepare opens everything that the command needs and describes it to the runner.
func (s *Sandbox) prepare(l *launch, c Command) (*runner.Job, error) {
	job := &runner.Job{
		Shell: s.cfg.Shell, Argv: []string{"bash", "-c", "--", c.Script}, Env: c.Env,
		Limits: s.limitsOf(c.Policy.mode), HasScript: len(c.Script) > maxArgument, Workdir: c.Workdir,
	}
	if err := l.openStdio(c, s.cfg.RunAs); err != nil {
		return nil, &StartError{spawnKind(err), err}
	}
	if s.namespaced(c.Policy.mode) {
		job.NullStdin = !c.WantStdin
		var err error
		if job.Shows, err = shows(c.Policy); err != nil {
			return nil, &UnavailableError{runner.StageRoots.String(), err.Error()}
		}
	}
	if c.Policy.mode.Confined() {
		if err := s.openRules(l, c.Policy, job); err != nil {
			return nil, &UnavailableError{runner.StageLandlock.String(), err.Error()}
		}
	}
	if job.HasScript {
		fd, err := memfile("bashd-script", []byte(c.Script))
		if err != nil {
			return nil, &StartError{spawnKind(err), err}
		}
		l.fds = append(l.fds, fd)
		job.Argv[3] = loader
	}
	if c.program != nil {
		job.Shell, job.Argv, job.HasScript = c.program.path, c.program.argv, true
		fd, err := unix.FcntlInt(uintptr(c.program.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, &StartError{spawnKind(err), os.NewSyscallError("fcntl", err)}
		}
		l.fds = append(l.fds, fd)
	}
	return job, nil
}

// openStdio makes the command's pipes. Their ends for the command block, as programs
// expect; ours do not.
//
// A command of another user gets them for its own: else it could not open /dev/stderr.
func (l *launch) openStdio(c Command, owner *Credential) error {
	if c.WantStdin {
		p, err := pipe(owner)
		if err != nil {
			return err
		}
		l.fds = append(l.fds, p[0])
		l.stdin = ourEnd(p[1], "stdin")
	} else {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: os.DevNull, Err: err}
		}
		l.fds = append(l.fds, fd)
	}
	p, err := pipe(owner)
	if err != nil {
		return err
	}
	l.fds = append(l.fds, p[1])
	l.stdout = ourEnd(p[0], "stdout")
	if c.MergeStderr {
		fd, err := unix.FcntlInt(uintptr(p[1]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		l.fds = append(l.fds, fd)
		return nil
	}
	if p, err = pipe(owner); err != nil {
		return err
	}
	l.fds = append(l.fds, p[1])
	l.stderr = ourEnd(p[0], "stderr")
	return nil
}

func pipe(owner *Credential) (p [2]int, err error) {
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return p, os.NewSyscallError("pipe2", err)
	}
	if owner != nil {
		if err := unix.Fchown(p[0], int(owner.UID), int(owner.GID)); err != nil {
			unix.Close(p[0])
			unix.Close(p[1])
			return p, os.NewSyscallError("fchown", err)
		}
	}
	return p, nil
}

func ourEnd(fd int, name string) *os.File {
	// Cannot fail for a pipe, and a blocking end would still work, with a thread to itself.
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// openRules adds the rulesets: the write layer, and before it, where there are no namespaces, the read layer.
func (s *Sandbox) openRules(l *launch, p Policy, job *runner.Job) error {
	if !s.namespaced(p.mode) {
		read, err := s.layers.take(s.hiddenNow(), p.exceptions())
		if err != nil {
			return err
		}
		l.fds = append(l.fds, read)
		job.Rulesets++
	}
	write, err := writeLayer(s.abi, p)
	if err != nil {
		return err
	}
	l.fds = append(l.fds, write.fd)
	job.Rulesets++
	job.TempRights = rootRights & write.handled
	return nil
}
