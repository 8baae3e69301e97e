// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// roots numbers the cases, each of which has a root of its own.
var roots atomic.Int64

func suite(t *testing.T, o Options, servers ...string) { drivertest.Run(t, harness(o, servers...)) }

// harness has stores with sessions that outlast the suite's longest leases.
func harness(o Options, servers ...string) drivertest.Harness {
	return drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		o := o
		o.Root = fmt.Sprintf("/suite/%d", roots.Add(1))
		connect := func() *Conn {
			c := Connect(servers, &ConnOptions{SessionTimeout: 2 * time.Hour, Dial: patiently})
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		admin := connect()
		return drivertest.Store{
			Open:      func() driver.Driver { return New(connect(), &o) },
			Leftovers: func() []string { return everything(t, admin, o.Root, permanent) },
			Names:     func() []string { return everything(t, admin, o.Root, func(string, zk.Stat) bool { return true }) },
			Persist:   func(key string) bool { return persist(t, New(admin, &o), key) },
		}
	}}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server := server(t).Addr()
	for layout, name := range []string{ReadWrite: "ReadWrite", Mutex: "Mutex", Semaphore: "Semaphore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if layout != int(ReadWrite) {
				testserver.Variant(t, "another layout")
			}
			suite(t, Options{Layout: Layout(layout)}, server)
		})
	}
}

// persist puts a copy in the place of the node that holds a key, as a tool does that brings nodes back from a backup: of no session,
// and named after a session that is over. It reports whether there was such a node.
func persist(t testing.TB, d *Driver, key string) bool {
	t.Helper()
	s, err := d.c.session(t.Context())
	must(t, err)
	q, err := d.read(t.Context(), s, d.dir(key))
	must(t, err)
	if len(q) == 0 {
		return false
	}
	n, get := q[0], zk.Get(d.dir(key)+"/"+q[0].Name)
	must(t, s.Do(t.Context(), get))
	data := recipe.Decode(get.Data)
	data.Fence = fenceIn(n, get)
	name := n.For(n.Mark, 1).Name
	all := zk.Multi(zk.Delete(d.dir(key)+"/"+n.Name), zk.Create(d.dir(key)+"/"+name, data.Encode(), d.c.acl, zk.Persistent))
	if err := s.Do(t.Context(), all); err != nil || all.Err != nil && !absent(all.Err) {
		t.Fatal(err, all.Err)
	}
	return all.Err == nil
}

// permanent reports whether a node is of no session, and none of the two that a root keeps. A key's directory, too,
// has to be gone after a while: it is a container.
func permanent(path string, s zk.Stat) bool {
	return s.EphemeralOwner == 0 && strings.Count(path, "/") > 2 && !strings.HasSuffix(path, "/.released")
}

// everything lists the names of the nodes below a path that are wanted.
func everything(t testing.TB, c *Conn, path string, want func(string, zk.Stat) bool) (names []string) {
	t.Helper()
	s, err := c.session(t.Context())
	must(t, err)
	children := zk.Children(path, nil)
	must(t, s.Do(t.Context(), zk.Sync(path), children))
	if children.Err == nil && want(path, children.Stat) {
		names = append(names, path)
	}
	for _, name := range children.Children {
		names = append(names, everything(t, c, path+"/"+name, want)...)
	}
	return names
}
