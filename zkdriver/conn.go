// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// DefaultSessionTimeout is what a [Conn] asks for unless ConnOptions say otherwise.
const DefaultSessionTimeout = 45 * time.Second

// ConnOptions set how a Conn reaches its servers. A nil *ConnOptions, like the zero value, means the defaults.
type ConnOptions struct {
	// SessionTimeout is how long the servers keep what this process holds after its last sign of life;
	// 0 means [DefaultSessionTimeout]. The servers grant what is nearest to it from 2 to 20 of their
	// ticks (by default 4 to 40 seconds). A lease is never promised for more than two thirds of it.
	SessionTimeout time.Duration
	// User and Password are a digest identity. Nodes are then made for that identity alone.
	User, Password string
	// Login, unless it is nil, is asked for the user and the password instead of these two, at each connection and when the
	// servers refuse its answer. After a change the connection has the identity of before, too, since what was made then
	// belongs to it; the nodes from [Options].Root upwards must allow the new one.
	Login func(ctx context.Context) (user, password string, err error)
	// Dial connects to one server, for TLS for example; nil means TCP. It must return soon after ctx ends.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// A Conn is one session with a ZooKeeper, which Drivers share. Make one with [Connect], and close it after them. Its
// methods may be called concurrently.
//
// It also ends the leases and places of owners that were not renewed: the session itself lasts as
// long as the process does.
type Conn struct {
	zk      *zk.Client
	servers []string
	bad     error
	timeout time.Duration
	acl     []zk.ACL
	life    context.Context
	end     context.CancelFunc
	began   time.Time // of its clock
	work    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	entries map[place]*entry
	hints   map[place]map[chan driver.Hint]bool
	ending  []*entry // to be given up
	trash   []string // nodes to be deleted
	tidying bool
	again   bool // there may be more to tidy, or a connection again
}

// Connect returns a connection to the servers, each "host:port"; they must be of one ensemble. It does no I/O: the first
// request connects. What is wrong with the arguments is reported by Driver.Check.
func Connect(servers []string, o *ConnOptions) *Conn {
	if o == nil {
		o = &ConnOptions{}
	}
	c := &Conn{servers: slices.Clone(servers), timeout: o.SessionTimeout, began: time.Now(), entries: make(map[place]*entry), hints: make(map[place]map[chan driver.Hint]bool)}
	if c.timeout == 0 {
		c.timeout = DefaultSessionTimeout
	}
	c.acl = []zk.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	cfg := zk.Config{Servers: servers, Timeout: c.timeout, Dial: o.Dial, Ended: c.sessionEnded, Linked: c.linked, Shortest: c.shortest}
	if login := o.login(); login != nil {
		cfg.Auth = func(ctx context.Context) ([]zk.Auth, error) {
			user, password, err := login(ctx)
			return []zk.Auth{{Scheme: "digest", Data: []byte(user + ":" + password)}}, err
		}
		c.acl = []zk.ACL{{Perms: 31, Scheme: "auth"}}
	}
	c.bad = unusable(servers, o, c.timeout)
	c.life, c.end = context.WithCancel(context.Background())
	c.zk = zk.New(cfg)
	return c
}

func (o *ConnOptions) login() func(context.Context) (user, password string, err error) {
	if o.Login != nil || o.User == "" {
		return o.Login
	}
	return func(context.Context) (user, password string, err error) { return o.User, o.Password, nil }
}

// shortest is the shortest lease that is held, 0 when none is.
func (c *Conn) shortest() (ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.State.Leased() && (ttl == 0 || e.TTL < ttl) {
			ttl = e.TTL
		}
	}
	return ttl
}

// unusable says why a connection cannot work.
func unusable(servers []string, o *ConnOptions, timeout time.Duration) error {
	if len(servers) == 0 {
		return &configError{"there are no servers"}
	}
	for _, addr := range servers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return &configError{fmt.Sprintf("the server %q is not host:port: %v", addr, err)}
		}
	}
	switch {
	case timeout < time.Second || timeout > 1<<31*time.Millisecond-time.Millisecond:
		return &configError{fmt.Sprintf("the session's time-out is %v: it must be a second at least, and 24 days at most", timeout)}
	case strings.Contains(o.User, ":"):
		return &configError{fmt.Sprintf("the user %q has a colon", o.User)}
	case o.User == "" && o.Password != "":
		return &configError{"there is a password without a user"}
	}
	return nil
}

// Close ends the session, and with it all that is held over it.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	err := c.zk.Close()
	c.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		c.clear(e, false)
	}
	clear(c.entries)
	return err
}

// session returns the current session, connected.
func (c *Conn) session(ctx context.Context) (*zk.Session, error) {
	s, err := c.zk.Session(ctx)
	if errors.Is(err, zk.ErrClosed) {
		err = fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return s, err
}

// granted is the time-out of the latest session, or the one to be asked for.
func (c *Conn) granted() time.Duration {
	if granted := c.zk.Timeout(); granted > 0 {
		return granted
	}
	return c.timeout
}

// clock is a moment on the clock of handovers, which is this process' own: it knows when it saw that the key was handed over.
func (c *Conn) clock(at time.Time) time.Duration { return at.Sub(c.began) + 1 }

// hint sends a hint to the watchers of an owner. The caller holds mu.
func (c *Conn) hint(p place, h driver.Hint) {
	for ch := range c.hints[p] {
		h.Send(ch)
	}
}

// listen registers a watcher until ctx ends.
func (c *Conn) listen(ctx context.Context, p place) <-chan driver.Hint {
	ch := make(chan driver.Hint, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hints[p] == nil {
		c.hints[p] = make(map[chan driver.Hint]bool)
	}
	c.hints[p][ch] = true
	if e := c.entries[p]; e != nil && e.Live() && e.watch == nil {
		ch <- driver.Hint{} // what it waited for has ended before now, and no watcher was told
	}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.hints[p], ch); len(c.hints[p]) == 0 {
			delete(c.hints, p)
		}
	})
	return ch
}

// sessionEnded forgets what was held over a session that is over.
func (c *Conn) sessionEnded(s *zk.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, e := range c.entries {
		switch {
		case e.sess != s || !e.Live():
			continue
		case e.End == recipe.Ending:
			c.gaveUp(e, false)
		case e.State != recipe.Held:
			c.hint(p, driver.Hint{})
		}
		c.clear(e, true)
		c.drop(e)
	}
	c.ending = slices.DeleteFunc(c.ending, func(e *entry) bool { return e.sess == s || e.sess == nil })
	c.trash = nil
}

// linked goes on with what waited for a connection.
func (c *Conn) linked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tidy()
	for _, e := range c.entries {
		c.attend(e)
	}
}
