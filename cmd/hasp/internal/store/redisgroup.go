// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/plain"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// redisGroup is Redis with replicas: a master that Sentinels watch, or a cluster.
type redisGroup struct {
	*hosts
	redisKeys
	master   string // as its Sentinels call it; empty for a cluster
	user     string // of Redis
	password string // of Redis

	sentinelUser, sentinel string // and password: of the Sentinels
	db                     int
}

// parseSentinel reads what follows "redis+sentinel:" or "rediss+sentinel:".
func parseSentinel(scheme, rest string) (*URL, error) {
	u, g, values, err := parseGroup(scheme, rest, "26379", "max-ttl", "user", "sentinel-user", "sentinel-password")
	if err != nil {
		return nil, err
	}
	if g.master = g.hosts.user; g.master == "" {
		return nil, fmt.Errorf("the store's URL does not say how the Sentinels call the master: %s://NAME@HOST[:PORT],HOST[:PORT]", scheme)
	}
	g.user, g.sentinelUser, g.sentinel = values.Get("user"), values.Get("sentinel-user"), values.Get("sentinel-password")
	if g.sentinelUser != "" && g.sentinel == "" {
		return nil, errors.New("sentinel-user= in the store's URL needs sentinel-password=")
	}
	if g.user != "" && g.password == "" {
		return nil, fmt.Errorf("user= in the store's URL needs a password: %s://NAME:PASSWORD@HOST", scheme)
	}
	if g.path != "" {
		if g.db, err = strconv.Atoi(g.path); err != nil || g.db < 0 {
			return nil, errors.New("the database in the store's URL is not a number")
		}
	}
	return u, g.checkTTL(u.TTL)
}

// parseCluster reads what follows "redis+cluster:" or "rediss+cluster:".
func parseCluster(scheme, rest string) (*URL, error) {
	u, g, _, err := parseGroup(scheme, rest, "6379")
	if err != nil {
		return nil, err
	}
	if g.user = g.hosts.user; g.user != "" && g.password == "" {
		return nil, fmt.Errorf("the store's URL has a user without a password: a password alone is written with a colon, %s://:PASSWORD@HOST", scheme)
	}
	if g.path != "" && g.path != "0" {
		return nil, errors.New("the store's URL names a database, and a Redis Cluster has only database 0")
	}
	return u, g.checkTTL(u.TTL)
}

func parseGroup(scheme, rest, port string, more ...string) (*URL, *redisGroup, url.Values, error) {
	h, query, err := parseHosts(scheme, rest, port)
	if err != nil {
		return nil, nil, nil, err
	}
	u, g := &URL{}, &redisGroup{hosts: h, password: h.password}
	u.place = g
	known := slices.Concat([]string{"prefix", "replicas"}, more, layoutParameters)
	if g.secure() {
		known = append(known, slices.Sorted(maps.Keys(envTLS))...)
	}
	values, err := u.parameters(query, known...)
	if err == nil {
		err = g.parameters(values)
	}
	return u, g, values, err
}

func (g *redisGroup) secure() bool { return strings.HasPrefix(g.scheme, "rediss") }

func (g *redisGroup) secrets() (some, password bool) {
	password = g.password != "" || g.sentinel != ""
	return password || g.user != "" || g.sentinelUser != "", password
}

func (*redisGroup) inherited(string) string { return "" }

func (g *redisGroup) String() string {
	if g.master == "" {
		return fmt.Sprintf("%s://%s", g.scheme, strings.Join(g.addrs, ","))
	}
	return fmt.Sprintf("%s://%s@%s/%d", g.scheme, url.PathEscape(g.master), strings.Join(g.addrs, ","), g.db)
}

// options are those of a client of one server; Addr is not set.
func (g *redisGroup) options() (*redis.Options, error) {
	o := redis.Options{Username: g.user, Password: g.password, DB: g.db}
	if g.secure() {
		files := g.tls.inForce()
		err := files.check()
		if err == nil {
			o.TLSConfig, err = files.configure(&tls.Config{MinVersion: tls.VersionTLS12})
		}
		if err != nil {
			return nil, err
		}
	}
	o.Dialer = g.seen.redisDialer(o.TLSConfig)
	return options(o), nil
}

