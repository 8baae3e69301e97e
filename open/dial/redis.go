// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisServers are those of Redis: one, or several of which a majority grants a lock.
type redisServers struct {
	nodes    []*redis.Options
	majority bool
	seen     *sights
	redisKeys
}

// redisKeys are the parameters that all URLs of Redis have.
type redisKeys struct {
	prefix   string // of keys
	noPrefix bool
	maxTTL   time.Duration // 0: no node record
	replicas int           // that must confirm a lease
	tls      tlsFiles      // of the URL alone
	params   url.Values

	redisson bool // the locks are in Redisson's layout, not in hasp's own
	kind     redisson.Kind
	watchdog time.Duration // Redisson's lockWatchdogTimeout; 0: its default
}

// layoutParameters say in which layout the locks are.
var layoutParameters = []string{"layout", "kind", "lock-watchdog-timeout"}

// parseRedis reads a whole URL of Redis. What url.Parse and redis.ParseURL
// complain of is not repeated: they quote the URL.
func parseRedis(scheme, rest string) (*URL, error) {
	text := scheme + ":" + rest
	if _, whole, ok := strings.Cut(text, "://"); ok && !strings.HasPrefix(text, "unix:") {
		if err := checkPort(whole); err != nil {
			return nil, err
		}
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Opaque != "" || !strings.HasPrefix(text, parsed.Scheme+"://") {
		if question := meant(text); question != "" {
			return nil, errors.New("the store's URL cannot be read" + question)
		}
		return nil, errors.New("the store's URL cannot be read; in a password, write characters with a meaning in a URL with %")
	}
	if parsed.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, errors.New("the store's URL has a # in it: write %23 when it belongs to the password")
	}
	if _, has := parsed.User.Password(); parsed.User.Username() != "" && !has {
		return nil, errors.New("the store's URL has a user without a password: a password alone is written with a colon, redis://:PASSWORD@HOST")
	}
	u, r := &URL{}, &redisServers{seen: &sights{scheme: scheme}}
	u.place = r
	values, err := u.parameters(parsed.RawQuery, slices.Concat([]string{"prefix", "db", "max-ttl", "replicas"}, layoutParameters, slices.Sorted(maps.Keys(envTLS)))...)
	if err != nil {
		return nil, err
	}
	if err := r.parameters(values); err != nil {
		return nil, err
	}
	db := values.Get("db")
	if parsed.Scheme == "unix" {
		if parsed.Host != "" || parsed.Path == "" {
			return nil, errors.New("after unix:// comes the whole path of the socket: unix:///PATH/TO/SOCKET")
		}
	} else if name := strings.Trim(parsed.Path, "/"); name != "" && db == "" {
		db = name
	} else if name != "" && name != db {
		return nil, errors.New("the store's URL names two databases: /N and db=N")
	}
	if db != "" {
		if n, err := strconv.Atoi(db); err != nil || n < 0 {
			return nil, errors.New("the database in the store's URL is not a number")
		}
		parsed.RawQuery = "db=" + db
	} else {
		parsed.RawQuery = ""
	}
	if parsed.Scheme != "unix" {
		parsed.Path = ""
	}
	o, err := redis.ParseURL(parsed.String())
	if err != nil {
		return nil, errors.New("the store's URL cannot be read as a Redis address")
	}
	if len(r.tls) > 0 && o.TLSConfig == nil {
		return nil, errors.New("the store's URL has parameters of TLS (tls-…=), and does not ask for TLS: write rediss: (redlocks:)")
	}
	r.nodes = []*redis.Options{o}
	return u, r.checkTTL(u.TTL)
}

// minMaxTTL is the least that max-ttl may be. Less wins nothing: a server that was
// restarted is held back for ten seconds more than that.
const minMaxTTL = time.Second

// parameters takes those that only Redis has.
func (r *redisKeys) parameters(values url.Values) (err error) {
	if values.Has("max-ttl") {
		r.maxTTL, err = time.ParseDuration(values.Get("max-ttl"))
		if err != nil || r.maxTTL < minMaxTTL {
			return fmt.Errorf("max-ttl= in the store's URL is not a duration of at least %v, such as 30s", minMaxTTL)
		}
	}
	if values.Has("replicas") {
		r.replicas, err = strconv.Atoi(values.Get("replicas"))
		if err != nil || r.replicas < 0 {
			return errors.New("replicas= in the store's URL is not the number of replicas that must confirm a lock, such as 2")
		}
	}
	r.params, r.tls = values, tlsFiles{}
	r.tls.take(values)
	r.prefix = values.Get("prefix")
	r.noPrefix = values.Has("prefix") && r.prefix == ""
	return r.takeLayout(values)
}

