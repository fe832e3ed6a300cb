package prober

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Argv0 is the name under which the daemon's binary is the prober, or the victim.
const Argv0 = "bashd-prober"

// victimRole is the second argument of the victim.
const victimRole = "victim"

// The role is taken here and not in main, because main would serve.
func init() {
	if len(os.Args) == 0 || os.Args[0] != Argv0 {
		return
	}
	switch {
	case len(os.Args) == 1:
		syscall.Exit(run())
	case len(os.Args) == 3 && os.Args[1] == victimRole:
		beVictim()
	}
	syscall.Exit(2)
}

// prober is what the process knows of the scene.
type prober struct {
	dir, temp, nonce, mark, abstract string
	workspace                        bool // writing to ws must work
	samePIDs                         bool // the daemon's pids mean the same here
	victim, daemon, runner           process
	devices, disks                   []string
	own                              OwnIDs
	inherited                        []int // descriptors above 2 at the start
}

// process is somebody outside.
type process struct {
	pid   int
	proof string // start time of the process, by which it is known in /proc; empty: it is believed
}

// run is the prober. It returns the exit status: 0 when everything was tried and told.
func run() int {
	runtime.LockOSThread() // what a child's parent is, and whose death it is told of, is a thread's matter
	p, err := newProber()
	if err != nil {
		return complain("reading the environment", err)
	}
	// What it makes is not for others, whatever the caller's mask is.
	unix.Umask(0o077)
	if err := unix.Chdir(p.dir + "/ws"); err != nil {
		return complain("entering the workspace", err)
	}
	list := probes()
	if err := writeAll(1, format(list, p.tryAll(list), p.nonce)); err != nil {
		return complain("writing the results", err)
	}
	return 0
}

func complain(doing string, err error) int {
	_ = writeAll(2, []byte(Argv0+": "+doing+": "+err.Error()+"\n"))
	return 1
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

func newProber() (*prober, error) {
	p := &prober{inherited: openAbove2()}
	env := map[string]string{}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	p.dir, p.temp, p.nonce = env[envDir], env["TMPDIR"], env[envNonce]
	p.mark, p.abstract, p.workspace = env[envMark], env[envAbstract], env[envWorkspace] == "1"
	p.devices, p.disks = strings.Fields(env[envDevices]), strings.Fields(env[envDisks])
	var err error
	number := func(name string) int {
		n, e := strconv.Atoi(env[name])
		if e != nil {
			err = unix.EINVAL
		}
		return n
	}
	p.victim = process{number(envVictim), env[envVictimStart]}
	p.daemon = process{number(envDaemon), env[envDaemonStart]}
	p.own = OwnIDs{uint32(number(envUID)), uint32(number(envGID))}
	p.runner = process{pid: unix.Getppid()}
	if p.dir == "" || p.temp == "" || p.nonce == "" {
		return nil, unix.EINVAL
	}
	here, e := readlink("/proc/self/ns/pid")
	p.samePIDs = e == nil && here == env[envPIDs]
	return p, err
}

// openAbove2 lists the descriptors above 2 that were there when the program began. Those that are closed on exec were made since, by the
// Go runtime; and that of the prober's own program is what the daemon passes.
func openAbove2() (list []int) {
	var self, st unix.Stat_t
	known := unix.Stat("/proc/self/exe", &self) == nil
	for fd := 3; fd < 1024; fd++ {
		if own, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || own&unix.FD_CLOEXEC != 0 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || unix.Fstat(fd, &st) != nil {
			list = append(list, fd) // whatever it is
			continue
		}
		program := known && st.Dev == self.Dev && st.Ino == self.Ino && flags&unix.O_ACCMODE == unix.O_RDONLY
		if !program {
			list = append(list, fd)
		}
	}
	return list
}

// tryAll tries everything, what is done in a child before what comes late.
func (p *prober) tryAll(list []probe) []outcome {
	outcomes := make([]outcome, len(list))
	calls, indices := []rawCall{}, []int{}
	for i, pr := range list {
		if pr.try != nil {
			outcomes[i] = pr.try(p, p.place(i, pr))
			continue
		}
		c, err := pr.call(p, p.place(i, pr))
		if err == errNotVisible {
			outcomes[i] = skip(notVisible)
			continue
		}
		if err != nil {
			outcomes[i] = result(err)
			continue
		}
		calls, indices = append(calls, c), append(indices, i)
	}
	errnos, err := runBatch(calls)
	for j, i := range indices {
		switch {
		case err != nil:
			outcomes[i] = skip("no child to try it in")
		case errnos[j] == 0:
			outcomes[i] = outcome{state: did}
		default:
			outcomes[i] = reached(errnos[j], list[i].allowed...)
		}
		if outcomes[i].state == did && list[i].after != nil {
			list[i].after(p, p.place(i, list[i]))
		}
	}
	return outcomes
}

// place is where the probe with that index finds its objects.
func (p *prober) place(index int, pr probe) place {
	return place{
		name: pr.Name, out: p.dir + "/out/" + pr.Name, ws: p.dir + "/ws/" + pr.Name, hidden: p.dir + "/hidden/" + pr.Name,
		temp: p.temp + "/" + pr.Name, file: p.dir + "/out/" + pr.Name + ".file", signal: signalOf(index),
	}
}

// visible reports whether a pid of the daemon's means that process here.
func (p *prober) visible(who process) bool { return who.pid > 0 && (p.samePIDs || who == p.runner) }

// inProc reports whether /proc/<pid> is that process.
func (p *prober) inProc(who process) bool {
	if who.pid <= 0 {
		return false
	}
	if who.proof == "" || p.samePIDs {
		return true
	}
	start, err := startTime(who.pid)
	return err == nil && start == who.proof
}

// notVisible is why an effect on a process was not tried.
const notVisible = "not visible"
