// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
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
	// Semaphore is InterProcessSemaphoreV2: a shared lease is one of its leases, also without a limit, and an exclusive one
	// holds its mutex while there is no lease. A limit is each program's own: those of Java's are not known.
	Semaphore
)

// The numbers are those of package recipe: else this does not compile.
var _ = [1]bool{}[Semaphore-Layout(recipe.Semaphore)+Mutex-Layout(recipe.Mutex)]

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
	_ driver.Driver = (*Driver)(nil)
	_ driver.Teller = (*Driver)(nil)
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
	case d.layout > Semaphore:
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

// Traits returns what this engine promises; see [driver.Traits]. MaxTTL goes by [Driver.Session].
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{
		Engine:   "zookeeper",
		Queue:    driver.QueueHint,
		Tells:    driver.TellsFree | driver.TellsEarlier,
		Fencing:  true,
		Shared:   d.layout != Mutex,
		Slots:    d.layout == Semaphore,
		MinTTL:   minTTL,
		Survives: driver.StoreRestart | driver.ClockStep | driver.Failover,
	}
	if d.hands() {
		t.Tells |= driver.TellsHandover
	}
	if d.c != nil {
		t.MaxTTL = min(zk.Share(d.c.granted()), zk.Share(d.c.timeout))
	}
	return t
}

// Session is the time-out of the session: what a process that dies held may last for about so long, even if its TTL is shorter. It is the
// one that the servers granted, once they have been reached, and until then the requested one. It does no I/O; 0 if Check fails.
func (d *Driver) Session() time.Duration {
	if d.c == nil {
		return 0
	}
	return d.c.granted()
}

// Tell has lost called for each lease that this driver was granted and that is over, though this driver did not release it: its
// session expired, its node was deleted, or it was not renewed. lost does not block, and is called until Close returns.
func (d *Driver) Tell(lost func(id driver.ID, fence uint64)) {
	if d.c == nil {
		return
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.lost = lost
}

// Watch implements [driver.Driver]. A Try that is refused with a place has the store watch the node that it waits for.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.valid(c.Check()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.c.listen(ctx, d.place(c)), nil
}

// Close ends the driver. What is held stays with the Conn, which ends it when it is not renewed.
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
	case r.Mode == driver.Shared && r.Limit > 0 && d.layout != Semaphore:
		return fmt.Errorf("zookeeper: a limit: %w", driver.ErrUnsupported)
	}
	return nil
}

// hands reports whether a place has the key once it is the first: a semaphore's then only may have it.
func (d *Driver) hands() bool { return d.layout != Semaphore }

// dir is the path of a key's directory.
func (d *Driver) dir(key string) string { return d.root + "/" + recipe.EncodeKey(key) }

func (d *Driver) place(c driver.Claim) place { return place{d.dir(c.Key), c.ID()} }

// released is the folder of the owners that were released: a key's directory never has its name.
func (d *Driver) released() string { return d.root + "/.released" }

// tomb is the path of the mark that an owner was released.
func (d *Driver) tomb(c driver.Claim) string {
	return d.released() + "/" + recipe.Digest(c.Key, c.Owner, c.Label)
}

// folders are where the nodes of a key are, below its directory. The waiters are in the first.
func (d *Driver) folders() []string { return recipe.Layout(d.layout).Folders() }

// lists asks for the nodes in a directory's folders.
func lists(dir string, folders []string) []*zk.Call {
	calls := make([]*zk.Call, 0, len(folders))
	for _, folder := range folders {
		calls = append(calls, zk.Children(strings.TrimSuffix(dir+"/"+folder, "/"), nil))
	}
	return calls
}

// gets asks for the data of nodes in a directory.
func gets(dir string, q recipe.Queue) (calls []*zk.Call) {
	for _, n := range q {
		calls = append(calls, zk.Get(dir+"/"+n.Name))
	}
	return calls
}

// queueOf is what lists say. An absent folder is empty.
func queueOf(folders []string, calls []*zk.Call) (q recipe.Queue, err error) {
	for i, call := range calls {
		if call.Err != nil && !absent(call.Err) {
			return nil, call.Err
		}
		q.Add(folders[i], call.Children)
	}
	return q, nil
}

// barrier has what is read after it be as new as when it was asked: a write, which does nothing.
//
// ZooKeeper's sync is not enough. On the leader it does nothing (3.8), and the leader applies a change later than a follower may: seen
// in the suite over an ensemble.
func barrier(dir string) *zk.Call { return zk.Delete(dir + "/-") }

// read reads a key's queue as it is now, or later.
func (d *Driver) read(ctx context.Context, s *zk.Session, dir string) (recipe.Queue, error) {
	calls := lists(dir, d.folders())
	if err := s.Do(ctx, append([]*zk.Call{barrier(dir)}, calls...)...); err != nil {
		return nil, err
	}
	return queueOf(d.folders(), calls)
}

// make makes the root, and what it has besides the keys' directories.
func (d *Driver) make(ctx context.Context, s *zk.Session) error {
	var calls []*zk.Call
	for i := range d.root {
		if i > 0 && d.root[i] == '/' {
			calls = append(calls, zk.Create(d.root[:i], nil, d.c.acl, zk.Persistent))
		}
	}
	calls = append(calls, zk.Create(d.root, nil, d.c.acl, zk.Persistent), zk.Create(d.released(), nil, d.c.acl, zk.Persistent))
	if err := s.Do(ctx, calls...); err != nil {
		return err
	}
	// Where another client made the first ones, we need not be allowed to. The first that failed says why.
	if last := calls[len(calls)-1].Err; last == nil || errors.Is(last, zk.ErrNodeExists) {
		return nil
	}
	for _, call := range calls {
		if call.Err != nil && !errors.Is(call.Err, zk.ErrNodeExists) {
			return call.Err
		}
	}
	return nil
}

// in makes a node of a key, and what is lacking, in one step: a container that never had a child would
// stay. node is its Create. The answer's Err is ErrNodeExists when another made a folder first.
func (d *Driver) in(dir string, node *zk.Call, lacks recipe.Lacks) *zk.Call {
	if lacks == recipe.LacksNothing {
		return node
	}
	var parts []*zk.Call
	if lacks == recipe.LacksAll {
		parts = append(parts, zk.Create(dir, nil, d.c.acl, zk.Container))
	}
	if folder := d.folders()[0]; folder != "" {
		parts = append(parts, zk.Create(dir+"/"+folder, nil, d.c.acl, zk.Container))
	}
	return zk.Multi(append(parts, node)...)
}
