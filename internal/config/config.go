// Package config reads bashd's configuration from the environment: one struct
// whose fields and tags are the whole truth about every BASHD_* variable. The
// table that `bashd help` and the README print, the checks that Load makes and
// the values that `bashd config` shows are all derived from it.
//
// The package fails closed. It refuses an unknown BASHD_* variable, a value
// that is out of range or that it cannot read exactly, two values that
// contradict each other, and a variable that an operator would rely on for
// safety while this version does nothing with it. Each error is one line that
// names the variable. Neither an error nor a printed Config contains the value
// of BASHD_MANAGED_ENV, and errors never repeat what was given as the path of
// a token file, which may be the token itself.
//
// It looks at strings only: it opens no file, resolves no symbolic link, looks
// up no user or host, and changes nothing. Whoever uses a path has to check
// what is there.
package config

import (
	"log/slog"
	"time"
)

// Mode says what a command may write. Load lets no other value pass than the
// three constants; upper case is not accepted.
type Mode string

// The modes, from the narrowest to the widest.
const (
	ModeReadOnly         Mode = "read-only"
	ModeWorkspaceWrite   Mode = "workspace-write"
	ModeDangerFullAccess Mode = "danger-full-access"
)

// The values of Config.WorkspaceLayout.
const (
	LayoutOwner  = "owner"
	LayoutSingle = "single"
)

// The values of Config.LogFormat.
const (
	LogFormatText = "text"
	LogFormatJSON = "json"
)

