// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package engines starts the servers of the engines other than Redis, connects drivers to them through links that can be cut, and
// cuts every operation at every step: see Sweep. The schedules of package campaign run on the same stores.
package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/etcddriver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/open"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/hasplock/hasp/zkdriver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Kind is a kind of store.
type Kind string

// The kinds of store.
const (
	Etcd       Kind = "etcd"
	Etcd3      Kind = "etcd, three members"
	ZooKeeper  Kind = "ZooKeeper"
	ZooKeeper3 Kind = "ZooKeeper, three servers"
	Postgres   Kind = "PostgreSQL"
	MariaDB    Kind = "MariaDB"
	SQLite     Kind = "SQLite"
	Redis      Kind = "Redis"
	Redlock    Kind = "Redlock" // over three Redis

	// Redis with replicas, as it is; with a node record, and min-replicas-to-write; and with all replicas confirming each lease.
	Sentinel         Kind = "Redis Sentinel"
	SentinelRecord   Kind = "Redis Sentinel, node record"
	SentinelReplicas Kind = "Redis Sentinel, replicas confirm"
	Cluster          Kind = "Redis Cluster"
	ClusterReplicas  Kind = "Redis Cluster, replicas confirm"
	SentinelRueidis  Kind = SentinelReplicas + ", over rueidis"
	ClusterRueidis   Kind = ClusterReplicas + ", over rueidis"
)

// Kinds are the kinds that are not of Redis.
var Kinds = []Kind{Etcd, Etcd3, ZooKeeper, ZooKeeper3, Postgres, MariaDB, SQLite}

// Replicated are the kinds of Redis with replicas.
var Replicated = []Kind{Sentinel, SentinelRecord, SentinelReplicas, SentinelRueidis, Cluster, ClusterReplicas, ClusterRueidis}

// Confirming says how many replicas confirm each lease.
func (k Kind) Confirming() int {
	return map[Kind]int{SentinelReplicas: 2, SentinelRueidis: 2, ClusterReplicas: 1, ClusterRueidis: 1}[k]
}

// IsCluster reports whether it is a Redis Cluster.
func (k Kind) IsCluster() bool { return k == Cluster || k == ClusterReplicas || k == ClusterRueidis }

// RecordTTL is the largest TTL of a node record here.
const RecordTTL = 2 * time.Second

// Session is the time-out of the sessions of ZooKeeper here: a lease lasts for two thirds of it at most.
const Session = RecordTTL * 3 / 2

// Servers returns how many there are; 0: a file.
func (k Kind) Servers() int { return k.engine().servers }

// Lingers returns for how much longer than a TTL a key may be held by no client, as docs/stores says: the store keeps what no
// client renews, or is held back after a failover.
func (k Kind) Lingers() time.Duration { return k.engine().lingers }

// Tells reports whether the driver hears by itself that a lease is over.
func (k Kind) Tells() bool { return k.engine().tells }

// engine is what differs between kinds. start gives its servers env, such as a testserver.Clock's, where they take it.
type engine struct {
	servers int
	lingers time.Duration
	tells   bool
	start   func(s *Store, env []string)
	open    func(addrs []string, ttl time.Duration) (*Conn, error)
}

// etcdLingers: newcomers share leases of a second more, and etcd looks every half second.
const etcdLingers = 2 * time.Second

func (k Kind) engine() engine {
	switch k {
	case Etcd:
		return engine{1, etcdLingers, true, one(func(t testing.TB, _ []string, _ ...string) *testserver.Server { return testserver.Etcd(t, quick...) }), openEtcd}
	case Etcd3:
		return engine{3, etcdLingers, true, startEtcds, openEtcd}
	case ZooKeeper: // a session's time-out counts from the last ping, and a server rounds it up
		return engine{1, Session, true, one(testserver.ZooKeeperIn), openZooKeeper}
	case ZooKeeper3:
		return engine{3, Session, true, startZooKeepers, openZooKeeper}
	case Postgres:
		return engine{1, 0, false, one(testserver.PostgresIn), openPostgres}
	case MariaDB:
		return engine{1, 0, false, one(testserver.MariaDBIn), openMariaDB}
	case SQLite:
		return engine{0, 0, false, startFile, openSQLite}
	case Redis:
		return engine{1, 0, false, one(testserver.RedisIn), openRedis}
	case Redlock:
		return engine{3, 0, false, startRedises, openRedlock}
	}
	e := engine{6, 0, false, startGroup, k.openReplicated} // a master, two replicas, three Sentinels; or three of each
	if k == SentinelRecord {
		e.lingers = admission.Wait(RecordTTL)
	}
	return e
}

// Conn is a driver with the connections that it uses.
type Conn struct {
	driver.Driver
	Disconnect func() error // closes the connections alone, of a driver that is closed elsewhere
}

