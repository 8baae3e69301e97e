// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
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

	redisson bool // the locks are in Redisson's layout, not in hasp's own
	kind     redisson.Kind
	watchdog time.Duration // Redisson's lockWatchdogTimeout; 0: its default
}

// layoutParameters say in whose layout the locks are.
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
	r.tls = tlsFiles{}
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

// tlsFiles are the parameters that are in force; none without TLS.
func (r *redisServers) tlsFiles() tlsFiles {
	if r.nodes[0].TLSConfig == nil {
		return tlsFiles{}
	}
	return r.tls.inForce()
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

func (r *redisServers) secrets() (some, password bool) {
	o := r.nodes[0]
	return o.Username != "" || o.Password != "", o.Password != ""
}

func (*redisServers) inherited(string) string { return "" }

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

// NodeTimeout is how long each server of redlock: may take to answer; 0: as package
// quorum has it. Tests set it, since a machine that is busy with other tests is
// silent for longer than a lock should wait.
var NodeTimeout time.Duration

func (r *redisServers) open(now func() place) (*Store, error) {
	logging.Disable() // what matters comes back as an error
	s := &Store{Searches: true, Replicas: r.replicas, Redisson: r.redisson, kind: r.about(len(r.nodes)), NoMessages: r.noMessages()}
	files := r.tlsFiles()
	if err := files.check(); err != nil {
		return nil, err
	}
	var nodes []driver.Node
	for _, o := range r.nodes {
		node := options(*o)
		node.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
			o := now().(*redisServers).nodes[0] //nolint:forcetypeassert // as place.open says; the nodes have one password
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
		rdb := redis.NewClient(node)
		drv := r.driver(rdb)
		if n, ok := drv.(driver.Node); ok {
			nodes = append(nodes, n)
		}
		s.Servers = append(s.Servers, Server{
			Name: o.Addr, Driver: drv, disconnect: rdb.Close,
			Look: func(ctx context.Context) doctor.Facts { return doctor.Look(ctx, rdb, r.rights()) },
		})
	}
	s.Driver = s.Servers[0].Driver
	if r.majority {
		s.kind.Dangers += ", all on nodes that vote"
		o := &quorum.Options{Names: r.names(), NodeTimeout: NodeTimeout}
		var unfit error
		o.StateDir, unfit = StateDir()
		o.StateFailed = func(err error) {
			if s.StateFailed != nil {
				s.StateFailed(cmp.Or(unfit, err))
			}
		}
		s.Driver = quorum.New(nodes, o)
	}
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
	// the name is only for whoever reads CLIENT LIST.
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		_ = cn.ClientSetName(ctx, "hasp").Err()
		return nil
	}
	return &o
}

func (r *redisServers) byHand(node int, statement string) string {
	o := r.nodes[node]
	cli := []string{"redis-cli"}
	if o.Network == "unix" {
		cli = append(cli, "-s", o.Addr)
	} else if host, port, err := net.SplitHostPort(o.Addr); err == nil {
		cli = append(cli, "-h", host, "-p", port)
	}
	if o.TLSConfig != nil {
		cli = append(cli, r.tlsFiles().redisCLI()...)
	}
	if o.Username != "" {
		cli = append(cli, "--user", o.Username)
	}
	if o.DB != 0 {
		cli = append(cli, "-n", strconv.Itoa(o.DB))
	}
	return redisCLI(shell.Join(cli...), statement)
}

// redisCLI is redis-cli with its options, and a statement for it.
func redisCLI(cli, statement string) string {
	if words, ok := plainWords(statement); ok {
		return cli + " " + shell.Join(words...)
	}
	// What has bytes that a shell cannot carry goes through standard input,
	// where redis-cli reads its own escapes.
	return shell.Join("printf", `%s\n`, statement) + " | " + cli
}

// redisCLI are the options of redis-cli for a server with TLS.
func (t tlsFiles) redisCLI() []string {
	cli := []string{"--tls"}
	for _, flag := range [][2]string{{"--cacert", "tls-ca"}, {"--cert", "tls-cert"}, {"--key", "tls-key"}, {"--sni", "tls-server-name"}} {
		if value := t[flag[1]]; value != "" {
			cli = append(cli, flag[0], value)
		}
	}
	return cli
}

func (r *redisServers) remarks() []string {
	var all []string
	if _, password := r.secrets(); password {
		all = append(all, "set REDISCLI_AUTH to the password first")
	}
	if r.majority {
		all = append(all, "the same on the other nodes: "+strings.Join(r.names()[1:], ", "))
	}
	return all
}

// plainWords splits a statement into words, and undoes quotes around text
// without escapes.
func plainWords(statement string) ([]string, bool) {
	var words []string
	for statement != "" {
		if statement[0] != '"' {
			word, rest, _ := strings.Cut(statement, " ")
			if strings.ContainsAny(word, `"'\`) {
				return nil, false
			}
			words, statement = append(words, word), rest
			continue
		}
		word, rest, ok := strings.Cut(statement[1:], `"`)
		if !ok || strings.ContainsAny(word, `\`) || rest != "" && rest[0] != ' ' {
			return nil, false
		}
		words, statement = append(words, word), strings.TrimPrefix(rest, " ")
	}
	return words, true
}
