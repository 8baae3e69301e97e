// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// A subscription is checked often only while somebody waits for its messages.
func TestChecksOfASubscription(t *testing.T) {
	idle := true
	in := NewInbox(t.Context(), InboxOptions{Idle: func() bool { return idle }})
	if got := in.quiet(); got != 2*quietTime {
		t.Errorf("while nobody waits it is checked after %v", got)
	}
	idle = false
	if got := in.quiet(); got != quietTime {
		t.Errorf("while somebody waits it is checked after %v", got)
	}
}

// line is a connection that may go deaf, as where a firewall forgets it, once it has a subscription.
type line struct {
	net.Conn
	subscribed bool
	all        *lines
}

// lines are those of a client.
type lines struct {
	subscriptions atomic.Int32 // how many there were
	deaf          atomic.Int32 // of which so many hear nothing
}

func (l *line) Write(b []byte) (int, error) {
	if !l.subscribed && bytes.Contains(bytes.ToLower(b), []byte("subscribe")) {
		l.subscribed = true
		l.all.subscriptions.Add(1)
	}
	return l.Conn.Write(b)
}

func (l *line) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		if err != nil || !l.subscribed || l.all.deaf.Load() == 0 || l.all.subscriptions.Load() > l.all.deaf.Load() {
			return n, err
		}
	}
}

// A subscription whose connection died in silence is made again, whether it is checked by a message to itself or, where
// nobody may publish, by PING.
func TestSubscriptionThatDiesInSilence(t *testing.T) {
	for _, check := range []string{"publish", "ping"} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			p := &post{TB: t, server: server, admin: redis.NewClient(&redis.Options{Addr: server.Addr()})}
			t.Cleanup(func() { _ = p.admin.Close() })
			var all lines
			o := &redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &line{Conn: conn, all: &all}, err
			}}
			if check == "ping" {
				p.do("ACL", "SETUSER", "u", "on", "nopass", "+@all", "-publish", "~*", "&*")
				o.Username, o.Password = "u", "any"
			}
			rdb := redis.NewClient(o)
			t.Cleanup(func() { _ = rdb.Close() })
			p.open(rdb, func(o *InboxOptions) { o.Pace = 200 * time.Millisecond })
			before, pings := p.calls(check), p.calls("ping")
			p.until("it is checked", func() bool { return p.calls(check) > before+3 })
			if check == "publish" && p.calls("ping") > pings {
				t.Error("its own message came, and it asks for a PONG")
			}
			all.deaf.Store(all.subscriptions.Load())
			p.until("it is made again", func() bool { return all.subscriptions.Load() > all.deaf.Load() })
		})
	}
}

// turns gives the masters of a cluster turns.
type turns struct{ atomic.Int32 }

func (p *turns) Next(n int) int { return int(p.Add(1)) % n }

// In a cluster PUBLISH goes to any of the masters: that it counts no receiver there says nothing of the subscription, whichever
// it goes to first.
func TestSubscriptionInAClusterStands(t *testing.T) {
	for first := range 2 {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			var picker turns
			picker.Store(int32(first))
			p := &post{TB: t, server: testserver.Redis(t)}
			p.admin = redis.NewClient(&redis.Options{Addr: p.server.Addr()})
			t.Cleanup(func() { _ = p.admin.Close() })
			other := testserver.Redis(t).Addr()
			rdb := redis.NewClusterClient(&redis.ClusterOptions{ShardPicker: &picker, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{
					{Start: 0, End: slots/2 - 1, Nodes: []redis.ClusterNode{{Addr: p.server.Addr()}}},
					{Start: slots / 2, End: slots - 1, Nodes: []redis.ClusterNode{{Addr: other}}},
				}, nil
			}})
			t.Cleanup(func() { _ = rdb.Close() })
			down := make(chan error, 10)
			p.open(rdb, func(o *InboxOptions) {
				o.Pace = 50 * time.Millisecond
				o.Classify = func(err error) driver.Class {
					if errors.Is(err, errElsewhere) { // any other: the machine is busy
						down <- err
					}
					return Classify(err)
				}
			})
			before := p.calls("publish")
			p.until("it is checked", func() bool { return len(down) > 0 || p.calls("publish") > before+3 })
			if len(down) > 0 {
				t.Fatal("it ended: ", <-down)
			}
		})
	}
}

// calls is how often the server carried out a command.
func (p *post) calls(command string) (n int) {
	p.Helper()
	for line := range strings.Lines(p.admin.Info(p.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			if _, err := fmt.Sscan(strings.FieldsFunc(rest, func(r rune) bool { return r == ',' })[0], &n); err != nil {
				p.Fatal(err)
			}
		}
	}
	return n
}

// A wait for a subscription that goes on beside a Renew ends when nothing wants it any more, though no attempt comes, and with
// the inbox; and it ends well once the subscription stands, after attempts that failed.
func TestOutlast(t *testing.T) {
	for name, c := range map[string]struct {
		ends func(in *Inbox, wanted *atomic.Bool)
		want bool
	}{
		"it is not wanted": {func(_ *Inbox, wanted *atomic.Bool) { wanted.Store(false) }, false},
		"the inbox closes": {func(in *Inbox, _ *atomic.Bool) { in.Close() }, false},
		"it stands":        {func(in *Inbox, _ *atomic.Bool) { in.down(io.EOF); in.Raise(true) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := NewInbox(t.Context(), InboxOptions{News: func() {}, Classify: func(error) driver.Class { return driver.ClassUnreachable }})
				var wanted atomic.Bool
				wanted.Store(true)
				got := make(chan bool, 1)
				go func() { got <- in.Outlast(t.Context(), wanted.Load) }()
				time.Sleep(10 * reopenPause)
				if len(got) != 0 {
					t.Fatal("it ended before")
				}
				c.ends(in, &wanted)
				time.Sleep(reopenPause)
				synctest.Wait()
				if len(got) == 0 || <-got != c.want {
					t.Errorf("it goes on, or does not say %v", c.want)
				}
			})
		})
	}
}
