// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// soon bounds what must happen, far above what it takes.
const soon = time.Minute

// post is an Inbox over a server of its own, and what came to it.
type post struct {
	testing.TB
	*Inbox
	server *testserver.Server
	admin  *redis.Client
	stands chan string
	mail   chan string
}

// newPost connects as a user with access to some channels only, if any are given.
func newPost(t testing.TB, channels ...any) *post {
	t.Helper()
	server := testserver.Redis(t)
	p := &post{TB: t, server: server, admin: redis.NewClient(&redis.Options{Addr: server.Addr()}), stands: make(chan string, 1000), mail: make(chan string, 1000)}
	t.Cleanup(func() { _ = p.admin.Close() })
	o := &redis.Options{Addr: server.Addr()}
	if len(channels) > 0 {
		p.do(append([]any{"ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*", "resetchannels"}, channels...)...)
		o.Username, o.Password = "u", "any"
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	p.open(rdb, func(o *InboxOptions) {
		o.Stands = func(channel string) { p.stands <- channel }
		o.Receive = func(channel, payload string) {
			if channel != o.Own {
				p.mail <- channel + " " + payload
			}
		}
	})
	return p
}

// open opens the Inbox, and waits until it stands.
func (p *post) open(rdb redis.UniversalClient, options func(*InboxOptions)) {
	p.Helper()
	o := InboxOptions{
		Client: GoRedis(rdb), Own: "hasp.own", News: func() {}, Receive: func(string, string) {}, Idle: func() bool { return false },
		Classify: func(err error) driver.Class { return Classify(err) },
	}
	options(&o)
	p.Inbox = NewInbox(p.Context(), o)
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run() }()
	p.Cleanup(func() { p.Close(); <-ended })
	if up, err := p.Await(p.Context()); !up || err != nil {
		p.Fatal(up, err)
	}
}

func (p *post) do(args ...any) any {
	p.Helper()
	v, err := p.admin.Do(p.Context(), args...).Result()
	if err != nil {
		p.Fatalf("%v: %v", args, err)
	}
	return v
}

func (p *post) join(channel string, want bool) {
	p.Helper()
	if ok, err := p.Join(p.Context(), channel); ok != want || err != nil {
		p.Fatalf("Join of %q: %v, %v", channel, ok, err)
	}
}

// until waits for what the server knows.
func (p *post) until(what string, done func() bool) {
	p.Helper()
	for end := time.Now().Add(soon); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("not within %v: %s", soon, what)
		}
	}
}

func (p *post) listeners(channel string) int64 {
	return p.admin.PubSubNumSub(p.Context(), channel).Val()[channel]
}

func (p *post) comes(want string) {
	p.Helper()
	select {
	case got := <-p.mail:
		if got != want {
			p.Fatalf("%q came, want %q", got, want)
		}
	case <-time.After(soon):
		p.Fatalf("%q has not come", want)
	}
}

// A channel stands from Join until its last user left, over connections that are lost.
func TestChannelsComeAndGo(t *testing.T) {
	p := newPost(t)
	p.join("a", true)
	if n := len(p.stands); n != 1 { // whoever waits from now on has missed nothing
		t.Errorf("when it is joined it stood %d times", n)
	}
	p.join("a", true)
	p.join("b", true)
	p.do("PUBLISH", "a", "1")
	p.comes("a 1")
	p.Leave("a")
	p.do("PUBLISH", "a", "2")
	p.comes("a 2")
	p.Leave("b")
	p.until("nobody listens to b", func() bool { return p.listeners("b") == 0 })
	for len(p.stands) > 0 {
		<-p.stands
	}
	p.do("CLIENT", "KILL", "TYPE", "pubsub")
	if name := <-p.stands; name != "a" {
		t.Errorf("%q stands again", name)
	}
	p.until("it listens to a", func() bool { return p.Listens("a") }) // which Stands is told before
	if p.Listens("b") {
		t.Error("it listens to b, which was left")
	}
	p.do("PUBLISH", "a", "3")
	p.comes("a 3")
}

// A channel that is left, and joined again before the server has answered, stands.
func TestChannelIsLeftAndJoined(t *testing.T) {
	p := newPost(t)
	p.server.Stop()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan bool)
	go func() { ok, _ := p.Join(ctx, "c"); left <- ok }()
	asked := func(n int) func() bool {
		return func() bool {
			p.channels.mu.Lock()
			defer p.channels.mu.Unlock()
			return len(p.channels.asked) == n
		}
	}
	p.until("it is asked for", asked(1))
	leave()
	if <-left {
		t.Error("it stands, although the server has not answered")
	}
	joined := make(chan bool)
	go func() { ok, _ := p.Join(t.Context(), "c"); joined <- ok }()
	p.until("it is asked for again", asked(2))
	p.server.Cont()
	if !<-joined {
		t.Error("it does not stand")
	}
	if n := p.listeners("c"); n != 1 {
		t.Errorf("%d listen", n)
	}
	p.do("PUBLISH", "c", "x")
	p.comes("c x")
}

// A channel that the server does not allow is no hindrance to the others, and may be asked for again.
func TestChannelIsDenied(t *testing.T) {
	p := newPost(t, "&hasp.*", "&open*")
	p.join("open 1", true)
	p.join("secret", false)
	p.join("open 2", true)
	p.do("PUBLISH", "open 1", "x")
	p.comes("open 1 x")
	if up, _ := p.Up(); !up || p.Listens("secret") || !p.Listens("open 2") {
		t.Errorf("it is up: %v; it listens to what is denied: %v, to what is not: %v", up, p.Listens("secret"), p.Listens("open 2"))
	}
	p.do("ACL", "SETUSER", "u", "&secret")
	p.join("secret", true)
	p.do("PUBLISH", "secret", "y")
	p.comes("secret y")
}
