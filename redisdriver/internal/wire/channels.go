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
)

// channels are those of an Inbox that come and go. Each is asked for by a command of its own, and
// a server answers in order, so that an error is about the oldest without an answer.
type channels struct {
	in    *Inbox
	order sync.Mutex // held while a command is written: commands go out as asked has them

	mu    sync.Mutex
	all   map[string]*channel
	asked []*channel     // subscribed to, without an answer yet
	left  map[string]int // how many commands that end one have no confirmation yet
	conn  Subscription   // of the session; nil: none
	err   error          // why a command could not be written
}

// channel is one channel.
type channel struct {
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
	cs := &in.channels
	cs.mu.Lock()
	ch := cs.all[name]
	if ch == nil {
		ch = &channel{name: name, decided: make(chan struct{})}
		cs.all[name] = ch
	}
	ch.users++
	cs.mu.Unlock()
	defer func() {
		if !ok {
			in.Leave(name)
		}
	}()
	if up, _ := in.Up(); !up {
		in.hurry()
	}
	if err := cs.subscribe(ch); err != nil {
		return false, err
	}
	for {
		cs.mu.Lock()
		stands, denied, decided := ch.stands, ch.denied, ch.decided
		cs.mu.Unlock()
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
	cs := &in.channels
	cs.order.Lock()
	defer cs.order.Unlock()
	cs.mu.Lock()
	ch, conn := cs.all[name], cs.conn
	ch.users--
	if ch.users > 0 {
		cs.mu.Unlock()
		return
	}
	delete(cs.all, name)
	if conn == nil || !ch.asked || ch.denied {
		cs.mu.Unlock()
		return
	}
	cs.left[name]++
	cs.mu.Unlock()
	_ = cs.written(conn, conn.Send(in.life, in.sharded("unsubscribe"), name)) // it ended the session
}

// Listens reports whether messages on a channel reach this client now.
func (in *Inbox) Listens(name string) bool {
	in.channels.mu.Lock()
	defer in.channels.mu.Unlock()
	ch := in.channels.all[name]
	return ch != nil && ch.stands
}

// arrive asks for all channels on a new connection.
func (cs *channels) arrive(conn Subscription) error {
	cs.mu.Lock()
	cs.conn, cs.asked, cs.left, cs.err = conn, nil, map[string]int{}, nil
	all := slices.Collect(maps.Values(cs.all))
	cs.mu.Unlock()
	for _, ch := range all {
		if err := cs.subscribe(ch); err != nil {
			return err
		}
	}
	return nil
}

// subscribe asks for a channel on the current connection, if there is one and no user did.
func (cs *channels) subscribe(ch *channel) error {
	cs.order.Lock()
	defer cs.order.Unlock()
	cs.mu.Lock()
	conn := cs.conn
	if conn == nil || ch.asked || cs.all[ch.name] != ch {
		cs.mu.Unlock()
		return nil
	}
	ch.asked = true
	cs.asked = append(cs.asked, ch)
	cs.mu.Unlock()
	return cs.written(conn, conn.Send(cs.in.life, cs.in.sharded("subscribe"), ch.name))
}

// written ends the session when its connection takes no more commands. Receive would only say that it was closed.
func (cs *channels) written(conn Subscription, err error) error {
	if err == nil || errors.Is(err, ErrClosed) { // the session ended meanwhile; the next one asks again
		return nil
	}
	cs.mu.Lock()
	if cs.conn == conn && cs.err == nil {
		cs.err = err
	}
	cs.mu.Unlock()
	_ = conn.Close()
	return err
}

// cause is why a session ended when its connection said err.
func (cs *channels) cause(err error) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.err != nil {
		return cs.err
	}
	return err
}

// gone says that there is no connection.
func (cs *channels) gone() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.conn, cs.asked = nil, nil
	for _, ch := range cs.all {
		if ch.asked = false; ch.stands || ch.denied {
			ch.stands, ch.denied, ch.decided = false, false, make(chan struct{})
		}
	}
}

// ended notes the end of a subscription, and is false if it was not asked for.
func (cs *channels) ended(name string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.left[name]--
	return cs.left[name] >= 0
}

// confirmed notes a subscription that stands.
func (cs *channels) confirmed(name string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if i := slices.IndexFunc(cs.asked, func(ch *channel) bool { return ch.name == name }); i >= 0 {
		cs.answered(i, true)
	}
}

// refused reports whether err is the server's answer to a command that subscribes, and to which channel; "" when the
// command ends a subscription, which then stands without users.
func (cs *channels) refused(err error) (name string, ok bool) {
	var server ServerError
	if !errors.As(err, &server) || ClassOf(server.Error()) != driver.ClassDenied {
		return "", false
	}
	if strings.Contains(server.Error(), "unsubscribe") {
		return "", true
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.asked) == 0 {
		return "", false
	}
	return cs.answered(0, false), true
}

// answered notes the answer for a channel that was asked for. Its users may have left meanwhile, and others
// come, which asked again. mu is held.
func (cs *channels) answered(i int, stands bool) (name string) {
	ch := cs.asked[i]
	cs.asked = slices.Delete(cs.asked, i, i+1)
	ch.stands, ch.denied = stands, !stands
	close(ch.decided)
	return ch.name
}