// Config is the configuration of one server, complete and valid when it comes
// from Load. It is read once at the start and never changed; code below the
// boundary gets resolved values, not a Config.
//
// The tags: env, envDefault and doc are a variable's name, default and
// explanation; default replaces envDefault in what is printed where the default
// is computed; kind is "path" (absolute, cleaned) or "ms" (an integer of
// milliseconds); oneof lists all accepted values; min and max are inclusive, in
// the variable's own unit; secret keeps the given value out of errors; effect
// is "none" for a variable that is checked and then ignored, and "refused" for
// one that stops the start instead, because to ignore it would be unsafe.
//
// An empty value means "not set" for lists, for paths with a computed default
// and for what has no default. For numbers and for everything with a fixed
// default it is an error: a template that lost its value must not lift a limit.
type Config struct {
	// Listen is where the API is served. Beyond loopback it needs tokens, or
	// AllowOpen and AllowedHosts.
	Listen Address `env:"BASHD_LISTEN" envDefault:"127.0.0.1:8080" doc:"address of the API: host:port (an IP address, localhost or nothing for all interfaces), or unix:/path for a socket with mode 0600"`
	// AdminListen is the zero Address where /metrics stays on Listen.
	AdminListen Address `env:"BASHD_ADMIN_LISTEN" effect:"refused" doc:"address of its own for /metrics, /debug/pprof, healthz and readyz, in the forms of BASHD_LISTEN"`
	// StateDir is absolute; the server creates it with mode 0700.
	StateDir string `env:"BASHD_STATE_DIR" kind:"path" default:"$XDG_STATE_HOME/bashd, else ~/.local/state/bashd" doc:"directory of the database and the output files, absolute, kept at mode 0700"`
	// Workspace is absolute, and neither in StateDir nor above it.
	Workspace string `env:"BASHD_WORKSPACE" kind:"path" default:"$XDG_DATA_HOME/bashd/workspace, else ~/.local/share/bashd/workspace" doc:"directory that commands work in, absolute, created if missing"`
	// WorkspaceLayout is LayoutOwner or LayoutSingle.
	WorkspaceLayout string `env:"BASHD_WORKSPACE_LAYOUT" envDefault:"owner" oneof:"owner,single" doc:"owner: one directory an owner in the workspace (shared for the ownerless); single: the workspace itself for all"`
	// AllowedRoots are absolute, and neither in StateDir nor above it.
	AllowedRoots Paths `env:"BASHD_ALLOWED_ROOTS" effect:"none" doc:"further directories that a session's cwd may lie in, absolute, separated by colons"`
	// SandboxMode is never wider than SandboxMaxMode.
	SandboxMode Mode `env:"BASHD_SANDBOX_MODE" envDefault:"read-only" oneof:"read-only,workspace-write,danger-full-access" doc:"mode of a command whose request names none: read-only, workspace-write or danger-full-access"`
	// SandboxMaxMode bounds what a request may ask for.
	SandboxMaxMode Mode `env:"BASHD_SANDBOX_MAX_MODE" envDefault:"workspace-write" oneof:"read-only,workspace-write,danger-full-access" doc:"the widest mode that a caller may choose without an approval: read-only, workspace-write or danger-full-access"`
	// HidePaths come on top of what the sandbox hides by itself.
	HidePaths Paths `env:"BASHD_HIDE_PATHS" doc:"paths that confined commands cannot read, besides the state directory, the token file and other owners' workspaces; absolute, separated by colons"`
	// RunAs is empty where commands run as the daemon's own user. Whether there is such a user is not known here.
	RunAs User `env:"BASHD_RUN_AS" doc:"user that commands run as, for a server that is started as root: a name, a uid or uid:gid, never root"`
	// WarmRunners bounds idle runner processes, about 1 MB each.
	WarmRunners int `env:"BASHD_WARM_RUNNERS" envDefault:"2" min:"0" max:"256" doc:"runners kept started for the next commands; 0: none"`
	// TokensFile decides between open and closed mode; see Open.
	TokensFile string `env:"BASHD_TOKENS_FILE" kind:"path" secret:"true" doc:"file of API tokens, absolute, read again on SIGHUP; with it only callers with a token are served (closed mode)"`
	// ApproverTokenFile belongs to open mode only.
	ApproverTokenFile string `env:"BASHD_APPROVER_TOKEN_FILE" kind:"path" secret:"true" effect:"refused" doc:"file with the token of open mode's approver, absolute"`
	// AllowOpen by itself opens nothing; see Listen. It is false in closed mode.
	AllowOpen bool `env:"BASHD_ALLOW_OPEN" envDefault:"false" oneof:"true,false" doc:"true: allow open mode beyond loopback; needs BASHD_ALLOWED_HOSTS as well"`
	// AllowedHosts are what a Host header may say beyond loopback names. Where there is
	// none, open mode answers to loopback names only, closed mode to any.
	AllowedHosts Hosts `env:"BASHD_ALLOWED_HOSTS" doc:"names and addresses that the server answers to besides loopback ones, without ports (any port matches), separated by commas; closed mode answers to any unless this is set"`
	// AllowedOrigins may hold "*" in closed mode only.
	AllowedOrigins Origins `env:"BASHD_ALLOWED_ORIGINS" doc:"browser origins allowed besides the server's own, as scheme://host or scheme://host:port, separated by commas; * for all, in closed mode only"`
	// Approvals is "on" or "off".
	Approvals string `env:"BASHD_APPROVALS" envDefault:"on" oneof:"on,off" effect:"none" doc:"on: a wider mode can be asked for; off: a denial is final"`
	// ApprovalTimeout is how long a question waits for its answer.
	ApprovalTimeout time.Duration `env:"BASHD_APPROVAL_TIMEOUT_MS" envDefault:"300000" kind:"ms" min:"1" max:"2147483647" effect:"none" doc:"how long an approval waits for a decision, in milliseconds"`
	// ToolBackground is about the model-facing tool, not about REST.
	ToolBackground bool `env:"BASHD_TOOL_BACKGROUND" envDefault:"true" oneof:"true,false" effect:"none" doc:"true or false: whether the bash tool offers run_in_background"`
	// Console is "auto", "on" or "off".
	Console string `env:"BASHD_CONSOLE" envDefault:"auto" oneof:"auto,on,off" effect:"none" doc:"the web console: on, off, or auto for open mode only"`
	// Timeout is never longer than MaxTimeout.
	Timeout time.Duration `env:"BASHD_TIMEOUT_MS" envDefault:"120000" kind:"ms" min:"1" max:"2147483647" doc:"timeout of a foreground run that names none, in milliseconds"`
	// MaxTimeout caps what a request for a foreground run may ask for.
	MaxTimeout time.Duration `env:"BASHD_MAX_TIMEOUT_MS" envDefault:"600000" kind:"ms" min:"1" max:"2147483647" doc:"the longest timeout of a foreground run, in milliseconds"`
	// Grace 0 means SIGKILL at once.
	Grace time.Duration `env:"BASHD_GRACE_MS" envDefault:"3000" kind:"ms" min:"0" max:"60000" doc:"time from SIGTERM to SIGKILL, in milliseconds"`
	// MaxOutputBytes is memory, for each stream of each running command.
	MaxOutputBytes int `env:"BASHD_MAX_OUTPUT_BYTES" envDefault:"64000" min:"1" max:"8388608" doc:"output kept in memory, in bytes a stream"`
	// MaxSpillBytes is disk, for each stream; 0 keeps no file.
	MaxSpillBytes int64 `env:"BASHD_MAX_SPILL_BYTES" envDefault:"67108864" min:"0" max:"1099511627776" doc:"output kept on disk once memory overflows, in bytes a stream"`
	// MaxTasksPerOwner counts background tasks of one owner and session.
	MaxTasksPerOwner int `env:"BASHD_MAX_TASKS_PER_OWNER" envDefault:"10" min:"1" max:"65536" doc:"background tasks running at once for an owner and session"`
	// MaxRunning counts foreground runs and background tasks of all owners.
	MaxRunning int `env:"BASHD_MAX_RUNNING" envDefault:"256" min:"1" max:"65536" doc:"commands running at once; one owner's foreground runs hold at most half"`
	// MaxProcesses counts a command's whole tree.
	MaxProcesses int `env:"BASHD_MAX_PROCESSES" envDefault:"512" min:"1" max:"4194304" doc:"processes and threads of a command"`
	// MaxOpenFiles is RLIMIT_NOFILE.
	MaxOpenFiles int `env:"BASHD_MAX_OPEN_FILES" envDefault:"4096" min:"16" max:"1048576" doc:"open files of each process of a command"`
	// DSHHome is told to commands as DSH_HOME; it need not exist.
	DSHHome string `env:"BASHD_DSH_HOME" kind:"path" default:"$DSH_HOME of the daemon, else ~/.dsh" doc:"the DSH_HOME that commands are told, absolute"`
	// MaxFileBytes is RLIMIT_FSIZE.
	MaxFileBytes int64 `env:"BASHD_MAX_FILE_BYTES" envDefault:"4294967296" min:"1" max:"1099511627776" doc:"size of a file that a command writes, in bytes"`
	// MaxMemoryBytes 0 means no limit.
	MaxMemoryBytes int64 `env:"BASHD_MAX_MEMORY_BYTES" min:"0" max:"1099511627776" doc:"memory of a command's processes together, in bytes; 0: no limit; where the host cannot enforce one, setting it stops the start"`
	// MaxTempBytes 0 means that the sandbox decides.
	MaxTempBytes int64 `env:"BASHD_MAX_TEMP_BYTES" envDefault:"0" min:"0" max:"1099511627776" doc:"size of a command's /tmp and /dev/shm together where the sandbox makes them private, in bytes; 0: an eighth of the machine's memory, at least 64 MiB and at most 1 GiB"`
	// MaxCPUSeconds is RLIMIT_CPU; 0 means no limit.
	MaxCPUSeconds int `env:"BASHD_MAX_CPU_SECONDS" min:"0" max:"2147483647" doc:"CPU time of each process of a command, in seconds; 0: no limit"`
	// MaxBodyBytes is memory, for each request being read.
	MaxBodyBytes int64 `env:"BASHD_MAX_BODY_BYTES" envDefault:"8388608" min:"1024" max:"1073741824" doc:"size of a request body, in bytes"`
	// Retention counts from the end of a run or task.
	Retention time.Duration `env:"BASHD_RETENTION" envDefault:"24h" min:"1s" max:"87600h" doc:"how long settled runs and tasks are kept, as a Go duration such as 90m or 24h"`
	// MaxStateBytes makes room by deleting the oldest of whoever takes most.
	MaxStateBytes int64 `env:"BASHD_MAX_STATE_BYTES" envDefault:"10737418240" min:"1" max:"1125899906842624" doc:"disk space of settled runs and tasks, in bytes; when it is exceeded, the owner who takes most loses the oldest"`
	// Drain 0 means that a shutdown kills at once.
	Drain time.Duration `env:"BASHD_DRAIN_MS" envDefault:"4000" kind:"ms" min:"0" max:"600000" doc:"how long foreground runs may still finish at shutdown, in milliseconds"`
	// EnvKeep holds names that the credential pattern catches for nothing.
	EnvKeep Names `env:"BASHD_ENV_KEEP" doc:"variables of the daemon that commands keep although their names look like credentials, separated by commas"`
	// ManagedEnv is the operator's; its values are shown to no one but commands.
	ManagedEnv ManagedEnv `env:"BASHD_MANAGED_ENV" secret:"true" doc:"variables that every command is given, as DSH_X=value, separated by commas (a value cannot contain one)"`
	// LogLevel is one of slog's four named levels.
	LogLevel slog.Level `env:"BASHD_LOG_LEVEL" envDefault:"info" oneof:"debug,info,warn,error" doc:"least level that is logged: debug, info, warn or error"`
	// LogFormat is LogFormatText or LogFormatJSON.
	LogFormat string `env:"BASHD_LOG_FORMAT" envDefault:"text" oneof:"text,json" doc:"text for people, json for collectors"`
}

// Open reports whether callers are served without API tokens.
func (c Config) Open() bool { return c.TokensFile == "" }
