package prober

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OwnIDs says whom the command runs as.
type OwnIDs struct{ UID, GID uint32 }

// Scene is what one run of the prober acts on: files, sockets, a process. It is made by [Prepare], used for one run, looked at by
// [Scene.Judge], and removed by [Scene.Close].
type Scene struct {
	// Workspace says that the mode allows writing to the workspace. Set it before Env; default false.
	Workspace bool
	// Temp is the command's temporary directory, if it is not the scene's own: /tmp where that is private. Set it before Env.
	Temp string

	dir       string
	mode      os.FileMode // of dir, before
	own       OwnIDs
	nonce     string
	victim    *victim
	sockets   []int
	inherited int                 // a descriptor that a command must not inherit; -1: none
	before    map[string]snapshot // by top
}

// The environment that tells the prober of the scene. Its temporary directory is TMPDIR.
const (
	envDir         = "BASHD_PROBE_DIR"
	envNonce       = "BASHD_PROBE_NONCE"
	envMark        = "BASHD_PROBE_MARK"
	envAbstract    = "BASHD_PROBE_ABSTRACT"
	envWorkspace   = "BASHD_PROBE_WORKSPACE"
	envDevices     = "BASHD_PROBE_DEVICES"
	envDisks       = "BASHD_PROBE_DISKS"
	envVictim      = "BASHD_PROBE_VICTIM"
	envVictimStart = "BASHD_PROBE_VICTIM_START"
	envDaemon      = "BASHD_PROBE_DAEMON"
	envDaemonStart = "BASHD_PROBE_DAEMON_START"
	envPIDs        = "BASHD_PROBE_PIDS"
	envUID         = "BASHD_PROBE_UID"
	envGID         = "BASHD_PROBE_GID"
)

// content is that of every file, and the secret of the victim's environment.
const content = "bashd-prober secret content\n"

// errNoAnswer is what a victim that did not start properly gives.
var errNoAnswer = errors.New("it does not answer")

// Prepare lays out a scene in dir, which must exist, be empty, and be given by an absolute path free of symbolic links; own must be
// able to pass the directories above it. It makes dir itself passable for own. Until [Scene.Close] the process holds a descriptor of
// a file of the scene that its children inherit: what else is executed meanwhile gets it, too.
//
// The scene has a process of own's ([Scene.VictimPID]), which ends with the calling process.
func Prepare(dir string, own OwnIDs) (_ *Scene, err error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return nil, fmt.Errorf("%q is no absolute clean path", dir)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 || !info.IsDir() {
		return nil, fmt.Errorf("%s is no empty directory: %w", dir, err)
	}
	nonce := make([]byte, 16)
	if _, err := unix.Getrandom(nonce, 0); err != nil {
		return nil, os.NewSyscallError("getrandom", err)
	}
	s := &Scene{dir: dir, mode: info.Mode().Perm(), own: own, nonce: hex.EncodeToString(nonce), inherited: -1}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if int(own.UID) != os.Geteuid() {
		if err := os.Chmod(dir, 0o711); err != nil {
			return nil, err
		}
	}
	if err := s.layOut(); err != nil {
		return nil, fmt.Errorf("laying out the scene: %w", err)
	}
	if s.victim, err = startVictim(own, s.mark()); err != nil {
		return nil, fmt.Errorf("starting the process to try things on: %w", err)
	}
	if err := s.leak(); err != nil {
		return nil, err
	}
	s.before, err = s.look()
	return s, err
}

// mark is what is found in the victim's command line.
func (s *Scene) mark() string { return "mark-" + s.nonce }

// Root is the workspace of the command.
func (s *Scene) Root() string { return s.dir + "/ws" }

// Outside is a directory that the command may read and not write.
func (s *Scene) Outside() string { return s.dir + "/out" }

// Hidden is a directory that the command must not see into.
func (s *Scene) Hidden() string { return s.dir + "/hidden" }

// OwnTemp is a directory of the scene's that can be the command's temporary one.
func (s *Scene) OwnTemp() string { return s.dir + "/tmp" }

// VictimPID is the pid of the process that effects are tried on, a child of the caller's. Whoever reaps children must leave it alone.
func (s *Scene) VictimPID() int { return s.victim.process.Pid }

// Args are the arguments of the command; its program is this one's.
func (s *Scene) Args() []string { return []string{Argv0} }

// Env is the whole environment of the command.
func (s *Scene) Env() []string {
	temp, workspace := s.Temp, "0"
	if temp == "" {
		temp = s.OwnTemp()
	}
	if s.Workspace {
		workspace = "1"
	}
	pids, _ := readlink("/proc/self/ns/pid")
	return []string{
		"TMPDIR=" + temp, "GOMAXPROCS=1", "GOGC=off",
		envDir + "=" + s.dir, envNonce + "=" + s.nonce, envMark + "=" + s.mark(), envAbstract + "=" + s.nonce, envWorkspace + "=" + workspace,
		envDevices + "=" + strings.Join(presentDevices(), " "), envDisks + "=" + strings.Join(disks(), " "),
		envVictim + "=" + strconv.Itoa(s.VictimPID()), envVictimStart + "=" + proof(s.VictimPID()),
		envDaemon + "=" + strconv.Itoa(os.Getpid()), envDaemonStart + "=" + proof(os.Getpid()), envPIDs + "=" + pids,
		envUID + "=" + strconv.Itoa(int(s.own.UID)), envGID + "=" + strconv.Itoa(int(s.own.GID)),
	}
}

// proof is by what a process is known. One that cannot be had is no process's.
func proof(pid int) string {
	start, err := startTime(pid)
	if err != nil {
		return "unknown"
	}
	return start
}

func presentDevices() (list []string) {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if _, err := os.Stat("/dev/" + name); err == nil {
			list = append(list, name)
		}
	}
	return list
}

// maxDisks bounds how many disks are tried.
const maxDisks = 8

// disks lists block devices, but those of floppies, which would turn.
func disks() (list []string) {
	entries, _ := os.ReadDir("/dev")
	for _, e := range entries {
		if e.Type()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice && !strings.HasPrefix(e.Name(), "fd") && len(list) < maxDisks {
			list = append(list, "/dev/"+e.Name())
		}
	}
	return list
}

// Close ends the victim, removes what Prepare made, and gives the directory its mode back.
func (s *Scene) Close() error {
	if s.victim != nil {
		s.victim.close()
		s.victim = nil
	}
	for _, fd := range append(s.sockets, s.inherited) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	s.sockets, s.inherited = nil, -1
	// A prober that could mount and was killed before it had unmounted.
	for _, name := range []string{"mount", "mount-bind"} {
		for unix.Unmount(s.Root()+"/"+name+".dir", unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
	}
	var errs []error
	for _, name := range []string{"out", "ws", "tmp", "hidden", "hidden-no-more"} {
		errs = append(errs, os.RemoveAll(s.dir+"/"+name))
	}
	return errors.Join(append(errs, os.Chmod(s.dir, s.mode))...)
}
