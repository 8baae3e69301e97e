// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/open/dial"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Store is an open store.
type Store struct {
	driver.Driver // Close closes the connections, too
	// Servers are its servers; none for a file.
	Servers []Server
	// Masters finds the servers of a store that consists of what it says itself; nil otherwise.
	Masters func(ctx context.Context) ([]Server, error)
	// Replicas is how many replicas must confirm a lock.
	Replicas int
	// Examine looks at what the engine cannot know of its own store; nil where there is nothing.
	Examine func(ctx context.Context) []operator.Finding
	// NoMessages says why no message may come that a key is free: the end of a sentence.
	NoMessages string
	// Redisson: the locks are in the layout of Redisson, which has other clients.
	Redisson bool
	// StateFailed is told why the wait for servers that are held back is not remembered; nil: nothing is. It is set before the first use.
	StateFailed func(error)
	// Searches: a list may find nothing for long, since keys of others are searched, too;
	// each answer has a limit of its own.
	Searches bool

	// Tables are those that have to be made before the first use; nil where nothing has.
	Tables *Tables

	kind   doctor.Kind
	opened *dial.Store
}

// Tables are those of a database.
type Tables struct {
	Schema string                          // the statements that make them
	Make   func(ctx context.Context) error // makes those that are missing
}

// Server is one server, named by its address, as in errors.
type Server struct {
	Name   string
	Driver driver.Driver // the engine of this server alone
	// Look asks the server about itself, and changes nothing.
	Look func(ctx context.Context) doctor.Facts
	// ByHand is as [URL.ByHand], of a server that Masters found.
	ByHand func(statement string) string
}

// Name returns a name for a key of hasp's own. Where a counter of each key stays for ever it is one of a few, so that another hasp may
// use it, too; else no other uses it.
func (s *Store) Name() string {
	if s.Redisson && s.Traits().Fencing {
		return rand.Text()[:1]
	}
	return rand.Text()
}

// Fit judges what the store may be used for, by what was found. usable: it was examined, and grants locks.
func (s *Store) Fit(found []doctor.Finding, usable bool) (doctor.Use, []doctor.Fitness) {
	return doctor.Fit(s.Traits(), s.kind, found, usable)
}

// Promise describes what the store promises.
func (s *Store) Promise() []string {
	k := s.kind
	k.Session = s.Session()
	return doctor.Promise(s.Traits(), k)
}

// Session is the time-out of ZooKeeper's session as the servers have granted it by now; 0: the store has none.
func (s *Store) Session() time.Duration {
	if d, ok := s.Driver.(interface{ Session() time.Duration }); ok {
		return d.Session()
	}
	return 0
}

// NodeTimeout is how long each server of redlock: may take to answer; 0: as package
// quorum has it. Tests set it, since a machine that is busy with other tests is
// silent for longer than a lock should wait.
var NodeTimeout time.Duration

// IsFile says whether the store is a file of this machine, and not a server.
func (u *URL) IsFile() bool { return u.Parts().Kind == dial.SQLite }

// Open opens the store. It reads the files of TLS, and does no other I/O.
func (u *URL) Open() (*Store, error) {
	logging.Disable() // go-redis writes to stderr; what matters comes back as an error
	s := &Store{}
	o := &dial.Options{Latest: newRotation(u).now, Sparing: true, NodeTimeout: NodeTimeout}
	var unfit error
	o.StateDir, unfit = StateDir()
	o.StateFailed = func(err error) {
		if s.StateFailed != nil {
			s.StateFailed(cmp.Or(unfit, err))
		}
	}
	var err error
	if s.opened, err = u.URL.Open(o); err != nil {
		return nil, err
	}
	s.Driver = s.opened.Driver
	s.describe(u)
	return s, nil
}

// describe adds what the engine does not know of its store.
func (s *Store) describe(u *URL) {
	switch p := u.Parts(); p.Kind {
	case dial.SQLite:
		s.kind = doctor.Kind{Local: true, Clock: true, Dangers: "a file that is deleted, restored, or on a network file system"}
		s.Examine = func(context.Context) []operator.Finding { return disk(p.Addrs[0]) }
	case dial.Etcd:
		s.kind = doctor.Kind{Nodes: len(p.Addrs), Dangers: "DEL of lock keys, a cluster that is restored from a snapshot"}
	case dial.ZK:
		s.kind = doctor.Kind{Nodes: len(p.Addrs), Dangers: "a client that deletes the nodes of locks"}
	case dial.Postgres:
		s.database(sqldriver.PostgresSchema)
		s.Examine = s.pooler
		s.NoMessages = ": is there a pooler of connections in between (PgBouncer in transaction mode), through which LISTEN does not work?"
	case dial.MySQL:
		s.database(sqldriver.MySQLSchema)
	default:
		s.redis(u, p)
	}
}

