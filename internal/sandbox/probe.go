package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The probe runs one real command a mode, in a scratch directory, which tries what
// the mode forbids and prints the names of what it could do. That is what the
// report rests on: not versions, not sysctls.

// probeTimeout bounds the probe of one mode.
const probeTimeout = 10 * time.Second

// probeScript gets the scratch directory as $P; out/ in it is forbidden, ws/ is the
// root. Each effect is tried in a subshell of its own.
const probeScript = `
try() { name=$1; shift; if ("$@") 2>/dev/null; then echo "$name"; fi; }
write() { echo x >>"$P/out/file"; }
create() { : >"$P/out/new"; }
rename() { mv "$P/out/moved" "$P/ws/moved"; }
unlink() { rm "$P/out/victim"; }
mkdir_() { mkdir "$P/out/dir"; }
symlink() { ln -s x "$P/out/link"; }
hardlink() { ln "$P/out/file" "$P/ws/hard"; }
metadata() { chmod 0601 "$P/out/file"; }
timestamps() { touch -d 2001-01-01 "$P/out/file"; }
hidden() { read -r x <"$P/hidden/file"; }
signals() { kill -0 "$PID"; }
workspace() { : >"$P/ws/ok"; }
temp() { : >"$TMPDIR/ok"; }
null() { : >/dev/null; }
for f in write create rename unlink symlink hardlink metadata timestamps hidden signals workspace temp null; do try $f $f; done
try mkdir mkdir_
echo done
`

// mustRefuse are effects without whose refusal a mode is not offered at all.
var mustRefuse = []string{"write", "create", "rename", "unlink", "mkdir", "symlink", "hardlink", "hidden"}

// probe finds out what both confined modes really forbid.
func (s *Sandbox) probe(ctx context.Context) Report {
	r := Report{Tier: s.tier, ABI: s.abi, Cleanup: CleanupSubreaper, RunAs: s.cfg.RunAs != nil, Processes: s.processes()}
	if s.tier == TierLandlock && s.abi < 3 {
		r.Tier = TierOld
	}
	switch {
	case s.tier == TierNamespaces:
		r.Cleanup = CleanupNamespace
	case scopesBy(s.abi) != 0:
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
	did, err := s.tryEffects(ctx, mode)
	if err != nil {
		return ModeReport{Unavailable: fmt.Sprintf("the probe of %s failed: %v", mode, err)}
	}
	for _, effect := range mustRefuse {
		if slices.Contains(did, effect) {
			return ModeReport{Unavailable: fmt.Sprintf("the probe of %s could %s outside", mode, effect)}
		}
	}
	for _, effect := range []string{"temp", "null"} {
		if !slices.Contains(did, effect) {
			return ModeReport{Unavailable: fmt.Sprintf("the probe of %s could not write to its %s", mode, effect)}
		}
	}
	if could := slices.Contains(did, "workspace"); could != (mode == WorkspaceWrite) {
		return ModeReport{Unavailable: fmt.Sprintf("the probe of %s: writing to the workspace gave %v", mode, could)}
	}
	gaps := s.gaps(did)
	return ModeReport{Enforcement: enforcement(gaps), Gaps: gaps}
}

func enforcement(gaps []string) Enforcement {
	if len(gaps) == 0 {
		return Full
	}
	return Partial
}

// gaps lists what is missing: what the probe could do, and what by
// construction no rule of this version speaks of.
func (s *Sandbox) gaps(did []string) []string {
	gaps := []string{GapCommandLines, GapHiddenNames, GapHiddenSockets, GapProcessLimit}
	if s.filter == nil {
		gaps = append(gaps, GapScheduling)
	}
	for _, effect := range []string{GapMetadata, GapTimestamps, GapSignals} {
		if slices.Contains(did, effect) {
			gaps = append(gaps, effect)
		}
	}
	if s.abi < 3 {
		gaps = append(gaps, GapTruncate) // no program that is sure to be there calls truncate(2)
	}
	if s.abi < 5 {
		gaps = append(gaps, GapDeviceIoctl)
	}
	if s.abi < 6 {
		gaps = append(gaps, GapAbstractSockets, GapCleanup)
	}
	slices.Sort(gaps)
	return gaps
}

// tryEffects runs the probe command and returns the names that it printed.
func (s *Sandbox) tryEffects(ctx context.Context, mode Mode) ([]string, error) {
	dir, err := makeScratch(s.cfg.Scratch)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if c := s.cfg.RunAs; c != nil {
		for _, d := range []string{"out", "ws", "tmp"} {
			if err := os.Chown(filepath.Join(dir, d), int(c.UID), int(c.GID)); err != nil {
				return nil, err
			}
		}
		_ = os.Chmod(dir, 0o711)
	}
	// The scratch directory lies in a hidden one; out/ has to be readable for
	// its refusals to be about writing.
	readable := []string{filepath.Join(dir, "tmp"), filepath.Join(dir, "out")}
	policy, err := s.Policy(mode, filepath.Join(dir, "ws"), readable[0], readable)
	if err != nil {
		return nil, err
	}
	temp := readable[0]
	if s.PrivateTemp(mode) {
		temp = "/tmp"
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p, err := s.start(ctx, Command{
		Policy: policy, Script: probeScript, Workdir: "/", MergeStderr: true,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "P=" + dir, "TMPDIR=" + temp, fmt.Sprintf("PID=%d", os.Getpid())},
	})
	if err != nil {
		return nil, err
	}
	defer p.Stdout.Close()
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	out, err := io.ReadAll(io.LimitReader(p.Stdout, 4096))
	p.Kill()
	<-p.Gone()
	if err != nil {
		return nil, err
	}
	did := strings.Fields(string(out))
	if !slices.Contains(did, "done") {
		return nil, fmt.Errorf("it ended early, after %q", did)
	}
	return did, nil
}

// makeScratch lays out the directory that probeScript expects.
func makeScratch(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "probe-")
	if err != nil {
		return "", err
	}
	dir = canonical(dir)
	for _, d := range []string{"out", "ws", "tmp", "hidden"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return dir, err
		}
	}
	for _, f := range []string{"out/file", "out/moved", "out/victim", "hidden/file"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("content\n"), 0o600); err != nil {
			return dir, err
		}
	}
	return dir, nil
}
