// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// guests are the channels of an Inbox that come and go. Each is asked for by a command of its own, and
// a server answers in order, so that an error is about the oldest without an answer.
type guests struct {
	order sync.Mutex // held while a command is written: commands go out as asked has them

	mu    sync.Mutex
	all   map[string]*guest
	asked []*guest       // subscribed to, without an answer yet
	left  map[string]int // how many commands that end one have no confirmation yet
	conn  *redis.PubSub  // of the session; nil: none
	err   error          // why a command could not be written
}

// guest is one channel.
type guest struct {
	name    string
	users   int
	asked   bool          // on the connection of now
	stands  bool          // it was confirmed
	denied  bool          // the server does not let us
	decided chan struct{} // closed when either is known
}

// Join subscribes to a channel for one more user, until Leave, and returns true once that is confirmed. Where it is not, there is
// no user more: false without an error says that the server does not allow it.
func (in *Inbox) Join(ctx context.Context, name string) (ok bool, err error) {
	gs := &in.guests
	gs.mu.Lock()
	g := gs.all[name]
	if g == nil {
		g = &guest{name: name, decided: make(chan struct{})}
		gs.all[name] = g
	}
	g.users++
	gs.mu.Unlock()
	defer func() {
		if !ok {
			in.Leave(name)
		}
	}()
	if up, _ := in.Up(); !up {
		in.hurry()
	}
	if err := gs.subscribe(in, g); err != nil {
		return false, err
	}
	for {
		gs.mu.Lock()
		stands, denied, decided := g.stands, g.denied, g.decided
		gs.mu.Unlock()
		if stands || denied {
			return stands, nil
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-in.life.Done():
			return false, driver.ErrClosed
		}
	}
}

// Leave takes one user of a channel away, and with the last one the subscription.
func (in *Inbox) Leave(name string) {
	gs := &in.guests
	gs.order.Lock()
	defer gs.order.Unlock()
	gs.mu.Lock()
	g, conn := gs.all[name], gs.conn
	g.users--
	if g.users > 0 {
		gs.mu.Unlock()
		return
	}
	delete(gs.all, name)
	if conn == nil || !g.asked || g.denied {
		gs.mu.Unlock()
		return
	}
	gs.left[name]++
	gs.mu.Unlock()
	unsubscribe := conn.Unsubscribe
	if in.o.Sharded {
		unsubscribe = conn.SUnsubscribe
	}
	_ = gs.written(conn, unsubscribe(in.life, name)) // it ended the session
}

// Listens reports whether messages on a channel reach this client now.
func (in *Inbox) Listens(name string) bool {
	in.guests.mu.Lock()
	defer in.guests.mu.Unlock()
	g := in.guests.all[name]
	return g != nil && g.stands
}

// arrive asks for all channels on a new connection.
func (gs *guests) arrive(in *Inbox, conn *redis.PubSub) error {
	gs.mu.Lock()
	gs.conn, gs.asked, gs.left, gs.err = conn, nil, map[string]int{}, nil
	all := slices.Collect(maps.Values(gs.all))
	gs.mu.Unlock()
	for _, g := range all {
		if err := gs.subscribe(in, g); err != nil {
			return err
		}
	}
	return nil
}

// subscribe asks for a channel on the current connection, if there is one and no user did.
func (gs *guests) subscribe(in *Inbox, g *guest) error {
	gs.order.Lock()
	defer gs.order.Unlock()
	gs.mu.Lock()
	conn := gs.conn
	if conn == nil || g.asked || gs.all[g.name] != g {
		gs.mu.Unlock()
		return nil
	}
	g.asked = true
	gs.asked = append(gs.asked, g)
	gs.mu.Unlock()
	subscribe := conn.Subscribe
	if in.o.Sharded {
		subscribe = conn.SSubscribe
	}
	return gs.written(conn, subscribe(in.life, g.name))
}

// written ends the session when its connection takes no more commands. Receive would only say that it was closed.
func (gs *guests) written(conn *redis.PubSub, err error) error {
	if err == nil || errors.Is(err, redis.ErrClosed) { // the session ended meanwhile; the next one asks again
		return nil
	}
	gs.mu.Lock()
	if gs.conn == conn && gs.err == nil {
		gs.err = err
	}
	gs.mu.Unlock()
	_ = conn.Close()
	return err
}

// cause is why a session ended when its connection said err.
func (gs *guests) cause(err error) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.err != nil {
		return gs.err
	}
	return err
}

// gone says that there is no connection.
func (gs *guests) gone() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.conn, gs.asked = nil, nil
	for _, g := range gs.all {
		if g.asked = false; g.stands || g.denied {
			g.stands, g.denied, g.decided = false, false, make(chan struct{})
		}
	}
}

// confirmed notes an answer of the server, and is false for an answer that was not asked for.
func (gs *guests) confirmed(m *redis.Subscription) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if m.Kind == "unsubscribe" || m.Kind == "sunsubscribe" {
		gs.left[m.Channel]--
		return gs.left[m.Channel] >= 0
	}
	if i := slices.IndexFunc(gs.asked, func(g *guest) bool { return g.name == m.Channel }); i >= 0 {
		gs.answered(i, true)
	}
	return true
}

// refused reports whether err is the server's answer to a command that subscribes, and to which channel; "" when the
// command ends a subscription, which then stands without users.
func (gs *guests) refused(err error) (name string, ok bool) {
	var server redis.Error
	if !errors.As(err, &server) || ClassOf(server.Error()) != driver.ClassDenied {
		return "", false
	}
	if strings.Contains(server.Error(), "unsubscribe") {
		return "", true
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.asked) == 0 {
		return "", false
	}
	return gs.answered(0, false), true
}

// answered notes the answer for a channel that was asked for. Its users may have left meanwhile, and others
// come, which asked again. mu is held.
func (gs *guests) answered(i int, stands bool) (name string) {
	g := gs.asked[i]
	gs.asked = slices.Delete(gs.asked, i, i+1)
	g.stands, g.denied = stands, !stands
	close(g.decided)
	return g.name
}
