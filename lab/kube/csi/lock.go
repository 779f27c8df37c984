package csi

import (
	"context"
	"fmt"
	"sync"
)

// turns lets one at a time work on a volume: the kubelet's calls and the claims loop share the volumes.
type turns struct {
	mutex sync.Mutex
	taken map[string]chan struct{}
}

// take waits for the volume's turn, no longer than the context allows, and returns how to give it back.
func (t *turns) take(ctx context.Context, volume string) (func(), error) {
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
			return nil, fmt.Errorf("volume %s is busy with something else: %w", volume, ctx.Err())
		}
	}
}
