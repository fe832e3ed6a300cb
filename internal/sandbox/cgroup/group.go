package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits are of all processes of a group together. Zero means no limit of ours; those of the groups above hold in any case.
type Limits struct {
	MemoryBytes uint64 // memory, page cache included; none of it may be swapped out. Over it, all processes of the group are killed
	Processes   uint64 // processes and threads. Over it, none can be started
}

// Group is the control group of one command.
type Group struct {
	tree *Tree
	name string
	dir  dir
}

// New makes an empty group. Its name is one to 100 ASCII letters, digits, - and _, and no other group of the tree
// has it. All limits are in force when New returns; one for which the tree has no controller ([Tree.Memory], [Tree.Pids]) is an
// error.
func (t *Tree) New(name string, l Limits) (_ *Group, err error) {
	if !validName(name) {
		return nil, fmt.Errorf("control group name %q is not one to 100 letters, digits, - and _", name)
	}
	if l.MemoryBytes > 0 && !t.Memory() || l.Processes > 0 && !t.Pids() {
		return nil, fmt.Errorf("control group %s: no controller for a limit", name)
	}
	if err := t.base.mkdir(name); err != nil {
		return nil, err
	}
	g := &Group{tree: t, name: name}
	if g.dir, err = t.base.sub(name); err == nil {
		if err = g.limit(l); err == nil {
			return g, nil
		}
		g.dir.close()
	}
	return nil, errors.Join(err, t.base.rmdir(name))
}

// validName refuses, with the dot, all names of the kernel's own files.
func validName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= 100 && strings.Trim(name, allowed) == ""
}

func (g *Group) limit(l Limits) error {
	var err error
	if l.MemoryBytes > 0 {
		err = errors.Join(
			g.dir.write("memory.max", number(l.MemoryBytes)),
			// A kernel without swap accounting does not have this one.
			ignore(g.dir.write("memory.swap.max", "0"), unix.ENOENT),
			// Half a command is worse than none.
			g.dir.write("memory.oom.group", "1"),
		)
	}
	if l.Processes > 0 {
		err = errors.Join(err, g.dir.write("pids.max", number(l.Processes)))
	}
	return err
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// FD is a descriptor of the group's directory, for CLONE_INTO_CGROUP. It is closed on execve and stays the Group's: it is
// valid until [Group.Remove].
func (g *Group) FD() int { return int(g.dir.file.Fd()) }

// OOMKilled says whether a process of the group was killed for want of memory: that of the group, that of a group above, or the
// machine's. It is false where memory is not counted, and after [Group.Remove].
func (g *Group) OOMKilled() bool {
	contents, err := g.dir.read("memory.events")
	if err != nil {
		return false
	}
	n, err := value(contents, "oom_kill")
	return err == nil && n > 0
}

// Remove waits up to a second until nothing runs in the group, and removes it with what its processes have made below it.
// It kills nothing. After an error the group is still there, and Remove can be called again.
func (g *Group) Remove() error {
	if err := g.dir.waitEmpty(removeWait); err != nil {
		return err
	}
	if err := g.dir.clear(maxDepth); err != nil {
		return err
	}
	if err := ignore(g.tree.base.rmdir(g.name), unix.ENOENT); err != nil {
		return err
	}
	g.dir.close()
	return nil
}

// nowhere is no path, so that an execve of it fails with ENOTDIR, which no clone fails with.
const nowhere = "/proc/self/exe/nowhere"

// try starts a process in the group that ends at once.
func (g *Group) try() error {
	_, err := os.StartProcess(nowhere, []string{nowhere}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()},
	})
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return fmt.Errorf("no process can be started in a control group: %w", err)
}
