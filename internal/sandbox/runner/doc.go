// Package runner is the small process that owns one command's process tree.
//
// The daemon starts the same binary again under the name [Argv0]; this
// package's init sees that name and never returns, before any larger package
// has initialised: a waiting runner costs about a megabyte and starts in a
// fraction of the time that main would take. The runner takes one [Setup] by a socket, clones the process of the next command as
// far as that does not depend on which, and waits for a [Job] and its descriptors. It sends the process on its way, reports
// [Record]s, signals the whole tree when told to, reaps, and waits for the next job, or exits where it is not as it was.
// End of file on its pipe of orders, which is how the daemon's death looks, kills everything.
//
//	daemon ──socketpair──▶ runner (subreaper) ──clone──▶ sweeper X      (domain D1: signal scope)
//	                          │                            └─clone(PARENT)─▶ bash (domain in D1)
//	                          └── waits for bash and for all that is orphaned
//
//	daemon ──socketpair──▶ runner (process 1 of namespaces of its own) ──clone──▶ bash
//
// # The tree and its kill
//
// A runner that is process 1 of a pid namespace sends kill(-1), and the kernel ends the namespace with it. Else, for confined commands, the
// sweeper X enters a Landlock domain that scopes
// signals and then clones the command into it. kill(-1) from X reaches exactly the
// processes of that domain, in one pass under the kernel's task lock: no setsid,
// double fork or fork storm escapes. X is no child that wait(-1) sees (its exit
// signal is 0), so ECHILD means that nobody is left. Without a domain (full access, old
// kernels) the runner kills its descendants again and again until ECHILD.
//
// # Confinement
//
// Neither the daemon nor a thread of the runner that lives on is ever confined.
// What confines is prepared as two lists of system calls and carried out in
// the child between clone and execve, by code that allocates nothing, grows no stack and calls
// nothing but raw system calls. The early list is done before there is a command; the late one comes through memory that both
// processes share. The file tree of a runner with namespaces is its own work, on a thread that is not confined (world.go, scene.go).
//
// # What it refuses to do
//
// It decides nothing: policy, paths, limits and environment come with the Setup and the Job. It
// never runs a command after a step of a list failed, and it reads no
// configuration.
package runner
