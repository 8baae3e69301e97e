// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// seen is what stands between hasp and a lock: the store's URL, and what hasp says of it.
type seen struct {
	code int
	want string
	url  func(t *testing.T, s *sandbox) string
}

// What a message says of a store that does not serve is what was seen of it.
func TestWhatWasSeen(t *testing.T) {
	t.Parallel()
	for name, c := range seenCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, "")
			s.store = c.url(t, s)
			text, doctor := s.exits(c.code, "run", "-n", "k", "--", "true"), ""
			if strings.HasSuffix(name, " silent") {
				matches(t, s.exits(c.code, "ls"), `^hasp: the store \S+ `+c.want)
			} else if strings.HasSuffix(name, " half open") {
				p := s.hasp("doctor")
				p.ends(c.code)
				doctor = p.out.String()
			}
			if c.code != 0 {
				matches(t, text, `^hasp: the store \S+ `+c.want)
			}
			if strings.Contains(text, "hunter2") || strings.Contains(text, "context deadline") || strings.Contains(text, "..") || strings.Contains(text, "waiting") || strings.Contains(text, "?.") || strings.Contains(doctor, "hasp doctor") {
				t.Errorf("it says:\n%s%s", text, doctor)
			}
		})
	}
}

func proxied(change func(*faultproxy.Proxy), scheme, tail string, target func(*testing.T, *sandbox) string) func(*testing.T, *sandbox) string {
	return func(t *testing.T, s *sandbox) string {
		p := faultproxy.New(t, target(t, s))
		change(p)
		return scheme + p.Addr() + tail
	}
}

func silent(p *faultproxy.Proxy)   { p.Swallow(true, true) }
func refusing(p *faultproxy.Proxy) { p.Refuse() }
func mtu(p *faultproxy.Proxy)      { p.Hook(faultproxy.LosesLarge(600)) }
func slow(p *faultproxy.Proxy)     { p.Delay(9 * time.Second) }

// halfOpen lets the first answer of each connection through, and nothing after it.
func halfOpen(p *faultproxy.Proxy) {
	var mu sync.Mutex
	answered := map[int]bool{}
	p.Hook(func(c faultproxy.Chunk) bool {
		mu.Lock()
		defer mu.Unlock()
		was := answered[c.Conn]
		answered[c.Conn] = was || c.Dir == faultproxy.Down
		return was
	})
}

// shared returns the address of one server for all cases that do not change it.
func shared(t *testing.T, engine string, start func(testing.TB, ...string) *testserver.Server) func(*testing.T, *sandbox) string {
	addr := sync.OnceValue(func() string { return start(t).Addr() })
	return func(t *testing.T, _ *sandbox) string {
		testserver.Require(t, engine)
		return addr()
	}
}

func aPostgres(t *testing.T, _ *sandbox) string { return testserver.Postgres(t).Addr() }

// sentinels are a group whose Sentinels have carried these commands out.
func sentinels(t *testing.T, commands ...[]any) *testserver.RedisSentinel {
	group := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: 5 * time.Second})
	for _, one := range group.Sentinels {
		admin(t, one, redis.Options{}, commands...)
	}
	return group
}

// zkHello asks ZooKeeper for a session of a second.
const zkHello = "\x00\x00\x00\x2c" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x03\xe8" + "\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x10" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// held has n connections that a server has answered, the first byte of which is as it should be.
func held(t *testing.T, addr string, n int, greeting string, answer byte) {
	for n > 0 {
		c, err := net.Dial("tcp", addr)
		must(t, err)
		_, _ = io.WriteString(c, greeting) // what is refused cannot be read either
		b := make([]byte, 1)
		if _, err = io.ReadFull(c, b); err != nil || b[0] != answer { // the server still counts a connection that was closed
			_ = c.Close()
			continue
		}
		t.Cleanup(func() { _ = c.Close() })
		n--
	}
}

