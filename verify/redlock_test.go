// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// redlockMaxTTL is the longest lease of the suite's cases.
const redlockMaxTTL = 2 * time.Hour

// TestRedlockSuite runs the suite of every engine on Redlock over real servers.
func TestRedlockSuite(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		f := newFive(t)
		return drivertest.Store{
			Open: func() driver.Driver { return f.open(t) },
			Ended: func(key string) bool {
				return !slices.ContainsFunc(f.nodes, func(n voting.Node) bool {
					info, err := n.Inspect(t.Context(), key)
					must(t, err)
					return info.Held
				})
			},
		}
	}})
}

// five is five real servers that vote.
type five struct {
	servers []*testserver.Server
	nodes   []voting.Node // each by itself, not through links
}

func newFive(t testing.TB) *five {
	t.Helper()
	f := &five{}
	for range 5 {
		f.servers = append(f.servers, testserver.Redis(t))
	}
	for _, s := range f.servers {
		f.nodes = append(f.nodes, f.node(t, s.Addr()))
	}
	first := f.open(t)
	must(t, first.Admit(t.Context()))
	must(t, first.Close())
	return f
}

// open opens Redlock. On a machine that is busy with other tests, servers are silent for longer than a lock should wait.
func (f *five) open(t testing.TB) *quorum.Driver {
	o := &quorum.Options{NodeTimeout: 5 * time.Second}
	var nodes []voting.Node
	for _, s := range f.servers {
		nodes, o.Names = append(nodes, f.node(t, s.Addr())), append(o.Names, s.Addr())
	}
	return quorum.New(nodes, o)
}

func (f *five) node(t testing.TB, addr string) voting.Node {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	d := redisdriver.NewNode(rdb, redlockMaxTTL, nil)
	t.Cleanup(func() { _, _ = d.Close(), rdb.Close() })
	return d
}

// locks returns a client with links of its own.
func (f *five) locks(t testing.TB, observe func(context.Context, *event.Event)) (*hasp.Client, []*faultproxy.Proxy) {
	t.Helper()
	var links []*faultproxy.Proxy
	var nodes []voting.Node
	for _, s := range f.servers {
		link := faultproxy.New(t, s.Addr())
		links, nodes = append(links, link), append(nodes, f.node(t, link.Addr()))
	}
	locks, err := hasp.New(quorum.New(nodes, nil), &hasp.Options{Observe: observe})
	must(t, err)
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks, links
}

// queueNodes are the nodes on which a client waits for key: one, or while the queue moves the one before, too.
func (f *five) queueNodes(t testing.TB, key string) []int {
	t.Helper()
	var nodes []int
	for i, n := range f.nodes {
		info, err := n.Inspect(t.Context(), key)
		must(t, err)
		if info.Waiters > 0 {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// freeFor is how long a key may be free beside a live waiter, whatever one node does; see docs/results/campaigns.md.
const freeFor = time.Second

// A waiter gets its hint also while its subscription moves to another node. One link is slow for a moment, so that the queue moves
// to another node, and back before the waiter is subscribed there.
func TestHandoffWhileTheSubscriptionMoves(t *testing.T) {
	t.Parallel()
	f := newFive(t)
	events := newFeed()
	holder, _ := f.locks(t, nil)
	waiter, links := f.locks(t, events.observe)
	held := mustLock(t, holder.Mutex("k", nil))
	got := lockAsync(t.Context(), waiter.Mutex("k", nil))
	events.waits(t)

	var once sync.Once
	moving, arrive := make(chan struct{}), make(chan struct{})
	for _, link := range links {
		link.Hook(func(c faultproxy.Chunk) bool {
			if c.Dir == faultproxy.Up && bytes.Contains(c.Data, []byte("subscribe")) {
				once.Do(func() { close(moving) })
				<-arrive
			}
			return false
		})
	}
	defer sync.OnceFunc(func() { close(arrive) })()
	slow := map[*faultproxy.Proxy]bool{} // where it waits; on a busy machine the queue moves by itself, too
	delay := 200 * time.Millisecond
	for begun, more := time.Now(), true; more; { // until such a node is found slow
		for _, i := range f.queueNodes(t, "k") {
			slow[links[i]] = true
			links[i].Delay(delay)
		}
		release(t, mustLock(t, waiter.Mutex("other", nil)))
		select {
		case <-moving:
			more = false
		case <-time.After(20 * time.Millisecond):
		}
		switch took := time.Since(begun); {
		case took > soon:
			t.Fatal("the subscription does not move")
		case took > time.Second:
			// The timeout of a node that was slow recently, as on a busy machine, is longer, but never as long as this.
			delay = 8 * time.Second
		}
	}
	back := make(chan *faultproxy.Proxy, len(links))
	for link := range slow {
		var first sync.Once
		link.Clear()
		link.Hook(func(c faultproxy.Chunk) bool {
			if c.Dir == faultproxy.Up && bytes.Contains(c.Data, []byte("lock:other")) {
				first.Do(func() { back <- link })
			}
			return false
		})
	}
	for len(slow) > 0 { // service
		release(t, mustLock(t, waiter.Mutex("other", nil)))
		select {
		case link := <-back:
			delete(slow, link)
		default:
		}
	}

	lost := stall.Watch(t)
	begun := time.Now()
	release(t, held)
	lease, at := awaitLease(t, got)
	t.Logf("the key was free for %v", at.Sub(begun))
	if free := at.Sub(begun); free > freeFor+lost() {
		t.Errorf("the key was free for %v beside a waiter", free)
	}
	release(t, lease)
}