// checkTTL refuses a default TTL that no node would grant, and what a node does not do.
func (r *redisKeys) checkTTL(ttl time.Duration) error {
	if r.replicas > 0 && r.maxTTL > 0 {
		return errors.New("the store's URL has replicas=, and a longest TTL (max-ttl=, or redlock:). These are two answers to the same fault: with a " +
			"longest TTL, a server grants nothing for a while after it was promoted. Choose one of them")
	}
	if most := r.longest(); most > 0 && ttl > most {
		return fmt.Errorf("ttl=%v in the store's URL is longer than %v, Redisson's lockWatchdogTimeout: lower ttl, or raise both in every program "+
			"(lock-watchdog-timeout= in the URL)", ttl, most)
	}
	if r.maxTTL > 0 && ttl > r.maxTTL {
		return fmt.Errorf("ttl=%v in the store's URL is longer than max-ttl=%v, the longest lease that a server grants: lower ttl, or raise max-ttl on every client",
			ttl, r.maxTTL)
	}
	return nil
}

// driver returns the engine for these keys.
func (r *redisKeys) driver(rdb redis.UniversalClient) driver.Driver {
	o := &redisdriver.Options{Prefix: r.prefix, NoPrefix: r.noPrefix, Replicas: r.replicas}
	switch {
	case r.redisson:
		return redisson.New(rdb, &redisson.Options{Kind: r.kind, LockWatchdogTimeout: r.watchdog, Prefix: r.prefix})
	case r.maxTTL > 0:
		return redisdriver.NewNode(rdb, r.maxTTL, o)
	}
	return redisdriver.New(rdb, o)
}

// names are what the nodes are called: their addresses.
func (r *redisServers) names() []string {
	names := make([]string, len(r.nodes))
	for i, o := range r.nodes {
		names[i] = o.Addr
	}
	return names
}

func (r *redisServers) sights() *sights { return r.seen }

func (r *redisServers) parts() Parts {
	o := r.nodes[0]
	p := Parts{Kind: Redis, Addrs: r.names(), User: o.Username, Password: o.Password != "", Database: strconv.Itoa(o.DB), Params: r.params}
	if r.majority {
		p.Kind = Redlock
	}
	if o.TLSConfig != nil {
		p.TLS = r.tls.inForce()
	}
	return p
}

func (r *redisServers) String() string {
	first := r.nodes[0]
	if first.Network == "unix" {
		return fmt.Sprintf("unix://%s?db=%d", first.Addr, first.DB)
	}
	scheme := "redis"
	if r.majority {
		scheme = "redlock"
	}
	if first.TLSConfig != nil {
		scheme += "s"
	}
	return fmt.Sprintf("%s://%s/%d", scheme, strings.Join(r.names(), ","), first.DB)
}

func (r *redisServers) open(how *opening) (*Store, error) {
	s := &Store{}
	files := r.tls.inForce()
	var nodes []voting.Node
	var disconnect []func() error
	for _, o := range r.nodes {
		node := options(*o)
		node.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
			o := how.latest().(*redisServers).nodes[0] //nolint:forcetypeassert // as place.open says; the nodes have one password
			return o.Username, o.Password, nil
		}
		if o.TLSConfig != nil {
			config, err := files.configure(o.TLSConfig)
			if err != nil {
				return nil, err
			}
			node.TLSConfig = config
		}
		node.Dialer = r.seen.redisDialer(node.TLSConfig)
		s.Dial = node.Dialer
		rdb := redis.NewClient(node)
		drv := r.driver(rdb)
		if n, ok := drv.(voting.Node); ok {
			nodes = append(nodes, n)
		}
		disconnect = append(disconnect, rdb.Close)
		s.Servers = append(s.Servers, Server{o.Addr, drv, rdb})
	}
	engine := s.Servers[0].Driver
	if r.majority {
		engine = quorum.New(nodes, &quorum.Options{
			Names: r.names(), NodeTimeout: how.NodeTimeout, StateDir: how.StateDir, StateFailed: how.StateFailed})
	}
	s.Driver = owning(engine, disconnect...)
	return s, nil
}

// limit bounds a dial, and one answer, so that a server that is gone is noticed well
// before a TTL is over.
const limit = 3 * time.Second

// options are those of a client for locks: it never asks twice by itself, since
// hasp does and knows how, and it keeps to the context.
func options(o redis.Options) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = limit, limit, limit
	o.PoolSize = 8
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// Not Options.ClientName: it fails where an ACL forbids CLIENT SETNAME, and
	// the name is only for a reader of CLIENT LIST.
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		_ = cn.ClientSetName(ctx, "hasp").Err()
		return nil
	}
	return &o
}
