// Package cgroup gives commands control groups (version 2) of their own: one signal reaches everything in a group, and
// the memory and the number of processes of all of it together can be limited.
//
// [Open] finds the part of the hierarchy that this process may use: its own group where that is delegated (systemd's
// Delegate=yes), the root of a container, or, for root, wherever it runs. It decides by trying: what it returns has
// already held a process. Below the place it makes a group of its own, and [Tree.New] makes one for each command in there.
//
//	<place>                     the group that this process was started in
//	├── bashd-server            this process, where controllers are in use: a group has processes or limited groups, not both
//	└── bashd-<pid>-<random>    ours while we live; we hold a lock on it
//	    ├── <name>              one command
//	    └── …
//
// Whoever tells this process's commands from others by their group must therefore look at [Tree.Place] and everything
// below it, not at the group that this process is in.
//
// # What it refuses to do
//
// It uses no controllers where that means to move a process other than this one. It sets no limit halfway: [Tree.New] returns a
// group with every limit that it was asked for, or an error. It touches no group that another living process holds
// the lock of, and never a hierarchy of version 1.
//
// # What a group is not
//
// A fence. A process that may write to the files of the hierarchy can leave its group: one of root, or of the user that the
// hierarchy was delegated to, unless something else forbids it to write there. So for commands with full access a
// group is a fast way to kill and a limit for the well-behaved; who must be certain that nobody is left looks himself.
package cgroup
