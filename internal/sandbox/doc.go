// Package sandbox starts commands under a [Policy] and owns their process
// trees through one runner process each (package runner).
//
// A [Mode] is a promise about files. What of it the kernel of this host
// really keeps is found out by [New], which runs a confined command in a scratch directory and
// looks at what it could do, and is told by [Sandbox.Report]: "full" only where every effect
// that the mode forbids was refused, else "partial" with the gaps by name. Where nothing can
// enforce a mode, [Sandbox.Start] refuses with an [UnavailableError].
//
// # How a command is confined
//
// Two Landlock layers, entered by the command's process between clone and execve: the
// write layer grants writing below the policy's roots and to a few devices, the read layer hides
// paths (see [readLayer]). Besides, all capabilities are dropped, no_new_privs is
// set, limits are set, every descriptor but the first three is closed, and a system call filter (filter.go)
// refuses what reaches other processes by another way than a signal. A third, outer domain
// scopes signals and is how the tree is killed.
//
// # What it refuses to do
//
// It never confines the daemon itself nor any of its threads. It never runs a command under
// less than was asked for. It reads no configuration and knows no owner; who may
// see what is in the Policy that it is given.
package sandbox
