package sandbox

import (
	"context"
	"log/slog"
	"time"
)

// pool keeps a few runners started, so that a command need not wait for one.
type pool struct {
	family *family
	ready  chan *handle
	wanted chan struct{} // one token for each runner to start
	stop   context.CancelFunc
	done   chan struct{}
	log    *slog.Logger
}

func newPool(f *family, size int, log *slog.Logger) *pool {
	ctx, stop := context.WithCancel(context.Background())
	p := &pool{family: f, ready: make(chan *handle, size), wanted: make(chan struct{}, size), stop: stop, done: make(chan struct{}), log: log}
	for range size {
		p.wanted <- struct{}{}
	}
	go p.refill(ctx)
	return p
}

// refill starts runners as they are wanted, one after the other: on a small
// machine it competes with the commands themselves.
func (p *pool) refill(ctx context.Context) {
	defer close(p.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wanted:
		}
		h, err := p.family.spawn()
		if err != nil {
			p.log.Warn("starting a runner ahead of time failed", "error", err)
			p.wanted <- struct{}{} // there is room: this one's own token
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		p.ready <- h // never blocks: as many places as tokens
	}
}

// take returns a waiting runner, else a new one.
func (p *pool) take() (*handle, error) {
	for {
		select {
		case h := <-p.ready:
			p.wanted <- struct{}{}
			select {
			case <-h.done: // killed while it waited
				h.dismiss()
				continue
			default:
				return h, nil
			}
		default:
			return p.family.spawn()
		}
	}
}

// close ends the waiting runners.
func (p *pool) close() {
	p.stop()
	<-p.done
	for {
		select {
		case h := <-p.ready:
			h.dismiss()
		default:
			return
		}
	}
}
