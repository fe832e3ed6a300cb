package exec

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bashd/internal/sandbox"
)

var (
	sessionID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	keyName   = regexp.MustCompile(`^[!-~]{1,255}$`)
)

// envName is what a name in a request's env must match.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Resolve makes the Spec of a Request: defaults filled, caps applied, paths absolute,
// the workdir looked at. Errors: CodeInvalidArgument (with every field that is wrong),
// CodeModeNotAllowed, CodeWorkdirUnusable, CodeStartFailed (the workspace cannot be made), CodeInternal.
func (m *Manager) Resolve(c Caller, k Kind, r Request) (Spec, error) {
	if fields := append(Check(r), checkKind(k, r)...); len(fields) > 0 {
		return Spec{}, &Error{Code: CodeInvalidArgument, Message: fields[0].Field + ": " + fields[0].Message, Fields: fields}
	}
	s := Spec{
		Command: r.Command, Description: r.Description, Session: r.Session, StdinOpen: r.StdinOpen,
		Timeout: m.timeout(k, r.Timeout), Stdin: r.Stdin, HasStdin: r.HasStdin, StdinBytes: len(r.Stdin), Env: r.Env,
		Mode: r.SandboxMode, Owner: c.Owner,
		StdoutMaxBytes: r.StdoutMaxBytes, StderrMaxBytes: m.set.MaxOutputBytes,
		MergeStderr: r.MergeStderr, Encoding: r.Encoding,
	}
	if s.StdoutMaxBytes == 0 {
		s.StdoutMaxBytes = m.set.MaxOutputBytes
	}
	if s.Encoding == "" {
		s.Encoding = EncodingText
	}
	if s.Mode == "" {
		s.Mode = m.set.DefaultMode
	} else if s.Mode.WiderThan(m.set.MaxMode) {
		return Spec{}, &Error{Code: CodeModeNotAllowed, Message: fmt.Sprintf("sandboxMode %q is not allowed here; the widest that is: %q", s.Mode, m.set.MaxMode)}
	}
	var err error
	if s.WorkspaceRoot, err = m.files.workspace(c.Owner); err != nil {
		return Spec{}, errPlace("the workspace cannot be used", err)
	}
	s.Workdir, err = m.workdir(s, r.Workdir)
	return s, err
}

// timeout is the effective timeout of a command that asked for one, or for none. A task has none by itself, and
// its own is not capped.
func (m *Manager) timeout(k Kind, asked *time.Duration) time.Duration {
	switch {
	case k == Background && asked == nil:
		return 0
	case k == Background:
		return *asked
	case asked == nil:
		return m.set.Timeout
	}
	return min(*asked, m.set.MaxTimeout)
}

// checkKind refuses what only the other kind of command has.
func checkKind(k Kind, r Request) (fields []FieldError) {
	if k == Foreground && r.StdinOpen {
		fields = append(fields, FieldError{"stdinOpen", "is for tasks only"})
	}
	if k == Background && r.YieldAfter != 0 {
		fields = append(fields, FieldError{"yieldAfterMs", "is for runs only"})
	}
	return fields
}

// Check looks at the fields of r each by itself, as far as no file or
// configuration is needed for it, and reports all that is wrong with them, named as the wire names them. It
// never repeats a value of env, which may be a secret.
func Check(r Request) (fields []FieldError) {
	bad := func(field, format string, args ...any) {
		fields = append(fields, FieldError{field, fmt.Sprintf(format, args...)})
	}
	if strings.TrimSpace(r.Command) == "" {
		bad("command", "must not be blank")
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"command", r.Command, MaxCommandBytes}, {"description", r.Description, MaxDescription}, {"workdir", r.Workdir, MaxWorkdirBytes}} {
		switch {
		case len(f.value) > f.limit:
			bad(f.name, "is %d bytes long; at most %d are allowed", len(f.value), f.limit)
		case strings.IndexByte(f.value, 0) >= 0:
			bad(f.name, "must not contain a NUL character")
		}
	}
	if r.Timeout != nil && *r.Timeout <= 0 {
		bad("timeoutMs", "must be an integer of at least 1")
	}
	if r.StdoutMaxBytes < 0 || r.StdoutMaxBytes > MaxStdoutBytes {
		bad("stdoutMaxBytes", "must be at most %d", MaxStdoutBytes)
	}
	if r.Encoding != "" && r.Encoding != EncodingText && r.Encoding != EncodingBase64 {
		bad("outputEncoding", "must be %s or %s", EncodingText, EncodingBase64)
	}
	if _, ok := sandbox.ParseMode(string(r.SandboxMode)); r.SandboxMode != "" && !ok {
		bad("sandboxMode", "must be one of %s, %s, %s", sandbox.ReadOnly, sandbox.WorkspaceWrite, sandbox.FullAccess)
	}
	if r.Session != "" && !sessionID.MatchString(r.Session) {
		bad("session", "must match %s", sessionID)
	}
	if r.YieldAfter < 0 {
		bad("yieldAfterMs", "must be an integer of at least 1")
	}
	if r.Key != nil && !keyName.MatchString(r.Key.Name) {
		bad("Idempotency-Key", "must be 1 to %d visible ASCII characters", MaxKeyBytes)
	}
	return append(fields, checkEnv(r.Env)...)
}

