package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox/prober"
	"bashd/internal/sandbox/runner"
)

// The probe runs one real command a mode, in a scratch directory, which tries what
// the mode forbids; then the objects are looked at. That is what the report rests on: not versions, not sysctls.

// probeTimeout bounds the probe of one mode.
const probeTimeout = 20 * time.Second

// mustRefuse are the classes of effects without whose refusal a mode is not offered at all.
var mustRefuse = []prober.Class{prober.ClassWrite, prober.ClassHidden, prober.ClassDevices, prober.ClassInherited, prober.ClassSecrets}

// gapOf names the gap that an effect of the other classes is.
var gapOf = map[prober.Class]string{
	prober.ClassTruncate:        GapTruncate,
	prober.ClassMetadata:        GapMetadata,
	prober.ClassTimestamps:      GapTimestamps,
	prober.ClassDeviceIoctl:     GapDeviceIoctl,
	prober.ClassPrivilege:       GapSystemCalls,
	prober.ClassHiddenNames:     GapHiddenNames,
	prober.ClassHiddenSockets:   GapHiddenSockets,
	prober.ClassCommandLines:    GapCommandLines,
	prober.ClassSignals:         GapSignals,
	prober.ClassScheduling:      GapScheduling,
	prober.ClassAbstractSockets: GapAbstractSockets,
}

// aboutFiles are the gaps with which a mode is not fully enforced. The others are about what a command sees of others, and
// does to them, whatever it may write.
var aboutFiles = []string{GapTruncate, GapMetadata, GapTimestamps, GapSystemCalls}

// probe finds out what both confined modes really forbid in the tier in use.
func (s *Sandbox) probe(ctx context.Context) Report {
	r := Report{Tier: s.tier, ABI: s.abi, Cleanup: CleanupSubreaper, RunAs: s.cfg.RunAs != nil, Processes: s.processes(), Memory: s.groups != nil && s.groups.Memory()}
	if s.tier == TierLandlock && s.abi < 3 {
		r.Tier = TierOld
	}
	switch {
	case s.tier == TierNamespaces:
		r.Cleanup = CleanupNamespace
	case s.domain != nil:
		r.Cleanup = CleanupDomain
	}
	r.ReadOnly = s.probeMode(ctx, ReadOnly)
	r.WorkspaceWrite = s.probeMode(ctx, WorkspaceWrite)
	if r.ReadOnly.Unavailable != "" && r.WorkspaceWrite.Unavailable != "" {
		r.Tier = TierNone
	}
	return r
}

func (s *Sandbox) probeMode(ctx context.Context, mode Mode) ModeReport {
	results, err := s.tryEffects(ctx, mode)
	if err != nil {
		return ModeReport{Unavailable: fmt.Sprintf("the probe of %s failed: %v", mode, err)}
	}
	s.effects[mode] = results
	gaps := map[string]bool{}
	for _, r := range results {
		switch class := r.Effect.Class; {
		case class == prober.ClassWorks && r.Errno == unix.EXDEV && s.abi < 2:
			// The first Landlock refuses every rename across directories, and cannot be told otherwise.
		case class == prober.ClassWorks && !r.Did && r.Skipped == "":
			return ModeReport{Unavailable: fmt.Sprintf("the probe of %s: what commands need does not work: %s (%v)", mode, r.Effect.Text, r.Errno)}
		case class == prober.ClassWorks || !r.Did:
		case slices.Contains(mustRefuse, class):
			return ModeReport{Unavailable: fmt.Sprintf("the probe of %s did what must be refused: %s", mode, r.Effect.Text)}
		case gapOf[class] != "":
			gaps[gapOf[class]] = true
		}
	}
	return s.reportOf(gaps)
}

// reportOf adds to what the probe found the gaps that follow from how things are done.
func (s *Sandbox) reportOf(gaps map[string]bool) ModeReport {
	switch s.processes() {
	case ProcessesUser, ProcessesUnlimited:
		gaps[GapProcessLimit] = true
	}
	if s.tier != TierNamespaces && s.domain == nil {
		gaps[GapCleanup] = true
	}
	r := ModeReport{Enforcement: Full, Gaps: []string{}}
	for g := range gaps {
		r.Gaps = append(r.Gaps, g)
		if slices.Contains(aboutFiles, g) {
			r.Enforcement = Partial
		}
	}
	slices.Sort(r.Gaps)
	return r
}

// tryEffects runs the prober under a mode and returns what became of each effect.
func (s *Sandbox) tryEffects(ctx context.Context, mode Mode) (_ []prober.Result, err error) {
	dir, err := os.MkdirTemp(s.cfg.Scratch, "probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	own := s.credentials()
	scene, err := prober.Prepare(canonical(dir), prober.OwnIDs{UID: own.UID, GID: own.GID})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := scene.Close(); err == nil {
			err = closeErr
		}
	}()
	scene.Workspace = mode == WorkspaceWrite
	temp := scene.OwnTemp()
	if s.PrivateTemp(mode) {
		scene.Temp = "/tmp"
	}
	// The scene lies in a hidden directory; what is outside has to be readable for its refusals to be about writing.
	policy, err := s.Policy(mode, scene.Root(), temp, []string{temp, scene.Outside()})
	if err != nil {
		return nil, err
	}
	policy.hidden = append(slices.Clone(policy.hidden), scene.Hidden())
	self, err := s.ownProgram()
	if err != nil {
		return nil, err
	}
	defer unix.Close(self)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := s.collect(ctx, Command{
		Policy: policy, Workdir: "/", Env: scene.Env(),
		program: &program{fmt.Sprint("/proc/self/fd/", runner.ScriptFD), scene.Args(), self},
	})
	if err != nil {
		return nil, err
	}
	return scene.Judge(out)
}

// collect runs a command that serves the probe, and returns what it printed.
func (s *Sandbox) collect(ctx context.Context, c Command) ([]byte, error) {
	p, err := s.start(ctx, "", c)
	if err != nil {
		return nil, err
	}
	defer p.Stdout.Close()
	defer p.Stderr.Close()
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, p.Stderr) }()
	out, err := io.ReadAll(io.LimitReader(p.Stdout, prober.MaxOutput))
	p.Kill()
	<-p.Gone()
	return out, err
}

// ownProgram returns a descriptor of the running binary that the commands' user may execute.
func (s *Sandbox) ownProgram() (int, error) {
	const self = "/proc/self/exe"
	st, err := os.Stat(self)
	if err != nil {
		return -1, err
	}
	if s.cfg.RunAs == nil || st.Mode().Perm()&0o005 == 0o005 {
		fd, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0)
		return fd, os.NewSyscallError("open", err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return -1, err
	}
	return memfile("bashd", content)
}

// program is what is executed instead of the shell: a file by its descriptor.
type program struct {
	path string
	argv []string
	fd   int
}
