package exec

import (
	"maps"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"bashd/internal/sandbox"
)

// secretName matches names of variables that look like credentials; those that hold the
// way to an agent or a login count too.
var secretName = regexp.MustCompile(`(?i)KEY|SECRET|TOKEN|PASS|CREDENTIAL|PRIVATE|COOKIE|JWT|WEBHOOK|AUTH$|AUTH_|XAUTHORITY|_PWD$`)

// secretValue matches values with a login in a URL.
var secretValue = regexp.MustCompile(`://[^/\s]*:[^/\s]*@`)

// hijackers are variables by which the daemon's environment would change what bash or
// the dynamic loader does before the command has its say.
var hijackers = map[string]bool{
	"BASH_ENV": true, "ENV": true, "SHELLOPTS": true, "BASHOPTS": true, "PS4": true, "PROMPT_COMMAND": true,
	"LD_PRELOAD": true, "LD_AUDIT": true, "LD_LIBRARY_PATH": true,
}

// terminalFacts tell programs that nobody sits at a terminal.
var terminalFacts = map[string]string{
	"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited returns what commands get of the daemon's own environment. Who they are, where that is not the daemon's user,
// is told instead of who the daemon is.
func inherited(environ, keep []string, runAs *sandbox.Credential) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if ok && passes(name, value, keep) {
			env[name] = value
		}
	}
	fill := func(name, value string) {
		if env[name] == "" {
			env[name] = value
		}
	}
	if runAs != nil {
		become(env, runAs.UID)
	}
	fill("PATH", defaultPath)
	fill("HOME", homeDir())
	fill("LANG", "C.UTF-8")
	return env
}

// become makes env that of a user of whom nothing but the uid may be known.
func become(env map[string]string, uid uint32) {
	delete(env, "USER")
	delete(env, "LOGNAME")
	env["HOME"] = "/"
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return
	}
	env["USER"], env["LOGNAME"] = u.Username, u.Username
	if isDir(u.HomeDir) == nil {
		env["HOME"] = u.HomeDir
	}
}

func passes(name, value string, keep []string) bool {
	switch {
	case name == "", strings.HasPrefix(name, "BASHD_"), strings.HasPrefix(name, "DSH_"),
		strings.HasPrefix(name, "BASH_FUNC_"), hijackers[name]:
		return false
	// The shell sets these itself; the daemon's would be another directory's.
	case name == "PWD", name == "OLDPWD", name == "SHLVL", name == "_":
		return false
	}
	return !secretName.MatchString(name) && !secretValue.MatchString(value) || slices.Contains(keep, name)
}

func homeDir() string {
	// Service users often have a home that does not exist.
	if u, err := user.Current(); err == nil && isDir(u.HomeDir) == nil {
		return u.HomeDir
	}
	return "/"
}

// environment builds the complete environment of one command, as NAME=value; later
// sources win.
func (m *Manager) environment(spec *Spec, id, temp string) []string {
	env := maps.Clone(m.inherited)
	maps.Copy(env, terminalFacts)
	if temp != "" {
		env["TMPDIR"] = temp
	}
	if !choosesLanguage(spec.Env) {
		env["LC_MESSAGES"] = "C.UTF-8" // so that a denial can be told from the message
	}
	maps.Copy(env, spec.Env)
	for _, v := range m.managed {
		env[v.Name] = v.Value
	}
	env["DSH_TASK_ID"] = id
	if spec.Session != "" {
		env["DSH_SESSION_ID"] = spec.Session
	}
	// bash takes PWD over only if it names the directory that it is in.
	env["PWD"] = spec.Workdir
	entries := make([]string, 0, len(env))
	for name, value := range env {
		entries = append(entries, name+"="+value)
	}
	slices.Sort(entries)
	return entries
}

func choosesLanguage(env map[string]string) bool {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE"} {
		if _, ok := env[name]; ok {
			return true
		}
	}
	return false
}

// managedVars are the managed facts that are the same for every command.
func managedVars(s Settings) []ManagedVar {
	vars := []ManagedVar{
		{"DSH_HOME", s.DSHHome, "built-in"},
		{"DSH_SHELL", "1", "built-in"},
	}
	for _, v := range s.ManagedEnv {
		vars = append(vars, ManagedVar{v.Name, v.Value, "operator"})
	}
	return vars
}