func checkEnv(env map[string]string) (fields []FieldError) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		field := "env." + name
		switch n := len(name) + 1 + len(env[name]); {
		case !envName.MatchString(name):
			fields = append(fields, FieldError{field, "the name must match " + envName.String()})
		case strings.IndexByte(env[name], 0) >= 0:
			fields = append(fields, FieldError{field, "must not contain a NUL character"})
		case n > MaxEnvEntry:
			fields = append(fields, FieldError{field, fmt.Sprintf("name and value are %d bytes long; the kernel takes at most %d", n, MaxEnvEntry)})
		}
	}
	return fields
}

// workdir makes the working directory absolute and sees that it can be used, with the command's permissions. Of what is hidden
// nothing is told, not even whether it is there.
func (m *Manager) workdir(s Spec, requested string) (dir string, err error) {
	if requested == "" {
		return s.WorkspaceRoot, nil // ours, and just looked at
	}
	if dir = requested; !filepath.IsAbs(dir) {
		dir = s.WorkspaceRoot + "/" + dir
	}
	policy, err := m.policy(s, "")
	if err != nil {
		return "", &Error{Code: CodeInternal, Message: "the sandbox policy cannot be made", Err: err}
	}
	hidden := unusable(dir, "is hidden from commands under "+string(s.Mode))
	if policy.Hides(filepath.Clean(dir)) {
		return "", hidden
	}
	real, leads := "", false
	look := func() {
		if leads = policy.LeadsToHidden(dir); !leads {
			real, err = enter(dir)
		}
	}
	if asErr := m.set.Sandbox.AsCommand(s.Mode, look); asErr != nil {
		return dir, nil // nothing is told; what cannot be looked at in this way is seen when the command enters, or is confined
	}
	if leads || real != "" && policy.Hides(real) {
		return "", hidden
	}
	if err != nil {
		return "", unusable(dir, sandbox.WorkdirReason(err))
	}
	// The spelling that the caller chose is kept for $PWD, except where it cannot be: ".."
	// means what chdir makes of it, after links.
	if !filepath.IsAbs(requested) || slices.Contains(strings.Split(dir, "/"), "..") {
		dir = real
	}
	return dir, nil
}

// enter tells what directory dir is, links resolved, and why it cannot be the working directory. That
// the command can enter it is seen when it does.
func enter(dir string) (real string, err error) {
	if real, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	// Not by the links of /proc that lead to what a process has open: this process has more of that than the command.
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6, where nothing is confined either
		fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return real, err
	}
	defer unix.Close(fd)
	return real, unix.Faccessat(fd, ".", unix.X_OK, unix.AT_EACCESS) // by the ids that files are accessed with
}

func unusable(dir, reason string) *Error {
	e := &sandbox.WorkdirError{Path: dir, Reason: reason}
	return &Error{Code: CodeWorkdirUnusable, Message: e.Error()}
}

// policy makes the sandbox policy of the command with that id.
func (m *Manager) policy(s Spec, id string) (sandbox.Policy, error) {
	return m.set.Sandbox.Policy(s.Mode, s.WorkspaceRoot, m.files.tempPath(s.Owner, id), []string{m.files.ownerDir(s.Owner)})
}

var errNotDirectory = errors.New("not a directory")

func isDir(path string) error {
	st, err := os.Stat(path)
	if err == nil && !st.IsDir() {
		return errNotDirectory
	}
	return err
}
