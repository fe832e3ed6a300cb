package sandbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// pool keeps a few runners waiting, so that a command need not wait for one to
// start. Some are new and serve anybody; some have proven that nothing is left of their last
// command, and serve the next one of the same kind: what a command may have done to
// its runner from outside, such as changing its limits, stays with who did it.
//
// After a burst more than size of those that have served stay, for a moment.
//
// New ones are kept for each mode that was asked for. Namespaced ones know the host's mounts as they were when they
// started; when those change they are replaced.
type pool struct {
	family *family
	size   int // of either sort, at most
	log    *slog.Logger
	wanted chan struct{} // something was taken
	stop   context.CancelFunc
	done   chan struct{}
	mounts *mountWatch

	mu     sync.Mutex
	idle   []*handle // the longest waiting first
	keep   map[Mode]bool
	tidy   *time.Timer // set while more wait than are kept: calls dropIdle
	closed bool
}

// Bounds of the pool.
const (
	maxJobs    = 500                   // of one runner: it collects no garbage
	refillWait = 20 * time.Millisecond // a runner that comes back by then need not be replaced
	retryWait  = time.Second
	maxBurst   = 64              // runners that have served and wait, at most
	burstIdle  = 2 * time.Second // how long those beyond size wait
)

func newPool(f *family, size int, log *slog.Logger) *pool {
	ctx, stop := context.WithCancel(context.Background())
	p := &pool{
		family: f, size: size, log: log, wanted: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
		mounts: watchMounts(), keep: map[Mode]bool{},
	}
	go p.refill(ctx)
	return p
}

// want has new runners for that mode kept from now on.
func (p *pool) want(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.keep[m] {
		p.keep[m] = true
		p.poke()
	}
}

// poke has refill look again.
func (p *pool) poke() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// refill starts runners until as many new ones wait as should, one after the other: on a small
// machine it competes with the commands themselves.
func (p *pool) refill(ctx context.Context) {
	defer close(p.done)
	for ctx.Err() == nil {
		m, short := p.short()
		if !short {
			select {
			case <-ctx.Done():
			case <-p.wanted:
				pause(ctx, refillWait)
			}
			continue
		}
		h, err := p.family.spawn(m)
		if err != nil {
			p.log.Warn("starting a runner ahead of time failed", "error", err)
			pause(ctx, retryWait)
			continue
		}
		p.put(h)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// short names a mode for which too few new runners wait.
func (p *pool) short() (Mode, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.keep {
		n := 0
		for _, h := range p.idle {
			if h.served == "" && h.mode == m {
				n++
			}
		}
		if n < p.size {
			return m, true
		}
	}
	return "", false
}

// take returns a runner for that sort of command: one that served it before, else a new one that waits,
// else one that is started now.
func (p *pool) take(m Mode, sort string) (*handle, error) {
	for {
		h := p.pick(m, sort)
		if h == nil {
			break
		}
		select {
		case <-h.done: // killed while it waited
			h.dismiss()
			continue
		default:
			h.served = sort
			return h, nil
		}
	}
	h, err := p.family.spawn(m)
	if err == nil {
		h.served = sort
	}
	return h, err
}

func (p *pool) pick(m Mode, sort string) *handle {
	state := p.mounts.state()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(h *handle) bool {
		old := h.mounts != state && p.family.profile(h.mode).namespaced
		if old {
			h.dismiss()
			p.poke()
		}
		return old
	})
	for _, want := range []string{sort, ""} {
		i := slices.IndexFunc(p.idle, func(h *handle) bool { return h.mode == m && h.served == want })
		if i < 0 {
			continue
		}
		h := p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
		if want == "" {
			p.poke()
		}
		return h
	}
	return nil
}

// give takes a runner back that has served and waits for another job.
func (p *pool) give(h *handle) {
	if h.served == "" || h.jobs >= maxJobs {
		h.dismiss()
		return
	}
	p.put(h)
}

// put makes a runner wait.
func (p *pool) put(h *handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || h.served != "" && p.size == 0 {
		h.dismiss()
		return
	}
	h.idle = time.Now()
	p.idle = append(p.idle, h)
	p.trim(maxBurst, time.Time{})
	if p.used() > p.size && p.tidy == nil {
		p.tidy = time.AfterFunc(burstIdle, p.dropIdle)
	}
}

// used counts those that have served. The caller holds mu.
func (p *pool) used() (n int) {
	for _, h := range p.idle {
		if h.served != "" {
			n++
		}
	}
	return n
}

// trim ends the longest waiting of those that have served, until no more than most are left, or only such as came after
// since. The caller holds mu.
func (p *pool) trim(most int, since time.Time) {
	for n := p.used(); n > most; n-- {
		i := slices.IndexFunc(p.idle, func(h *handle) bool { return h.served != "" })
		if !since.IsZero() && p.idle[i].idle.After(since) {
			return
		}
		p.idle[i].dismiss()
		p.idle = slices.Delete(p.idle, i, i+1)
	}
}

// dropIdle ends what a burst has left.
func (p *pool) dropIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim(p.size, time.Now().Add(-burstIdle))
	if p.tidy = nil; p.used() > p.size && !p.closed {
		p.tidy = time.AfterFunc(burstIdle/4, p.dropIdle)
	}
}

// close ends the waiting runners.
func (p *pool) close() {
	p.stop()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.tidy != nil {
		p.tidy.Stop()
	}
	for _, h := range p.idle {
		h.dismiss()
	}
	p.idle = nil
	p.mounts.close()
}
