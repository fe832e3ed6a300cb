// Package runner is the small process that owns one command's process tree.
//
// The daemon starts the same binary again under the name [Argv0]; this
// package's init sees that name and never returns, before any larger package
// has initialised: a waiting runner costs about a megabyte and starts in a
// fraction of the time that main would take. The runner waits on one socket
// for a [Job] and its descriptors, starts the command, reports [Record]s,
// signals the whole tree when told to, reaps, and exits when nothing of the tree
// is left. End of file on the socket, which is how the daemon's death looks,
// kills everything.
//
//	daemon ──socketpair──▶ runner (subreaper) ──clone──▶ sweeper X      (domain D1: signal scope)
//	                          │                            └─clone(PARENT)─▶ bash (domain in D1)
//	                          └── waits for bash and for all that is orphaned
//
// # The tree and its kill
//
// For confined commands the sweeper X enters a Landlock domain that scopes
// signals and then clones the command into it. kill(-1) from X reaches exactly the
// processes of that domain, in one pass under the kernel's task lock: no setsid,
// double fork or fork storm escapes. X is no child that wait(-1) sees (its exit
// signal is 0), so ECHILD means that nobody is left. Without a domain (full access, old
// kernels) the runner kills its descendants again and again until ECHILD.
//
// # Confinement
//
// Neither the daemon nor a thread of the runner that lives on is ever confined.
// What confines is prepared as a list of system calls and carried out in
// the child between clone and execve, by code that allocates nothing, grows no stack and calls
// nothing but raw system calls.
//
// # What it refuses to do
//
// It decides nothing: policy, paths, limits and environment come with the Job. It
// never runs a command after a step of the list failed, and it reads no
// configuration.
package runner