func seenCases(t *testing.T) map[string]seen {
	aRedis, anEtcd, aZooKeeper := shared(t, "redis", testserver.Redis), shared(t, "etcd", testserver.Etcd), shared(t, "zookeeper", testserver.ZooKeeper)
	aMariaDB := shared(t, "mariadb", testserver.MariaDB)
	return map[string]seen{
		"redis silent":       {69, `takes connections, and does not answer: .*Is it stopped or overloaded.*expect TLS\? Then the store's URL begins with rediss:$`, proxied(silent, "redis://", "", aRedis)},
		"redis closes":       {69, `closed the connection before its first answer(: .*reset.*)?\. Has it as many connections as it allows, or is it not Redis\?`, proxied(refusing, "redis://", "", aRedis)},
		"redis half open":    {69, `(answered, and then no more|takes connections, and does not answer): .*(Is it overloaded, or do large|Is it stopped or overloaded, or do) packets get lost`, proxied(halfOpen, "redis://", "", aRedis)},
		"redis mtu":          {69, `(answered, and then no more|takes connections, and does not answer): `, proxied(mtu, "redis://", "", aRedis)},
		"redis slow":         {69, `takes connections, and does not answer: `, proxied(slow, "redis://", "", aRedis)},
		"etcd silent":        {69, `takes connections, and does not answer: .*begins with etcds:$`, proxied(silent, "etcd://", "", anEtcd)},
		"etcd closes":        {69, `(closed the connection before its first answer|cannot be reached): `, proxied(refusing, "etcd://", "", anEtcd)},
		"etcd half open":     {69, `(answered, and then no more|takes connections, and does not answer): `, proxied(halfOpen, "etcd://", "", anEtcd)},
		"etcd slow":          {69, `takes connections, and does not answer: `, proxied(slow, "etcd://", "", anEtcd)},
		"zk silent":          {69, `takes connections, and does not answer: .*no answer in time\. .*hasp speaks none with ZooKeeper$`, proxied(silent, "zk://", "", aZooKeeper)},
		"zk closes":          {69, `(closed the connection before its first answer|cannot be reached): .*maxClientCnxns`, proxied(refusing, "zk://", "", aZooKeeper)},
		"zk half open":       {69, `(answered, and then no more|takes connections, and does not answer): `, proxied(halfOpen, "zk://", "", aZooKeeper)},
		"zk slow":            {69, `takes connections, and does not answer: .*no answer in time\. `, proxied(slow, "zk://", "", aZooKeeper)},
		"postgres silent":    {69, `takes connections, and does not answer: .*no answer in time\. .*has sslmode=require$`, proxied(silent, "postgres://postgres@", "/postgres?sslmode=disable", aPostgres)},
		"postgres closes":    {69, `(closed the connection before its first answer|cannot be reached): .*reset`, proxied(refusing, "postgres://postgres@", "/postgres", aPostgres)},
		"postgres half open": {69, `(answered, and then no more|takes connections, and does not answer): `, proxied(halfOpen, "postgres://postgres@", "/postgres?sslmode=disable", aPostgres)},
		"postgres slow":      {69, `takes connections, and does not answer: `, proxied(slow, "postgres://postgres@", "/postgres?sslmode=disable", aPostgres)},
		"postgres no tls": {69, `answers, but does not serve: .*server refused TLS connection$`, func(t *testing.T, s *sandbox) string {
			return "postgres://postgres@" + aPostgres(t, s) + "/postgres?sslmode=require"
		}},
		"mariadb silent":    {69, `takes connections, and does not answer: .*has tls=true$`, proxied(silent, "mysql://root@", "/mysql", aMariaDB)},
		"mariadb closes":    {69, `(closed the connection before its first answer|cannot be reached): `, proxied(refusing, "mysql://root@", "/mysql", aMariaDB)},
		"mariadb half open": {69, `(answered, and then no more|takes connections, and does not answer): `, proxied(halfOpen, "mysql://root@", "/mysql", aMariaDB)},
		"mariadb slow":      {69, `(answered, and then no more|takes connections, and does not answer): `, proxied(slow, "mysql://root@", "/mysql", aMariaDB)},
		"mariadb no tls":    {69, `answers, but does not serve: TLS requested but server does not support TLS$`, func(t *testing.T, s *sandbox) string { return "mysql://root@" + aMariaDB(t, s) + "/mysql?tls=true" }},
		"mariadb tls required": {77, `refused the login: .*whether the server wants TLS \(tls=true`, func(t *testing.T, s *sandbox) string {
			s.certificates("server")
			return "mysql://root@" + testserver.MariaDB(t, "--require-secure-transport=ON", "--ssl-cert="+filepath.Join(s.dir, "server.pem"), "--ssl-key="+filepath.Join(s.dir, "server.key")).Addr() + "/mysql"
		}},
		"mariadb full": {69, `answers, but does not serve: .*Too many connections`, func(t *testing.T, s *sandbox) string {
			addr := testserver.MariaDB(t, "--max-connections=10").Addr()
			on(t, "mysql", "root@tcp("+addr+")/")("CREATE USER plain@'%'", "CREATE DATABASE d", "GRANT ALL ON d.* TO plain@'%'")
			for range 11 {
				db, err := sql.Open("mysql", "plain@tcp("+addr+")/d")
				must(t, err)
				t.Cleanup(func() { _ = db.Close() })
				_ = db.Ping()
			}
			return "mysql://plain@" + addr + "/d"
		}},
		"postgres reserved": {69, `answers, but does not serve: .*reserved`, func(t *testing.T, s *sandbox) string {
			addr := testserver.Postgres(t, "max_connections=4", "superuser_reserved_connections=3").Addr()
			db := on(t, "pgx", "postgres://postgres@"+addr+"/postgres")
			db("CREATE ROLE plain LOGIN")
			return "postgres://plain@" + addr + "/postgres"
		}},
		"postgres hostssl": {77, `refused the login: .*no encryption`, func(t *testing.T, s *sandbox) string {
			server := testserver.Postgres(t)
			do := on(t, "pgx", "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable")
			do("SELECT 1")
			must(t, os.WriteFile(filepath.Join(server.Dir(), "data", "pg_hba.conf"), []byte("hostssl all all all trust\n"), 0o600))
			do("SELECT pg_reload_conf()")
			return "postgres://postgres@" + server.Addr() + "/postgres?sslmode=disable"
		}},
		"redis full": {69, `answers, but does not serve: ERR max number of clients reached, and it closed the connection`, func(t *testing.T, s *sandbox) string {
			addr := testserver.Redis(t, "--maxclients", "1").Addr()
			held(t, addr, 1, "PING\r\n", '+')
			return "redis://" + addr
		}},
		"redis out of memory": {78, `is full: .*OOM.* or raise maxmemory`, func(t *testing.T, s *sandbox) string {
			return "redis://" + testserver.Redis(t, "--maxmemory-policy", "noeviction", "--maxmemory", "1").Addr()
		}},
		"redis replica": {78, `cannot be written, is it a replica\? READONLY [^.]*\. Name its master in the store's URL, or take redis\+sentinel:// .*$`, func(t *testing.T, s *sandbox) string {
			return "redis://" + testserver.Redis(t, "--replicaof", "127.0.0.1", fmt.Sprint(testserver.Redis(t).Port())).Addr()
		}},
		"redis cluster node": {78, `cannot do this: .*\(this server is a node of a cluster: the store's URL begins with redis\+cluster:\)$`, func(t *testing.T, s *sandbox) string {
			return "redis://" + testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: 5 * time.Second}).Addrs()[0]
		}},
		"redis plain rediss": {69, `cannot be used: TLS: .*Else the store's URL begins with redis:$`, func(t *testing.T, s *sandbox) string { return "rediss://" + aRedis(t, s) }},
		"redis TLS": {69, `(closed the connection before its first answer[:.] .*Does it expect TLS\?|cannot be used: the server answers with TLS).* the store's URL begins with rediss:$`, func(t *testing.T, s *sandbox) string {
			s.certificates("server")
			port := fmt.Sprint(freePort(t))
			testserver.Redis(t, "--tls-port", port, "--tls-ca-cert-file", filepath.Join(s.dir, "ca.pem"), "--tls-cert-file", filepath.Join(s.dir, "server.pem"), "--tls-key-file", filepath.Join(s.dir, "server.key"))
			return "redis://127.0.0.1:" + port
		}},
		"sentinel password": {77, `refused the login: redis: no Sentinel says .*WRONGPASS.*[^.]\. Check sentinel-user= and sentinel-password=`, func(t *testing.T, s *sandbox) string {
			return "redis+sentinel://" + testserver.MasterName + "@" + strings.Join(sentinels(t, []any{"ACL", "SETUSER", "default", "resetpass", ">right"}).Addrs(), ",") + "?sentinel-password=hunter2"
		}},
		"sentinel no password": {77, `refused the login: redis: no Sentinel says .*NOAUTH.*[^.]\. Check sentinel-user= and sentinel-password=`, func(t *testing.T, s *sandbox) string {
			return "redis+sentinel://" + testserver.MasterName + "@" + strings.Join(sentinels(t, []any{"ACL", "SETUSER", "default", "resetpass", ">right"}).Addrs(), ",")
		}},
		"sentinel password alone": {77, `refused the login: (NOAUTH.*[^.]|the server wants a password)\. It is that of Redis, not of the Sentinels: check NAME:PASSWORD@ and user=`, func(t *testing.T, s *sandbox) string {
			group := sentinels(t, []any{"ACL", "SETUSER", "default", "resetpass", ">hunter2"})
			admin(t, group.Master, redis.Options{}, []any{"ACL", "SETUSER", "default", "resetpass", ">another"})
			return "redis+sentinel://" + testserver.MasterName + "@" + strings.Join(group.Addrs(), ",") + "?sentinel-password=hunter2"
		}},
		"sentinel user": {0, ``, func(t *testing.T, _ *sandbox) string {
			group := sentinels(t, []any{"ACL", "SETUSER", "locks", "on", ">right", "~*", "&*", "+@all"}, []any{"ACL", "SETUSER", "default", "off"})
			return "redis+sentinel://" + testserver.MasterName + "@" + strings.Join(group.Addrs(), ",") + "?sentinel-user=locks&sentinel-password=right"
		}},
		"sentinel redis password": {77, `refused the login: WRONGPASS.*[^.]\. It is that of Redis, not of the Sentinels: check NAME:PASSWORD@ and user=`, func(t *testing.T, s *sandbox) string {
			group := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: 5 * time.Second})
			admin(t, group.Master, redis.Options{}, []any{"CONFIG", "SET", "requirepass", "right"})
			return "redis+sentinel://" + testserver.MasterName + ":hunter2@" + strings.Join(group.Addrs(), ",")
		}},
		"zk full": {69, `closed the connection before its first answer: .*maxClientCnxns`, func(t *testing.T, s *sandbox) string {
			addr := testserver.ZooKeeper(t, "maxClientCnxns=2").Addr()
			held(t, addr, 2, zkHello, 0)
			return "zk://" + addr
		}},
		"zk sasl": {78, `cannot do this: .*only clients that log in with SASL`, func(t *testing.T, s *sandbox) string {
			jaas := filepath.Join(s.dir, "jaas")
			must(t, os.WriteFile(jaas, []byte("Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_a=\"b\"; };\n"), 0o600))
			return "zk://" + testserver.ZooKeeperIn(t, []string{"JAVA_TOOL_OPTIONS=-Djava.security.auth.login.config=" + jaas},
				"authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider", "sessionRequireClientSASLAuth=true").Addr()
		}},
		"zk at redis":      {69, `takes connections, and does not answer: `, func(t *testing.T, s *sandbox) string { return "zk://" + aRedis(t, s) }},
		"redis at zk":      {69, `closed the connection before its first answer\. Has it`, func(t *testing.T, s *sandbox) string { return "redis://" + aZooKeeper(t, s) }},
		"etcd at redis":    {69, `cannot be used: .*\(the server answers, but not as an etcd does: is it one\?\)$`, func(t *testing.T, s *sandbox) string { return "etcd://" + aRedis(t, s) }},
		"redis at etcd":    {69, `closed the connection before its first answer\. .* or is it not Redis\?`, func(t *testing.T, s *sandbox) string { return "redis://" + anEtcd(t, s) }},
		"cluster at redis": {78, `cannot do this: .*cluster support disabled: the store's URL begins with redis:$`, func(t *testing.T, s *sandbox) string { return "redis+cluster://" + aRedis(t, s) }},
		"redis at mariadb": {69, `failed: redis: invalid reply`, func(t *testing.T, s *sandbox) string { return "redis://" + aMariaDB(t, s) }},
		"etcd TLS":         {69, `closed the connection before its first answer: .*Does it expect TLS\? Then the store's URL begins with etcds:$`, func(t *testing.T, s *sandbox) string { return "etcd://" + etcdOverTLS(t, s) }},
		"etcd TLS, cert wanted": {69, `cannot be used: .*after the handshake: does it want a certificate of yours\?`, func(t *testing.T, s *sandbox) string {
			return "etcds://" + etcdOverTLS(t, s, "--client-cert-auth", "--trusted-ca-file="+filepath.Join(s.dir, "ca.pem")) + "?tls-ca=" + filepath.Join(s.dir, "ca.pem")
		}},
		"etcd TLS, unknown authority": {69, `cannot be used: .*unknown authority: name the file of its authority with tls-ca=`, func(t *testing.T, s *sandbox) string { return "etcds://" + etcdOverTLS(t, s) }},
		"etcd plain, etcds":           {69, `cannot be used: .*does it speak TLS\? Else the store's URL begins with etcd:`, func(t *testing.T, s *sandbox) string { return "etcds://" + anEtcd(t, s) }},
		"zk TLS":                      {69, `closed the connection before its first answer: .*hasp speaks none with ZooKeeper$`, func(t *testing.T, s *sandbox) string { return "zk://" + etcdOverTLS(t, s) }},
	}
}

func etcdOverTLS(t *testing.T, s *sandbox, args ...string) string {
	s.certificates("server")
	url := fmt.Sprintf("https://127.0.0.1:%d", freePort(t))
	testserver.Etcd(t, append([]string{"--listen-client-urls", url + ",unix://sock:1", "--advertise-client-urls", url,
		"--cert-file", filepath.Join(s.dir, "server.pem"), "--key-file", filepath.Join(s.dir, "server.key")}, args...)...)
	return strings.TrimPrefix(url, "https://")
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
