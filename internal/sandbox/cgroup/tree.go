package cgroup

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// What limits are set with.
const (
	memory = "memory"
	tasks  = "pids"
)

// Tree is a group of this process's own, in which commands get theirs. Its methods may be called at the same time.
type Tree struct {
	log         *slog.Logger
	place, base dir
	name        string   // of base in place
	enabled     []string // controllers that groups in base have
}

// Open finds where this process may make groups and makes one for those of its commands. It returns a nil Tree and the
// reason where there is no such place.
//
// Where the controllers for limits can be had, they are switched on, and this process moves into a leaf if it must; it does so only if
// it is alone in its group. So Open is for the start, before there are children, and before anything remembers this
// process's group. Whatever cannot be used is left as it was found.
//
// What processes of this program that are gone have left there is removed, unless something still runs in it. That is told
// in the log.
func Open(log *slog.Logger) (*Tree, error) {
	return open(log, memory, tasks)
}

func open(log *slog.Logger, controllers ...string) (*Tree, error) {
	places, err := candidates()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, p := range places {
			p.close()
		}
	}()
	var reasons []error
	for i, p := range places {
		for _, wanted := range [][]string{controllers, nil} {
			t, err := build(log, p, wanted)
			if err != nil {
				reasons = append(reasons, err)
				continue
			}
			places = slices.Delete(places, i, i+1) // t's now
			sweep(log, t.place)
			if len(reasons) > 0 { // not the first choice
				log.Info("control groups in use", "place", t.Place(), "controllers", t.enabled, "reason", errors.Join(reasons...))
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("control groups: %w", reasons[len(reasons)-1])
}

// build makes a tree in a place, with the wanted controllers or those of them that can be had, and tries it.
func build(log *slog.Logger, p place, wanted []string) (_ *Tree, err error) {
	t := &Tree{log: log, place: p.dir}
	var undo undoList
	defer func() {
		if err != nil {
			undo.run()
		}
	}()
	if err := t.makeBase(&undo); err != nil {
		return nil, err
	}
	if len(wanted) > 0 {
		if t.enabled, err = p.enable(wanted, &undo); err != nil {
			return nil, err
		}
		if err := t.base.switchOn(t.enabled, &undo); err != nil {
			return nil, err
		}
	}
	return t, t.try()
}

// undoList is how to take back what was done, the last first.
type undoList []func()

func (u *undoList) add(f func()) { *u = append(*u, f) }

func (u *undoList) run() {
	for _, f := range slices.Backward(*u) {
		f()
	}
}

// makeBase makes the group for the commands' groups and locks it. The lock tells others of this program that somebody
// lives who owns it; the kernel gives it back when this process ends, in whatever way.
func (t *Tree) makeBase(undo *undoList) error {
	for range 10 {
		var random [4]byte
		_, _ = rand.Read(random[:]) // never fails
		t.name = prefix + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(random[:])
		err := t.place.mkdir(t.name)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return err
		}
		// Until it is locked, one that starts at the same time takes it for left behind, and removes it.
		t.base, err = t.place.sub(t.name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return errors.Join(err, t.place.rmdir(t.name))
		}
		if t.base.lock() && t.place.has(t.name) {
			undo.add(func() { _, _ = t.place.rmdir(t.name), t.base.file.Close() })
			return nil
		}
		t.base.close()
	}
	return errors.New("no group of our own could be made")
}

// lock takes the lock on a group; false: somebody has it.
func (d dir) lock() bool {
	return d.do("lock", "", func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }) == nil
}

// try has a process in a group of the tree, for the moment between its birth and an execve that cannot succeed.
func (t *Tree) try() error {
	var limits Limits // far above what is needed: only whether they can be set is to be seen
	if t.Memory() {
		limits.MemoryBytes = 1 << 30
	}
	if t.Pids() {
		limits.Processes = 1 << 10
	}
	g, err := t.New("try", limits)
	if err != nil {
		return err
	}
	err = g.try()
	return errors.Join(err, g.Remove())
}

// Memory says whether groups can limit memory.
func (t *Tree) Memory() bool { return slices.Contains(t.enabled, memory) }

// Pids says whether groups can limit processes and threads.
func (t *Tree) Pids() bool { return slices.Contains(t.enabled, tasks) }

// Place is the path of the group in which, or in whose subgroups, this process and all its commands are.
func (t *Tree) Place() string { return t.place.file.Name() }

// Close removes the groups in which nothing runs, kills nothing and moves nothing back. Groups that are still in
// use are told by an error, and removed by the next [Open]. A closed Tree makes no groups.
func (t *Tree) Close() error {
	err := t.base.clear(maxDepth)
	if err == nil {
		err = t.place.rmdir(t.name)
	}
	sweep(t.log, t.place)
	t.base.close() // and with it the lock
	t.place.close()
	return err
}

// sweep removes what others of this program that are gone have left.
func sweep(log *slog.Logger, place dir) {
	names, err := place.groups()
	if err != nil {
		log.Warn("control groups of an earlier life cannot be listed", "place", place.file.Name(), "error", err)
	}
	for _, name := range names {
		if !isOurs(name) {
			continue
		}
		if err := removeDead(place, name); err != nil {
			log.Warn("a control group of an earlier life is left", "place", place.file.Name(), "group", name, "error", err)
		}
	}
}

// removeDead removes a group whose owner is gone.
func removeDead(place dir, name string) error {
	d, err := place.sub(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	if !d.lock() {
		return nil
	}
	if err := d.clear(maxDepth); err != nil {
		return err
	}
	return ignore(place.rmdir(name), unix.ENOENT)
}

// ignore turns one error into none.
func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
