// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// DefaultRoot is where the keys' directories are, unless Options say otherwise.
const DefaultRoot = "/hasp"

// minTTL is the shortest TTL: a renewal is a write of a majority.
const minTTL = 100 * time.Millisecond

// Layout says which of Curator's recipes a driver takes turns with. Programs exclude each other when their
// layout, root and key are equal.
type Layout uint8

const (
	// ReadWrite is InterProcessReadWriteLock: an exclusive lease is its write lock, a shared one its read lock.
	ReadWrite Layout = iota
	// Mutex is InterProcessMutex. There are no shared leases.
	Mutex
)

// Options set where a Driver keeps its locks. A nil *Options, like the zero value, means the defaults.
type Options struct {
	// Root is the path of the node below which each key has a directory; "" means [DefaultRoot]. It is made
	// when it is missing. It cannot be "/".
	Root   string
	Layout Layout
}

// A Driver keeps locks in ZooKeeper. Make one with [New]. All methods may be called concurrently.
type Driver struct {
	c      *Conn
	root   string
	layout Layout
	bad    error

	lost func(id driver.ID, fence uint64) // guarded by c.mu
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
)

// New returns a Driver over a connection, which it never closes. It does no I/O.
func New(c *Conn, o *Options) *Driver {
	if o == nil {
		o = &Options{}
	}
	d := &Driver{c: c, root: o.Root, layout: o.Layout}
	if d.root == "" {
		d.root = DefaultRoot
	}
	switch {
	case c == nil:
		d.bad = &configError{"the connection is nil"}
	case c.bad != nil:
		d.bad = c.bad
	case !validRoot(d.root):
		d.bad = &configError{fmt.Sprintf("the root %q is no path of ZooKeeper below \"/\"", d.root)}
	case d.layout > Mutex:
		d.bad = &configError{fmt.Sprintf("there is no layout %d", d.layout)}
	}
	return d
}

func validRoot(root string) bool {
	rest, ok := strings.CutPrefix(root, "/")
	if !ok {
		return false
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool {
			return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0xd800 && r < 0xf900 || r >= 0xfff0
		}) {
			return false
		}
	}
	return true
}

// Check returns nil, or an error that says why this configuration cannot work. It does no I/O.
func (d *Driver) Check() error { return d.bad }

// Traits returns what this engine promises; see [driver.Traits].
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{
		Engine:   "zookeeper",
		Queue:    driver.QueueHint,
		Hints:    true,
		Fencing:  true,
		Shared:   d.layout == ReadWrite,
		MinTTL:   minTTL,
		Survives: driver.StoreRestart | driver.ClockStep | driver.Failover,
	}
	if d.c != nil {
		t.MaxTTL, t.SessionTTL = zk.Share(d.c.timeout), d.c.timeout
	}
	return t
}

// Tell has lost called for each lease that this driver was granted and that is over, though this driver did not release it: its
// session expired, its node was deleted, or nobody renewed it. lost does not block, and is called until Close returns.
func (d *Driver) Tell(lost func(id driver.ID, fence uint64)) {
	if d.c == nil {
		return
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.lost = lost
}

// Close ends the driver. What is held stays with the Conn, which ends it when nobody renews it.
func (d *Driver) Close() error {
	if d.c != nil {
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		d.lost = nil
	}
	return nil
}

// valid returns what is wrong with a request, as this engine's error.
func (d *Driver) valid(err error) error {
	switch {
	case d.bad != nil:
		return d.bad
	case err != nil:
		return fmt.Errorf("zookeeper: %w", err)
	}
	return nil
}

// can returns what of a request this layout cannot do.
func (d *Driver) can(r driver.TryRequest) error {
	switch {
	case r.Mode == driver.Shared && d.layout == Mutex:
		return fmt.Errorf("zookeeper: a shared lease in the layout of a mutex: %w", driver.ErrUnsupported)
	case r.Mode == driver.Shared && r.Limit > 0:
		return fmt.Errorf("zookeeper: a limit: %w", driver.ErrUnsupported)
	}
	return nil
}

func (d *Driver) kind(m driver.Mode) kind {
	switch {
	case m == driver.Shared:
		return kindRead
	case d.layout == Mutex:
		return kindLock
	}
	return kindWrite
}

// dir is the path of a key's directory.
func (d *Driver) dir(key string) string { return d.root + "/" + encodeKey(key) }

func (d *Driver) place(c driver.Claim) place { return place{d.dir(c.Key), c.ID()} }

// released is the folder of the owners that were released: a key's directory never has its name.
func (d *Driver) released() string { return d.root + "/.released" }

// tomb is the path of the mark that an owner was released.
func (d *Driver) tomb(c driver.Claim) string {
	return d.released() + "/" + digest(c.Key, c.Owner, c.Label)
}

// make makes the folders that a key needs; dir may be "". Its directory is a container: the servers delete it some time after
// its last child.
func (d *Driver) make(ctx context.Context, s *zk.Session, dir string) error {
	var calls []*zk.Call
	for i := range d.root {
		if i > 0 && d.root[i] == '/' {
			calls = append(calls, zk.Create(d.root[:i], nil, d.c.acl, zk.Persistent))
		}
	}
	calls = append(calls, zk.Create(d.root, nil, d.c.acl, zk.Persistent), zk.Create(d.released(), nil, d.c.acl, zk.Persistent))
	if dir != "" {
		calls = append(calls, zk.Create(dir, nil, d.c.acl, zk.Container))
	}
	if err := s.Do(ctx, calls...); err != nil {
		return err
	}
	last := calls[len(calls)-1].Err
	if last == zk.ErrNodeExists { //nolint:errorlint // a code as it is
		return nil
	}
	if last == zk.ErrNoNode { //nolint:errorlint // a code as it is
		for _, call := range calls { // the first that failed says why
			if call.Err != nil && call.Err != zk.ErrNodeExists { //nolint:errorlint // a code as it is
				return call.Err
			}
		}
	}
	return last
}
