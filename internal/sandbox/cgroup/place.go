package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
)

const (
	prefix = "bashd-"       // of the groups that hold commands' groups
	leaf   = "bashd-server" // where this process moves; or where a service manager has put it (DelegateSubgroup=)
)

// place is where this process may make groups.
type place struct {
	dir
	inside bool // this process is in the group itself, not in its leaf
}

// candidates opens the places that there may be, the best first.
func candidates() ([]place, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	group, err := ownPath(string(own))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var places []place
	// In a leaf that was made for us, what is ours is one higher.
	if path.Base(group) == leaf {
		if d, err := find(string(mounts), path.Dir(group), leaf); err == nil {
			places = append(places, place{d, false})
		}
	}
	d, err := find(string(mounts), group, ".")
	if err != nil && len(places) == 0 {
		return nil, err
	}
	if err == nil {
		places = append(places, place{d, true})
	}
	return places, nil
}

// find opens a group, wherever it is mounted, and makes sure that this process is in its member.
func find(mountinfo, group, member string) (dir, error) {
	err := errors.New("no control groups of version 2 are mounted")
	for _, candidate := range mountedAt(mountinfo, group) {
		var d dir
		if d, err = openDir(candidate); err != nil {
			continue
		}
		if err = holdsUs(d, member); err == nil {
			return d, nil
		}
		d.close()
	}
	return dir{}, err
}

func holdsUs(d dir, member string) error {
	inside, err := d.sub(member)
	if err != nil {
		return err
	}
	defer inside.close()
	members, err := inside.members()
	if err != nil {
		return err
	}
	if !slices.Contains(members, os.Getpid()) {
		return fmt.Errorf("%s is not this process's group", inside.file.Name())
	}
	return nil
}

// members lists the processes of a group, those of groups in it not included; of very many only the first.
func (d dir) members() ([]int, error) {
	contents, err := d.read("cgroup.procs")
	if err != nil {
		return nil, err
	}
	return pids(contents)
}
