// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// A pair is two servers behind one address, of which one takes writes.
type pair struct {
	database // as clients find it
	address  *faultproxy.Proxy
	next     string // the other server's address
	turn     func() // has the other one take writes, and this one none
}

var pairs = map[string]func(t testing.TB) pair{"Postgres": postgresPair, "MySQL": mariaPair}

func postgresPair(t testing.TB) pair {
	old := testserver.Postgres(t, testserver.PostgresReplicates...)
	d := newPostgres(t, old)
	standby := testserver.PostgresStandby(t, old)
	admin, other := d.pool(t), database{kind: d.kind, dsn: strings.Replace(d.dsn, old.Addr(), standby.Addr(), 1)}.pool(t)
	d, address := d.through(t)
	return pair{d, address, standby.Addr(), func() {
		run(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on")
		run(t, admin, "SELECT pg_reload_conf()")
		waitFor(t, "it is read-only", func() bool {
			return number(t, admin, "SELECT count(*) FROM pg_settings WHERE name = 'transaction_read_only' AND setting = 'on'") == 1
		})
		written := text(t, admin, "SELECT pg_current_wal_lsn()")
		waitFor(t, "the standby has it all", func() bool {
			return number(t, other, fmt.Sprintf("SELECT (pg_last_wal_replay_lsn() >= '%s')::int", written)) == 1
		})
		run(t, other, "SELECT pg_promote()")
	}}
}

func mariaPair(t testing.TB) pair {
	const user = "app"
	old := testserver.MariaDB(t, "--server-id=1", "--log-bin")
	replica := testserver.MariaDB(t, "--server-id=2", "--log-bin", "--read-only")
	other := database{kind: "mysql", dsn: fmt.Sprintf("root@tcp(%s)/", replica.Addr())}.pool(t)
	run(t, other, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_USE_GTID=slave_pos", old.Port()))
	run(t, other, "START SLAVE")
	d := newMySQL(t, old)
	admin := d.pool(t)
	run(t, admin, "CREATE USER app") // whom read_only concerns
	run(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO app")
	d.dsn = strings.Replace(d.dsn, "root@", user+"@", 1)
	d, address := d.through(t)
	return pair{d, address, replica.Addr(), func() {
		run(t, admin, "SET GLOBAL read_only = 1")
		written := text(t, admin, "SELECT @@gtid_binlog_pos")
		if number(t, other, fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s')", written)) != 0 {
			t.Fatal("the replica does not follow")
		}
		run(t, other, "STOP SLAVE")
		run(t, other, "SET GLOBAL read_only = 0")
	}}
}

// text returns what a statement answers.
func text(t testing.TB, db *sql.DB, query string) (s string) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), query).Scan(&s))
	return s
}

// fill has a pool keep idle connections.
func fill(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	var all []*sql.Conn
	for range n {
		c, err := db.Conn(t.Context())
		must(t, err)
		all = append(all, c)
	}
	for _, c := range all {
		must(t, c.Close())
	}
}

// takenOver are calls after another server took over, by a driver that held one key before, of which another is free now.
var takenOver = map[string]func(t *testing.T, s *Server, held contend.Owner, free string){
	"Try": func(t *testing.T, s *Server, held contend.Owner, _ string) { granted(t, s, request("new"+held.Key)) },
	"shared Try": func(t *testing.T, s *Server, held contend.Owner, _ string) {
		r := request("new" + held.Key)
		r.Mode = driver.Shared
		granted(t, s, r)
	},
	"queued Try": func(t *testing.T, s *Server, _ contend.Owner, free string) { granted(t, s, queued(request(free))) },
	"Renew": func(t *testing.T, s *Server, held contend.Owner, _ string) {
		renewed(t, s, held)
	},
	"Release": func(t *testing.T, s *Server, held contend.Owner, _ string) {
		must(t, contend.Release(t.Context(), s, held))
	},
	"Inspect": func(t *testing.T, s *Server, _ contend.Owner, free string) {
		if info, err := s.Inspect(t.Context(), free); err != nil || info.Held {
			t.Errorf("it says of a key that is free: %+v, %v", info, err)
		}
	},
}

// Rule: when another server takes over behind the address, the connections to the old one, which stand, are used for
// nothing: each request is carried out at once, and nothing is read of the old one. Where there is no other, a
// request ends with few connections.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	for name, start := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			used, drivers := map[string]contend.Owner{}, map[string]*Server{}
			for what := range takenOver {
				db := p.pool(t)
				db.SetConnMaxIdleTime(0)
				db.SetMaxOpenConns(8) // so that one is kept for renewals
				s, held := p.wrap(db), request(what)
				held.TTL = time.Hour // it is renewed once the others have begun, and the servers have turned
				t.Cleanup(func() { must(t, s.Close()) })
				granted(t, s, held)
				free := request("free " + what)
				granted(t, s, free)
				fill(t, db, 5)
				used[what], drivers[what] = free, s
				used["held "+what] = held
			}
			p.turn()
			old := p.address.Target()
			p.address.Retarget(p.next)
			after := p.wrap(p.pool(t))
			for what, call := range takenOver {
				must(t, contend.Release(t.Context(), after, used[what]))
				t.Run(what, func(t *testing.T) { call(t, drivers[what], used["held "+what], used[what].Key) })
			}
			p.address.Retarget(old)
			db := p.pool(t)
			fill(t, db, 5)
			s := p.wrap(db)
			var first, last atomic.Int64
			p.address.Hook(func(c faultproxy.Chunk) bool {
				first.CompareAndSwap(0, int64(c.Conn))
				last.Store(max(last.Load(), int64(c.Conn)))
				return false
			})
			_, err := contend.Try(t.Context(), s, request("none"))
			p.address.Hook(nil)
			if s.Classify(err) != driver.ClassReadOnly || !driver.IsNotSent(err) {
				t.Errorf("%v (class %d)", err, s.Classify(err))
			}
			if n := last.Load() - first.Load(); n > 5 {
				t.Errorf("it took %d connections", n)
			}
		})
	}
}
