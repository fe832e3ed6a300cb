package cgroup

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// enable has subgroups of the place get those of the wanted controllers that can be had, and returns them.
func (p place) enable(wanted []string, undo *undoList) ([]string, error) {
	wanted, err := p.among("cgroup.controllers", wanted)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	on, err := p.among("cgroup.subtree_control", wanted)
	if err != nil || len(on) == len(wanted) {
		return on, err
	}
	// A group with processes cannot give its subgroups controllers; the root of the hierarchy can. Such as do not distribute a
	// resource (pids) it can, but then becomes a threaded one, whose subgroups take no processes. So it has to be empty in any case.
	if !p.isRoot() {
		if err := p.empty(undo); err != nil {
			return nil, err
		}
	}
	return wanted, p.switchOn(wanted, undo)
}

// among returns those of the names that a file lists.
func (d dir) among(file string, names []string) ([]string, error) {
	contents, err := d.read(file)
	if err != nil {
		return nil, err
	}
	listed := strings.Fields(contents)
	var found []string
	for _, n := range names {
		if slices.Contains(listed, n) {
			found = append(found, n)
		}
	}
	return found, nil
}

// isRoot says whether this is the root of the whole hierarchy, not just of what a container sees: every other group has a type.
func (d dir) isRoot() bool { return !d.has("cgroup.type") }

var errShared = errors.New("other processes are in this process's control group, so that it cannot have subgroups with limits")

// empty moves this process out of the place into a leaf. It does nothing where other processes are: those are not ours to move.
func (p place) empty(undo *undoList) error {
	members, err := p.members()
	switch {
	case err != nil:
		return err
	case len(members) == 0:
		return nil
	case !p.inside || len(members) != 1 || members[0] != os.Getpid():
		return errShared
	}
	// Looked at first: the process would have to move back.
	if err := p.writable("cgroup.subtree_control"); err != nil {
		return err
	}
	err = p.mkdir(leaf)
	made := err == nil
	if err := ignore(err, unix.EEXIST); err != nil {
		return err
	}
	undo.add(func() {
		_ = p.write("cgroup.procs", strconv.Itoa(os.Getpid()))
		if made {
			_ = p.rmdir(leaf)
		}
	})
	return p.write(leaf+"/cgroup.procs", strconv.Itoa(os.Getpid()))
}

// switchOn has subgroups get controllers that they do not have yet.
func (d dir) switchOn(controllers []string, undo *undoList) error {
	on, err := d.among("cgroup.subtree_control", controllers)
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if slices.Contains(on, c) {
			continue
		}
		if err := d.write("cgroup.subtree_control", "+"+c); err != nil {
			return err
		}
		undo.add(func() { _ = d.write("cgroup.subtree_control", "-"+c) })
	}
	return nil
}

// writable says why this process may not write to a file.
func (d dir) writable(name string) error {
	return d.do("access", name, func(at int) error { return unix.Faccessat2(at, name, unix.W_OK, unix.AT_EACCESS) })
}
