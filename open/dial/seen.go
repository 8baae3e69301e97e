// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hasplock/hasp/internal/plain"
)

// stage is how far the latest connection to a server came.
type stage uint8

const (
	untried stage = iota
	away          // it was not made
	unlike        // the two sides do not speak the same: one of them TLS, or another store's protocol
	mute          // it stands, and the server has said nothing
	hungUp        // the server closed it before it said anything
	heard         // the server answered all that it was asked
	asked         // the server answered, but not what it was asked since
	ended         // the server answered, and closed it later
)

// sights are what was seen of a store's servers. Clients drop, hide or delay why they have no answer, so a message about that says what
// was seen: [sights.unserved] is the one place for it.
type sights struct {
	scheme string // of the URL

	mu     sync.Mutex
	latest string
	by     map[string]sight // by address
}

type sight struct {
	stage stage
	err   error // where the client may not say it
}

func (s *sights) note(addr string, at stage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[string]sight)
	}
	s.latest = addr
	if was := s.by[addr].stage; at == mute && (was == hungUp || was == unlike) { // it is tried again: that says more
		return
	}
	s.by[addr] = sight{at, err}
}

// of is what was seen of a server; "": of the server that was seen last.
func (s *sights) of(addr string) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[cmp.Or(addr, s.latest)]
}

// unserved is what to say of a server, or of the store, that does not serve: the rest of a sentence that begins with its name, and the next one.
func (s *sights) unserved(addr string, err error) string {
	seen, said := s.of(addr), plain.Error(err)
	var late interface{ Timeout() bool }
	if errors.As(err, new(*lastWords)) || seen.stage == mute && !cut(err) && !(errors.As(err, &late) && late.Timeout()) { // an answer, and another connection is new
		seen.stage = heard
	}
	if why := seen.err; why != nil && !strings.Contains(said, plain.Error(why)) {
		said += " (" + plain.Error(why) + ")"
	}
	tls := ""
	switch other := s.otherwise(); {
	case other != "" && s.secure():
		tls = " Does it speak TLS? Else the store's URL " + other
	case other != "":
		tls = " Does it expect TLS? Then the store's URL " + other
	}
	switch seen.stage {
	case unlike:
		return "cannot be used: " + said
	case mute:
		return plain.Then("takes connections, and does not answer: "+said, "Is it stopped or overloaded, or do packets get lost on the way?"+tls)
	case hungUp:
		return plain.Then(strings.TrimSuffix("closed the connection before its first answer: "+said, ": it closed the connection"), "Has it as many connections as it allows, or is it not "+cmp.Or(products[s.scheme], "Redis")+"?"+tls)
	case heard:
		return "answers, but does not serve: " + said
	case asked:
		return plain.Then("answered, and then no more: "+said, "Is it overloaded, or do large packets get lost on the way? Look: hasp doctor")
	case ended:
		return plain.Then("answered, and then ended the connection: "+said, "Was it stopped, or does something in between drop connections?")
	}
	return plain.Then("cannot be reached: "+said, "Does it run, and is its address right?")
}

// products are what the servers of a scheme are, other than Redis.
var products = map[string]string{"etcd": "etcd", "etcds": "etcd", "zk": "ZooKeeper", "postgres": "PostgreSQL", "mysql": "MariaDB", "mariadb": "MariaDB"}

// withTLS are the schemes with TLS, by those without.
var withTLS = map[string]string{
	"redis": "rediss", "redis+sentinel": "rediss+sentinel", "redis+cluster": "rediss+cluster", "redlock": "redlocks", "etcd": "etcds",
}

func (s *sights) secure() bool { return s.other() != "" && withTLS[s.scheme] == "" }

// other is the scheme that has TLS where this one has none, and none where this one has; "" where that is a parameter.
func (s *sights) other() string {
	for without, with := range withTLS {
		if s.scheme == with {
			return without
		}
	}
	return withTLS[s.scheme]
}

// otherwise is how the URL asks for TLS, or for none; "": it cannot.
func (s *sights) otherwise() string {
	switch s.scheme {
	case "postgres", "postgresql":
		return "has sslmode=require"
	case "mysql", "mariadb":
		return "has tls=true"
	case "zk":
		return "names a port without it: hasp speaks none with ZooKeeper"
	}
	if s.other() == "" { // a unix socket
		return ""
	}
	return "begins with " + s.other() + ":"
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// reach notes whether dial makes connections.
func (s *sights) reach(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		late := ctx.Err() != nil
		c, err := dial(ctx, network, addr)
		switch {
		case late: // nothing was tried
		case cut(err): // as soon as it stood
			s.note(addr, hungUp, err)
		case err != nil:
			s.note(addr, away, err)
		default:
			s.note(addr, mute, nil)
		}
		return c, err
	}
}

