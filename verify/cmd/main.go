// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command cmd tries and measures what takes minutes, on real servers that it starts on free loopback ports and stops again.
//
//	go run ./verify/cmd campaign                 200 schedules of Redlock, four side by side: about 15 minutes
//	go run ./verify/cmd campaign -lone           one server, with and without a node record
//	go run ./verify/cmd campaign -engine etcd    another engine; "all" is each of them
//	go run ./verify/cmd campaign -agent ./hasp   clients that lock through agents of this command
//	go run ./verify/cmd campaign -seed 17        one schedule, with its history
//	go run ./verify/cmd campaign -wired          partitions by network namespaces and nftables; as root
//	go run ./verify/cmd waiters -engine redis
//	go run ./verify/cmd once                     50 processes, 1,000 occurrences, 400 kills on each of three engines
//	go run ./verify/cmd overlap -only redsync -n 20
//
// It ends with a table, and with exit code 1 when something was violated, or a bar was missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/internal/page"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9/logging"
)

// show is one measurement. prepare defines its flags and returns it.
type show struct {
	name, about string
	prepare     func(*flag.FlagSet) func(*testserver.Program)
}

var shows = []show{
	{"costs", "what each engine promises, and costs without contention and from one client to the next", costs},
	{"once", "a job of many processes with clocks that differ, which are killed: each occurrence once, or again and told", onces},
	{"waiters", "many waiters for one key over a slow link or beside busy loops, on every engine", waiters},
}

func main() {
	logging.Disable() // what matters comes back as an error
	testserver.Main("verify", run)
}

// run runs the show that the command line names. A bar that was missed is an error.
func run(ctx context.Context, args []string) error {
	for _, s := range shows {
		if len(args) == 0 || args[0] != s.name {
			continue
		}
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		f := s.prepare(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		_, err := testserver.Perform(ctx, func(t *testserver.Program) any { f(t); return nil })
		return err
	}
	fmt.Fprintln(os.Stderr, "usage: verify NAME [flags], where NAME is one of:")
	for _, s := range shows {
		fmt.Fprintf(os.Stderr, "\n  %-9s %s\n", s.name, s.about)
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		s.prepare(flags)
		flags.PrintDefaults()
	}
	return flag.ErrHelp
}

// intoFlag names the document that a table goes into.
func intoFlag(flags *flag.FlagSet) *string {
	return flags.String("into", "", "write the tables into this `file`, between the marks that are there")
}

// publish prints a table under a heading, and writes both between the marks of a document.
func publish(t *testserver.Program, into, mark, head, table string) {
	fmt.Printf("%s\n\n%s", head, table)
	if t.Context().Err() == nil {
		t.Must(page.Write(into, mark, head+"\n\n"+table))
	}
}

// now says when, and with which Go, a table was made.
func now() string { return time.Now().UTC().Format(time.DateOnly) + ", " + runtime.Version() }

// opener connects one more driver.
type opener func() (*engines.Conn, error)

// stores are all that hasp can use: by what a flag calls them, where many waiters are measured, and by their title in
// the table of costs.
var stores = []struct {
	name, title string
	start       func(place) opener
}{
	{"sqlite", "SQLite", over(engines.SQLite)},
	{"redis", "Redis", over(engines.Redis)},
	{"", "Redis, Sentinel", sentinel("")},
	{"", "the same with `replicas=2`", sentinel("?replicas=2")},
	{"", "Redis Cluster", func(p place) opener {
		return at("redis+cluster://" + strings.Join(testserver.NewRedisCluster(p, 3, testserver.RedisGroup{Timeout: time.Minute}).Addrs(), ","))
	}},
	{"", "Redis, `layout=redisson`", redisson("")},
	{"", "the same with `kind=fair`", redisson("&kind=fair")},
	{"", "the same with `kind=fenced`", redisson("&kind=fenced")},
	{"", "the same with `kind=readwrite`", redisson("&kind=readwrite")},
	{"redlock", "Redlock over 3 Redis", over(engines.Redlock)},
	{"etcd", "etcd", over(engines.Etcd)},
	{"", "etcd, three members", over(engines.Etcd3)},
	{"zookeeper", "ZooKeeper", over(engines.ZooKeeper)},
	{"postgres", "", over(engines.Postgres)},
	{"", "PostgreSQL", opened(engines.Postgres, func(addrs []string, _ time.Duration) (*engines.Conn, error) {
		return engines.OpenPostgres(addrs[0], pgx.QueryExecModeCacheStatement) // pgx's default
	})},
	{"mariadb", "MariaDB", over(engines.MariaDB)},
}

// place is where servers run, and how far away they are.
type place struct {
	*testserver.Program
	rtt time.Duration // of each link; 0: there is none
	ttl time.Duration // of the leases
}

func over(k engines.Kind) func(place) opener {
	return opened(k, func(addrs []string, ttl time.Duration) (*engines.Conn, error) { return engines.OpenFor(k, addrs, ttl) })
}

func opened(k engines.Kind, open func(addrs []string, ttl time.Duration) (*engines.Conn, error)) func(place) opener {
	return func(p place) opener {
		store := engines.Start(p, k)
		addrs := store.Addrs()
		if p.rtt > 0 {
			links := store.Links(p)
			for _, l := range links {
				l.Delay(p.rtt)
			}
			addrs = store.Through(links)
		}
		return func() (*engines.Conn, error) { return open(addrs, p.ttl) }
	}
}

// at opens what a URL names.
func at(url string) opener { return func() (*engines.Conn, error) { return engines.ByURL(url) } }

func sentinel(more string) func(place) opener {
	return func(p place) opener {
		group := testserver.NewRedisSentinel(p, testserver.RedisGroup{Timeout: time.Minute})
		return at("redis+sentinel://" + testserver.MasterName + "@" + strings.Join(group.Addrs(), ",") + more)
	}
}

func redisson(more string) func(place) opener {
	return func(p place) opener { return at("redis://" + testserver.Redis(p).Addr() + "?layout=redisson" + more) }
}
