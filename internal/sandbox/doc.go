// Package sandbox starts commands under a [Policy] and owns their process
// trees through one runner process each (package runner).
//
// A [Mode] is a promise about files. What of it the kernel of this host
// really keeps is found out by [New], which has the real runner start a program that tries what is forbidden (package prober) and then
// looks at the objects, and is told by [Sandbox.Report]: "full" only where every effect on files
// that the mode forbids was refused, else "partial"; with the gaps of the whole promise by name. Where nothing can
// enforce a mode, [Sandbox.Start] refuses with an [UnavailableError].
//
// # How a command is confined
//
// By the strongest of the tiers that the probe found to work (docs/security.md has the table): a file tree, process ids and IPC of the runner's own;
// or another user; or Landlock alone. In each of them the command's process enters a Landlock layer between clone and execve that grants writing
// below the policy's roots and to a few devices; has no capability and no_new_privs; has limits, and a control group where one can be had; keeps no
// descriptor but the first three; and runs under a system call filter (package filter). Without a file tree of its own a second
// layer hides paths (see [readLayer]), and a third, outer domain scopes signals and is how the tree is killed.
//
// # What it refuses to do
//
// It never confines the daemon itself nor any of its threads. It never runs a command under
// less than was asked for. It reads no configuration and knows no owner; who may
// see what is in the Policy that it is given.
package sandbox
