package csi

import (
	"context"
	"fmt"
	"sync"
)

// volumeLocks holds one lock per volume: the calls of the kubelet and the reconcile loop work on the same volumes.
type volumeLocks struct {
	mutex sync.Mutex
	taken map[string]chan struct{}
}

// acquire locks a volume, waiting no longer than the context allows, and returns a function that unlocks it.
func (t *volumeLocks) acquire(ctx context.Context, volume string) (func(), error) {
	for {
		t.mutex.Lock()
		freed, busy := t.taken[volume]
		if !busy {
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			t.taken[volume] = mine
			t.mutex.Unlock()
			return func() {
				t.mutex.Lock()
				defer t.mutex.Unlock()
				delete(t.taken, volume)
				close(mine)
			}, nil
		}
		t.mutex.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s is locked by another operation: %w", volume, ctx.Err())
		}
	}
}
