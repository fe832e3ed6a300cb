package sandbox

import (
	"context"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// NewOn is New on a kernel whose Landlock knows no more than that ABI.
func NewOn(ctx context.Context, cfg Config, abi int) (*Sandbox, error) {
	return newSandbox(ctx, cfg, func() (int, error) {
		have, err := landlockABI()
		return min(have, abi), err
	})
}

// EnterLayers puts the calling thread under n Landlock layers that forbid next to nothing.
func EnterLayers(n int) error {
	for range n {
		r, err := newRuleset(ll.AccessFSMakeBlock, 0)
		if err != nil {
			return err
		}
		err = ll.LandlockRestrictSelf(r.fd, 0)
		r.close()
		if err != nil {
			return err
		}
	}
	return nil
}
