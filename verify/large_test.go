// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// Rule: a link that loses large requests and passes small ones loses no lease.
func TestLargeRequestsVanish(t *testing.T) {
	t.Parallel()
	link := faultproxy.New(t, testserver.Redis(t).Addr())
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	const keys, each = 20, 3
	var mu sync.Mutex
	renewed := map[string]int{}
	// after waits until each lease was renewed so many times from now on.
	after := func(n int) {
		t.Helper()
		mu.Lock()
		clear(renewed)
		mu.Unlock()
		for done := false; !done; time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal(context.Cause(ctx))
			}
			mu.Lock()
			done = len(renewed) == keys
			for _, times := range renewed {
				done = done && times >= n
			}
			mu.Unlock()
		}
	}
	locks := LocksOn(t, &redis.Options{Addr: link.Addr(), DisableIdentity: true}, func(_ context.Context, e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case event.Renewed:
			renewed[e.Key]++
		case event.Lost:
			cancel(fmt.Errorf("%s is lost: %w", e.Key, e.Err))
		}
	})
	for i := range keys {
		lease := mustLock(t, locks.Mutex(fmt.Sprint("k", i), &hasp.LockOptions{TTL: 15 * time.Second}))
		defer release(t, lease)
	}
	after(1) // the script is loaded
	link.Hook(faultproxy.LosesLarge(1400))
	after(each)
	link.Hook(nil)
	link.Reset()
}
