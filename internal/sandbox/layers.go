package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// sweeperDomain builds the ruleset of the outermost domain, the sweeper's, which
// is there to scope signals; nil where the kernel cannot. A layer that does not speak of REFER
// denies it all the same, so this one grants it everywhere.
func sweeperDomain(abi int) (*ruleset, error) {
	if scopesBy(abi) == 0 {
		return nil, nil
	}
	r, err := newRuleset(ll.AccessFSRefer, ll.ScopeSignal)
	if err != nil {
		return nil, err
	}
	if err := r.allowPath("/", ll.AccessFSRefer); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// writeLayer builds the ruleset of what p may write. It is made anew for every
// command: it names the command's own temporary directory.
func writeLayer(abi int, p Policy) (*ruleset, error) {
	r, err := newRuleset(handledBy(abi, writeRights), scopesBy(abi))
	if err != nil {
		return nil, err
	}
	for _, dir := range p.writable() {
		if err := allowPinned(r, dir, rootRights); err != nil {
			r.close()
			return nil, err
		}
	}
	for _, dev := range devices {
		if err := r.allowPath(dev, ll.AccessFSWriteFile); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func allowPinned(r *ruleset, dir string, rights uint64) error {
	fd, err := openPinned(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.allow(fd, true, rights)
}

// A read layer hides paths. Landlock only allows, so it allows everything
// else: reading directories everywhere, and the content of whatever stands
// beside the way from / to a hidden path. What is created there later is
// unreadable until the layer is built again, which a change of one of those
// directories brings about.
type readLayer struct {
	rules *ruleset
	walk  []stamp // the directories that were listed
	built time.Time
	taken time.Time // last; guarded by readLayers.mu
}

// stamp remembers a directory's last change.
type stamp struct {
	path  string
	mtime unix.Timespec
	ino   uint64
}

// settle is how old a directory's last change must be before an equal time
// stamp proves that nothing changed since: time stamps move in ticks.
const settle = 20 * time.Millisecond

func (l *readLayer) fresh() bool {
	return !slices.ContainsFunc(l.walk, func(s stamp) bool {
		now, err := stampOf(s.path)
		return err != nil || now != s || l.built.Sub(time.Unix(s.mtime.Unix())) < settle
	})
}

func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return stamp{}, err
	}
	return stamp{path, st.Mtim, st.Ino}, nil
}

// buildReadLayer hides hidden, except for exceptions.
func buildReadLayer(abi int, hidden, exceptions []string) (*readLayer, error) {
	r, err := newRuleset(handledBy(abi, readRights|ll.AccessFSRefer), 0)
	if err != nil {
		return nil, err
	}
	l := &readLayer{rules: r, built: time.Now()}
	err = r.allowPath("/", ll.AccessFSReadDir|ll.AccessFSRefer)
	if err == nil {
		err = l.allowBeside("/", hidden)
	}
	for _, path := range append(slices.Clone(devices), exceptions...) {
		inside := func(h string) bool { return h != path && within(h, path) }
		switch {
		case err != nil || path == "":
		case slices.ContainsFunc(hidden, inside):
			err = l.allowBeside(path, hidden)
		default:
			err = r.allowPath(path, readRights)
		}
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("hiding paths: %w", err)
	}
	return l, nil
}

// allowBeside allows reading what is in dir and is neither hidden nor on the
// way to something hidden; it descends along those ways.
func (l *readLayer) allowBeside(dir string, hidden []string) error {
	s, err := stampOf(dir)
	if err != nil {
		return nil // not there: nothing to allow
	}
	l.walk = append(l.walk, s)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // not readable to the daemon, so neither to its commands
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case slices.Contains(hidden, path):
		case slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(h, path+"/") }):
			err = l.allowBeside(path, hidden)
		default:
			err = l.rules.allowPath(path, readRights)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readLayers keeps built layers, since one costs a system call for
// each entry beside a hidden path. Safe for concurrent use.
type readLayers struct {
	abi int

	mu    sync.Mutex
	byKey map[string]*readLayer // by what is hidden and the exceptions
	order []string              // least recently used first
	tidy  *time.Timer           // set while there are layers: calls dropIdle
}

// layerIdle is how long a layer that nobody takes is kept at most. The files that it names keep their space on
// the disk for so long, even when they are removed.
const layerIdle = 2 * time.Second

// maxReadLayers bounds the descriptors held, one a layer: about one for each owner at work.
const maxReadLayers = 64

// take returns a descriptor of the layer that hides hidden but for those exceptions, to be closed by the caller.
func (c *readLayers) take(hidden, exceptions []string) (int, error) {
	key := strings.Join(hidden, "\x00") + "\x00\x00" + strings.Join(exceptions, "\x00")
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.byKey[key]
	if l == nil || !l.fresh() {
		built, err := buildReadLayer(c.abi, hidden, exceptions)
		if err != nil {
			return -1, err
		}
		c.put(key, built)
		l = built
	}
	c.touch(key)
	l.taken = time.Now()
	if c.tidy == nil {
		c.tidy = time.AfterFunc(layerIdle, c.dropIdle)
	}
	return l.rules.duplicate()
}

// dropIdle lets go of layers that nobody has taken for a while.
func (c *readLayers) dropIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Clone(c.order) {
		if time.Since(c.byKey[key].taken) >= layerIdle {
			c.remove(key)
		}
	}
	if c.tidy = nil; len(c.order) > 0 {
		c.tidy = time.AfterFunc(layerIdle, c.dropIdle)
	}
}

// remove lets go of a layer. The caller holds mu.
func (c *readLayers) remove(key string) {
	c.byKey[key].rules.close()
	delete(c.byKey, key)
	c.order = slices.DeleteFunc(c.order, func(k string) bool { return k == key })
}

func (c *readLayers) put(key string, l *readLayer) {
	if old := c.byKey[key]; old != nil {
		old.rules.close()
	}
	if c.byKey == nil {
		c.byKey = map[string]*readLayer{}
	}
	c.byKey[key] = l
}

func (c *readLayers) touch(key string) {
	c.order = append(slices.DeleteFunc(c.order, func(k string) bool { return k == key }), key)
	for len(c.order) > maxReadLayers {
		c.remove(c.order[0])
	}
}

// close is for when nobody takes layers any more.
func (c *readLayers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tidy != nil {
		c.tidy.Stop()
	}
	for len(c.order) > 0 {
		c.remove(c.order[0])
	}
}