func (g *redisGroup) open(now func() place) (*Store, error) {
	logging.Disable() // what matters comes back as an error
	o, err := g.options()
	if err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
		g := now().(*redisGroup) //nolint:forcetypeassert // as place.open says
		return g.user, g.password, nil
	}
	if g.master == "" {
		return g.openCluster(o), nil
	}
	o.OnConnect = g.logIn(now, o.OnConnect)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: g.master, SentinelAddrs: g.addrs,
		CredentialsProviderContext: o.CredentialsProviderContext, DB: o.DB, Dialer: o.Dialer, OnConnect: o.OnConnect,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
	})
	s := &Store{Searches: true, Replicas: g.replicas, Redisson: g.redisson, kind: g.about(1), NoMessages: g.noMessages()}
	s.Driver = g.driver(rdb)
	s.Examine = func(ctx context.Context) []driver.Finding { return g.sentinels(ctx, o, s.Classify) }
	found := "" // the address of the master, once Look has asked for it
	s.Servers = []Server{{
		Name: g.master, Driver: s.Driver, disconnect: rdb.Close,
		Look: func(ctx context.Context) doctor.Facts {
			found = g.find(ctx, o)
			return doctor.Look(ctx, rdb, g.rights())
		},
		ByHand: func(statement string) string {
			if found == "" {
				return g.byHand(0, statement)
			}
			return redisCLI(g.cli("redis-cli "+at(found)), statement)
		},
	}}
	return s, nil
}

// ofTheMaster is in the text of go-redis's connections to the master that Sentinels name.
const ofTheMaster = "FailoverClient"

// logIn logs in to a Sentinel with the password of by then: go-redis asks nothing for that.
func (g *redisGroup) logIn(now func() place, then func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	if g.sentinel == "" {
		return then
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		if !strings.Contains(cn.String(), ofTheMaster) && redis.HasErrorPrefix(cn.Ping(ctx).Err(), "NOAUTH") {
			g := now().(*redisGroup) //nolint:forcetypeassert // as place.open says
			login := cn.Auth(ctx, g.sentinel)
			if g.sentinelUser != "" {
				login = cn.AuthACL(ctx, g.sentinelUser, g.sentinel)
			}
			if err := login.Err(); err != nil {
				return err
			}
		}
		return then(ctx, cn)
	}
}

// watching returns a client of one Sentinel.
func (g *redisGroup) watching(addr string, o *redis.Options) *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{
		Addr: addr, OnConnect: o.OnConnect, Dialer: o.Dialer, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
	})
}

const checkSentinels = "Check sentinel-user= and sentinel-password= in the store's URL: the Sentinels have a login of their own"

// login is what to check after a login that was refused.
func (g *redisGroup) login(err error) string {
	switch {
	case g.master == "":
		return checkLogin
	case errors.As(err, new(*redisdriver.SentinelsError)):
		return checkSentinels
	}
	return "It is that of Redis, not of the Sentinels: check NAME:PASSWORD@ and user= in the store's URL"
}

// sentinels asks each Sentinel which master it knows, and whether they could promote another.
func (g *redisGroup) sentinels(ctx context.Context, o *redis.Options, classify func(error) driver.Class) []driver.Finding {
	answers := make([]driver.Finding, len(g.addrs))
	masters := make([]string, len(g.addrs))
	var asked sync.WaitGroup
	for i, addr := range g.addrs {
		asked.Go(func() {
			one := g.watching(addr, o)
			defer one.Close() // it was only asked
			f := driver.Finding{Level: driver.LevelWarn, Check: "sentinel"}
			at, err := one.GetMasterAddrByName(ctx, g.master).Result()
			if err == nil && len(at) == 2 {
				masters[i] = net.JoinHostPort(at[0], at[1])
				err = one.CkQuorum(ctx, g.master).Err()
			}
			switch {
			case err == nil:
				f.Level, f.Text = driver.LevelOK, fmt.Sprintf("the Sentinel %s knows the master as %s, and enough of them to promote another", addr, masters[i])
			case masters[i] != "":
				f.Text = fmt.Sprintf("the Sentinel %s knows the master as %s, but if that dies, none is promoted: %s", addr, masters[i], doctor.Said(err))
			case errors.Is(err, redis.Nil):
				f.Text = fmt.Sprintf("the Sentinel %s knows no master by the name %s: have it monitor that, or leave it out of the store's URL", addr, g.master)
			case classify(err) == driver.ClassLogin:
				f.Text = fmt.Sprintf("the Sentinel %s refused the login: %s. %s", addr, plain.Error(err), checkSentinels)
			default:
				f.Text = fmt.Sprintf("the Sentinel %s %s", addr, g.seen.unserved(addr, err))
			}
			answers[i] = f
		})
	}
	asked.Wait()
	found := slices.Clone(answers)
	masters = slices.DeleteFunc(masters, func(m string) bool { return m == "" })
	slices.Sort(masters)
	if masters = slices.Compact(masters); len(masters) > 1 {
		found = append(found, driver.Finding{Level: driver.LevelWarn, Check: "sentinel", Text: fmt.Sprintf("the Sentinels know different masters (%s): while "+
			"clients use both, there can be two holders. A failover takes seconds; if this stays, some of them watch another master", strings.Join(masters, ", "))})
	}
	return found
}