// Close closes both.
func (c *Conn) Close() error { return errors.Join(c.Driver.Close(), c.Disconnect()) }

// Client is a hasp.Client with the connections that it uses.
type Client struct {
	*hasp.Client
	conn *Conn
}

// Client makes a client of the driver, which is closed where that fails.
func (c *Conn) Client(o *hasp.Options) (*Client, error) {
	locks, err := hasp.New(c.Driver, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Client{locks, c}, nil
}

// Close closes both.
func (c *Client) Close() error { return errors.Join(c.Client.Close(), c.conn.Disconnect()) }

// Admit admits the new servers of a node record on behalf of the operator, and closes the connection.
func (c *Conn) Admit(ctx context.Context) error {
	locks, err := c.Client(nil)
	if err != nil {
		return err
	}
	return errors.Join(locks.Operator().Admit(ctx), locks.Close())
}

const (
	// dialLimit bounds a connect, above what it takes on a busy machine.
	dialLimit = 2 * time.Second
	// maxConns is how many connections a client has to a database.
	maxConns = 8
	// electionTimeout is that of every etcd here, so that leases can be short.
	electionTimeout = 500 * time.Millisecond
)

// Open connects a driver as a program would. addrs are the servers', or links to them; of SQLite,
// the file's; of Redis with replicas, what Through returned.
func Open(k Kind, addrs []string) (*Conn, error) { return OpenFor(k, addrs, RecordTTL) }

// OpenFor is Open for leases of another TTL, which counts for the sessions of ZooKeeper.
func OpenFor(k Kind, addrs []string, ttl time.Duration) (*Conn, error) {
	return k.engine().open(addrs, ttl)
}

func openEtcd(addrs []string, _ time.Duration) (*Conn, error) {
	client, err := connectEtcd(addrs)
	if err != nil {
		return nil, err
	}
	return &Conn{etcddriver.New(client, &etcddriver.Options{ElectionTimeout: electionTimeout}), client.Close}, nil
}

func connectEtcd(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: dialLimit,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: dialLimit, PermitWithoutStream: true, // as etcddriver advises
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: dialLimit,
		})},
	})
}

func openZooKeeper(addrs []string, ttl time.Duration) (*Conn, error) {
	c := zkdriver.Connect(addrs, &zkdriver.ConnOptions{SessionTimeout: ttl * 3 / 2})
	return &Conn{zkdriver.New(c, nil), c.Close}, nil
}

func openSQLite(addrs []string, _ time.Duration) (*Conn, error) { return ByURL("sqlite:" + addrs[0]) }

// ByURL is for engines with which nothing but the URL matters. The others' clients are set up as programs do it by hand, or for
// elections and sessions that are shorter than any user's. The driver's Close ends its connections.
func ByURL(url string) (*Conn, error) {
	d, err := open.Driver(context.Background(), url)
	return &Conn{d, func() error { return nil }}, err
}

func openRedis(addrs []string, _ time.Duration) (*Conn, error) { return ByURL("redis://" + addrs[0]) }

func openRedlock(addrs []string, _ time.Duration) (*Conn, error) {
	return ByURL("redlock://" + strings.Join(addrs, ",") + "?max-ttl=1m")
}

func openPostgres(addrs []string, _ time.Duration) (*Conn, error) { return ByURL(postgres(addrs[0])) }

func postgres(addr string) string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=2", addr)
}

// OpenPostgres is Open over a pool that sends its statements in this mode.
func OpenPostgres(addr string, mode pgx.QueryExecMode) (*Conn, error) {
	config, err := pgx.ParseConfig(postgres(addr))
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = mode
	db := stdlib.OpenDB(*config, stdlib.OptionShouldPing(pgxlisten.ShouldPing))
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	return &Conn{sqldriver.NewPostgres(db, &sqldriver.PostgresOptions{Listener: pgxlisten.New(config)}), db.Close}, nil
}

// database is what MariaDB's is called.
const database = "locks"

func openMariaDB(addrs []string, _ time.Duration) (*Conn, error) {
	return ByURL("mysql://root@" + addrs[0] + "/" + database)
}

// openMySQL connects to what need not be there yet.
func openMySQL(addr, name string) (*sql.DB, error) {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", addr, name
	c.Timeout, c.Logger = dialLimit, &mysql.NopLogger{} // connections that are cut are no news
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// initialize makes the tables of a database.
func initialize(ctx context.Context, k Kind, addr string) error {
	if k == MariaDB {
		db, err := openMySQL(addr, "")
		if err != nil {
			return err
		}
		defer db.Close()
		if _, err := db.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
			return err
		}
	}
	c, err := Open(k, []string{addr})
	if err != nil {
		return err
	}
	return errors.Join(c.Driver.(interface{ Init(context.Context) error }).Init(ctx), c.Close())
}