func (s *Store) database(schema string) {
	s.kind = doctor.Kind{Dangers: "a server that is restored from a backup"} // which no database notices
	s.Tables = &Tables{Schema: schema, Make: s.Driver.(interface{ Init(context.Context) error }).Init}
}

func (s *Store) redis(u *URL, p dial.Parts) {
	s.Searches, s.Redisson = true, p.Params.Get("layout") == "redisson"
	s.Replicas, _ = strconv.Atoi(p.Params.Get("replicas"))
	s.NoMessages = ": is this user allowed to use SUBSCRIBE and PUBLISH (which is said above), and does a proxy in between pass messages on?"
	s.kind = doctor.Kind{Clock: true, Nodes: len(s.opened.Servers), Replicas: s.Replicas, Dangers: "eviction, DEL of lock keys"}
	if p.Kind == dial.Redlock {
		s.kind.Dangers += ", all on nodes that vote"
	}
	needed := doctor.Canonical()
	if s.Redisson {
		kind, _ := redisson.ParseKind(cmp.Or(p.Params.Get("kind"), redisson.Lock.String()))
		s.kind.Clock, s.kind.Notes = false, redissonNotes(kind, s.Traits().MaxTTL) // the counter of a fenced lock begins again at 1
		s.kind.NoFences = ". Take kind=fenced in the store's URL, and getFencedLock in Java; or hasp's own layout, where no Java takes part"
		needed = doctor.Redisson(kind, p.Params.Get("prefix"))
	}
	if p.Kind == dial.Cluster {
		needed.Cluster = true
		s.Masters = func(ctx context.Context) ([]Server, error) { return s.masters(ctx, p, needed) }
		return
	}
	for _, one := range s.opened.Servers {
		s.Servers = append(s.Servers, Server{Name: one.Name, Driver: one.Driver,
			Look: func(ctx context.Context) doctor.Facts { return doctor.Look(ctx, one.Client, needed, s.opened.Dial) }})
	}
	if p.Kind == dial.Sentinel {
		s.Examine = func(ctx context.Context) []operator.Finding { return s.sentinels(ctx, u) }
		s.Servers[0] = s.behindSentinels(u, p, s.Servers[0])
	}
}

// behindSentinels is a master that looks for its address first.
func (s *Store) behindSentinels(u *URL, p dial.Parts, m Server) Server {
	found := "" // once Look has asked for it
	look := m.Look
	m.Look = func(ctx context.Context) doctor.Facts {
		found = s.master(ctx, p.Master)
		return look(ctx)
	}
	m.ByHand = func(statement string) string {
		if found == "" {
			return u.ByHand(0, statement)
		}
		return redisCLI(redisAt(p, found), statement)
	}
	return m
}

// masters are those of a cluster.
func (s *Store) masters(ctx context.Context, p dial.Parts, needed doctor.Rights) (all []Server, err error) {
	var mu sync.Mutex
	err = s.opened.Cluster.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, Server{
			Name: one.Options().Addr, Driver: s.Driver,
			Look:   func(ctx context.Context) doctor.Facts { return doctor.Look(ctx, one, needed, s.opened.Dial) },
			ByHand: func(statement string) string { return redisCLI(redisAt(p, one.Options().Addr), statement) },
		})
		return nil
	})
	slices.SortFunc(all, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// redissonNotes are what people have to know of a kind of Redisson's locks, the longest TTL of which is most.
func redissonNotes(k redisson.Kind, most time.Duration) []string {
	const order = "no queue: whoever asks first when the key is free gets it"
	call, notes := "", []string(nil)
	switch k {
	case redisson.Lock:
		call, notes = "getLock", []string{order}
	case redisson.Fair:
		call, notes = "getFairLock", []string{"first come, first served, with those who wait in Java"}
	case redisson.Fenced:
		call, notes = "getFencedLock", []string{order, "fences count only if every program takes the key with getFencedLock: getLock raises none. " +
			"The counter of each key stays for ever (redisson_lock_token:…)"}
	case redisson.ReadWrite:
		call, notes = "getReadWriteLock", []string{order + ", and readers that keep coming keep writers waiting",
			fmt.Sprintf("grants leases of at most %v. No program in Java may have a smaller lockWatchdogTimeout, or there can be two holders "+
				"(lock-watchdog-timeout= in the store's URL)", most)}
	}
	return append([]string{"takes turns with Redisson's " + call + ". What Java holds is foreign to hasp: it is shown and waited for, and never broken"}, notes...)
}