// find asks the Sentinels for the address of the master; "": none of them said it.
func (g *redisGroup) find(ctx context.Context, o *redis.Options) string {
	for _, addr := range g.addrs {
		one := g.watching(addr, o)
		at, err := one.GetMasterAddrByName(ctx, g.master).Result()
		_ = one.Close() // it was only asked
		if err == nil && len(at) == 2 {
			return net.JoinHostPort(at[0], at[1])
		}
	}
	return ""
}

func (g *redisGroup) openCluster(o *redis.Options) *Store {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: g.addrs, CredentialsProviderContext: o.CredentialsProviderContext, Dialer: o.Dialer, OnConnect: o.OnConnect,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
	s := &Store{Searches: true, Replicas: g.replicas, Redisson: g.redisson, kind: g.about(0), NoMessages: g.noMessages(), disconnect: rdb.Close}
	s.Driver = g.driver(rdb)
	needed := g.rights()
	needed.Cluster = true
	s.Masters = func(ctx context.Context) (all []Server, err error) {
		var mu sync.Mutex
		err = rdb.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, Server{
				Name: one.Options().Addr, Driver: s.Driver,
				Look:   func(ctx context.Context) doctor.Facts { return doctor.Look(ctx, one, needed) },
				ByHand: func(statement string) string { return redisCLI(g.cli("redis-cli "+at(one.Options().Addr)), statement) },
			})
			return nil
		})
		slices.SortFunc(all, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
		return all, err
	}
	return s
}

// byHand has redis-cli follow a cluster's redirections, and leaves a master that Sentinels know to what
// remarks tell.
func (g *redisGroup) byHand(_ int, statement string) string {
	if g.master != "" {
		return redisCLI(g.cli(`redis-cli -h "$1" -p "$2"`), statement)
	}
	return redisCLI(g.cli("redis-cli -c "+at(g.addrs[0])), statement)
}

// at are the options of redis-cli for an address.
func at(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return shell.Join("-h", addr)
	}
	return shell.Join("-h", host, "-p", port)
}

// cli adds the options of redis-cli that all servers have in common.
func (g *redisGroup) cli(text string) string {
	var cli []string
	if g.secure() {
		cli = append(cli, g.tls.inForce().redisCLI()...)
	}
	if g.user != "" {
		cli = append(cli, "--user", g.user)
	}
	if g.db != 0 {
		cli = append(cli, "-n", strconv.Itoa(g.db))
	}
	if len(cli) == 0 {
		return text
	}
	return text + " " + shell.Join(cli...)
}

func (g *redisGroup) remarks() []string {
	var all []string
	if g.master != "" {
		find := []string{"redis-cli"}
		if g.secure() {
			find = append(find, g.tls.inForce().redisCLI()...)
		}
		if g.sentinelUser != "" {
			find = append(find, "--user", g.sentinelUser)
		}
		if g.sentinel != "" {
			all = append(all, "set REDISCLI_AUTH to the Sentinels' password first")
		}
		all = append(all, "find the master first: set -- $("+
			redisCLI(shell.Join(find...)+" "+at(g.addrs[0]), shell.Join("SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.master))+")")
	}
	if g.password != "" {
		all = append(all, "then set REDISCLI_AUTH to the password of Redis")
	}
	return all
}