// watch has the connections that dial makes looked at.
func (s *sights) watch(dial dialFunc) dialFunc {
	dial = s.reach(dial)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &plainConn{conn{Conn: c, seen: s, addr: addr}}, nil
	}
}

// conn is a connection that is looked at. A client may drop the first error of one, so it goes on to say why it failed.
type conn struct {
	net.Conn
	seen    *sights
	addr    string
	secure  bool     // over TLS
	replies *replies // of a server of Redis, which is not trusted to send what was asked for; else nil

	answered atomic.Bool            // the server said something
	said     atomic.Pointer[string] // its only answer until now, where that is an error
	failed   atomic.Pointer[error]
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.failed.Load(); err != nil {
		return 0, *err
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		if bad := c.heard(p[:n]); bad != nil {
			return 0, c.fail(bad)
		}
	}
	return n, c.over(err)
}

// heard looks at what came.
func (c *conn) heard(p []byte) error {
	first := !c.answered.Load()
	if first && !c.secure && len(p) > 1 && (p[0] == 0x15 || p[0] == 0x16) && p[1] == 3 { // an alert, or a handshake
		err := fmt.Errorf("the server answers with TLS, and was not asked to: if it is the right one, the store's URL %s", c.seen.otherwise())
		c.seen.note(c.addr, unlike, err)
		return err
	}
	if first && c.seen.scheme == "etcd" && p[0] != 0 { // HTTP/2 begins with a short frame
		err := errors.New("the server answers, but not as an etcd does: is it one?")
		c.seen.note(c.addr, unlike, err)
		return err
	}
	c.seen.note(c.addr, heard, nil)
	if c.replies == nil {
		c.answered.Store(true)
		return nil
	}
	err := c.replies.scan(p)
	c.said.Store(nil)
	if first && p[0] == '-' {
		line, _, _ := strings.Cut(string(p[1:min(len(p), 200)]), "\r")
		c.said.Store(&line)
	}
	c.answered.Store(true)
	return err
}

// Write takes what cannot be sent before the first answer for sent: a server that has too many connections says so, and closes this one.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.failed.Load(); err != nil {
		return 0, *err
	}
	answered := c.answered.Load()
	if answered {
		c.seen.note(c.addr, asked, nil)
	}
	n, err := c.Conn.Write(p)
	if !answered && !c.secure && c.replies != nil && cut(err) {
		return len(p), nil
	}
	return n, c.over(err)
}

func (c *conn) fail(err error) error {
	c.failed.CompareAndSwap(nil, &err)
	return *c.failed.Load()
}

// cut: the other side has closed a connection.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// over looks at how a connection ended. With TLS 1.3 a server looks at the client's certificate after the handshake.
func (c *conn) over(err error) error {
	var alert *net.OpError
	said := c.said.Load()
	switch {
	case err == nil:
		return nil
	case cut(err) && said != nil:
		c.seen.note(c.addr, heard, nil)
		return c.fail(&lastWords{*said, err})
	case c.answered.Load() && cut(err):
		c.seen.note(c.addr, ended, nil)
	case c.answered.Load():
	case c.secure && (cut(err) || errors.As(err, &alert) && alert.Op == "remote error"):
		err = explained("TLS: %w, after the handshake: does it want a certificate of yours? Name one with tls-cert= and tls-key= in the store's URL, or in %s and %s",
			err, envTLS["tls-cert"], envTLS["tls-key"])
		c.seen.note(c.addr, unlike, err)
		return c.fail(err)
	case cut(err):
		c.seen.note(c.addr, hungUp, nil)
		return c.fail(err)
	}
	return err
}

// lastWords are the only answer of a server that then closed the connection. It unwraps to a list, as explanation does.
type lastWords struct {
	text string
	err  error
}

func (e *lastWords) Error() string {
	return e.text + ", and it closed the connection: " + e.err.Error()
}
func (e *lastWords) Unwrap() []error { return []error{e.err} }

// plainConn can be looked at without reading from it, where nothing lies between.
type plainConn struct{ conn }

func (c *plainConn) SyscallConn() (syscall.RawConn, error) {
	s, ok := c.Conn.(syscall.Conn)
	if err := c.failed.Load(); err != nil {
		return nil, *err
	}
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.SyscallConn()
}
