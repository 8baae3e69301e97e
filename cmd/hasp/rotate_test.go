// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// keeper is a store whose user "locks" has a password.
type keeper struct {
	url    func(password string) string
	rotate func(password string) // gives the user another one, and cuts the connections
	tables bool
}

// A password, or a client's certificate, that is rotated, the store's connections cut, and the URL's file written late, first with a mistake: a holder, a
// waiter, a leader, a standby, a shell, a server of pages and top go on, and none shows a password.
func TestRotatedPassword(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) keeper{
		"redis": rotatesRedis, "redlock": rotatesRedlock, "cluster": rotatesCluster, "sentinel": rotatesSentinel,
		"certificate": rotatesCertificate, "etcd": rotatesEtcd, "postgres": rotatesPostgres, "mariadb": rotatesMariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rotates(t, start(t))
		})
	}
}

func rotates(t *testing.T, k keeper) {
	s := newSandbox(t, "")
	s.write("url", k.url("hunter2"))
	start := func(args ...string) *proc { return s.haspWith(s.storeFile("HASP_STORE_FILE", "url"), args...) }
	if k.tables {
		start("init").ends(0)
	}
	s.fifo("gate")
	s.fifo("reign")
	// The TTLs outlast what a busy machine makes of the outage.
	holder := start("run", "--ttl", "10m", "k", "--", "sh", "-c", "echo >held.tmp; echo x >>held.tmp; mv held.tmp held; read x <gate")
	s.read("held")
	waiter := start("run", "k", "--", "sh", "-c", `echo "abandoned=$HASP_ABANDONED" >waited`)
	leader := start("elect", "--ttl", "10m", "e", "--", "sh", "-c", "echo x >leads; read x <reign")
	s.read("leads")
	standby := start("elect", "e", "--", "sh", "-c", "echo x >stands; exec sleep 1000")
	shell := []string{"--pid", strconv.Itoa(os.Getpid()), "for the shell"}
	if runtime.GOOS == "linux" {
		start(append([]string{"acquire", "--ttl", "10m"}, shell...)...).ends(0)
	}
	pages := start("serve", "--listen", "127.0.0.1:0")
	pages.says(` are at https?://`)
	top := s.top(t, "env -u HASP_STORE HASP_STORE_FILE=url hasp top --every 0.2")
	top.shows(`k +\S+ \(pid`)
	waiter.says("k")
	standby.says("e")

	s.write("url", k.url("hunter3-wrong"))
	k.rotate("hunter4")
	waiter.says("(?i)password|login|auth|denied|permission|certificate")
	top.shows("no answer for")
	s.write("url", k.url("hunter4"))
	top.shows("sorted by waiters")
	top.send("q")
	top.restored("0")

	s.open("gate")
	holder.ends(0)
	waiter.ends(0)
	if got := s.read("waited"); got != "abandoned=" { // the holder released it, with the new password
		t.Errorf("the waiter's command sees %s", got)
	}
	_, at, _ := strings.Cut(pages.err.String(), " are at ")
	at, _, _ = strings.Cut(at, "\n")
	if err := eventually(func() bool {
		code, err := get(t, http.DefaultClient, strings.TrimSpace(at)+"api/v1/locks", "")
		return err == nil && code == http.StatusOK
	}); err != nil {
		t.Errorf("the pages stay dark: %v\n%s", err, pages.err.String())
	}
	s.open("reign") // it has led all the time
	leader.says("exited with status 0")
	leader.signal(syscall.SIGTERM)
	leader.ends(143)
	s.read("stands")
	standby.signal(syscall.SIGTERM)
	standby.ends(143)
	if runtime.GOOS == "linux" {
		start(append([]string{"held"}, shell...)...).ends(0)
		start(append([]string{"release"}, shell...)...).ends(0)
	}
	for _, p := range []*proc{holder, waiter, leader, standby, pages} {
		if text := p.err.String() + p.out.String(); strings.Contains(text, "hunter") {
			t.Errorf("%v shows a password:\n%s", p.cmd.Args, text)
		}
	}
}

// storeFile names the file of the store's URL, or another variable, for a hasp or a script.
func (s *sandbox) storeFile(variable, file string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		i := slices.IndexFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "HASP_STORE=") })
		cmd.Env[i] = variable + "=" + file
	}
}

// acl gives the user of some servers of Redis a password, and ends its connections.
func acl(t testing.TB, password string, servers ...*testserver.Server) {
	t.Helper()
	for _, s := range servers {
		admin(t, s, redis.Options{}, []any{"ACL", "SETUSER", "locks", "on", "resetpass", ">" + password, "~*", "&*", "+@all"}, []any{"CLIENT", "KILL", "USER", "locks"})
	}
}

func rotatesRedis(t *testing.T) keeper {
	server := testserver.Redis(t)
	acl(t, "hunter2", server)
	return keeper{
		url:    func(password string) string { return "redis://locks:" + password + "@" + server.Addr() },
		rotate: func(password string) { acl(t, password, server) },
	}
}

// A certificate in place of a password: the server trusts another authority from then on.
func rotatesCertificate(t *testing.T) keeper {
	files := newSandbox(t, "")
	by := map[string]*sandbox{}
	for _, password := range []string{"hunter2", "hunter3-wrong", "hunter4"} {
		by[password] = newSandbox(t, "")
		by[password].certificates("server", "client")
	}
	first, port := by["hunter2"].dir, strconv.Itoa(freePort(t))
	server := testserver.Redis(t, "--tls-port", port, "--tls-ca-cert-file", filepath.Join(first, "ca.pem"),
		"--tls-cert-file", filepath.Join(first, "server.pem"), "--tls-key-file", filepath.Join(first, "server.key"))
	return keeper{
		url: func(password string) string {
			for _, name := range []string{"client.pem", "client.key"} {
				text, err := os.ReadFile(filepath.Join(by[password].dir, name))
				must(t, err)
				files.write(name, string(text))
			}
			return "rediss://127.0.0.1:" + port + "?tls-ca=" + filepath.Join(first, "ca.pem") +
				"&tls-cert=" + filepath.Join(files.dir, "client.pem") + "&tls-key=" + filepath.Join(files.dir, "client.key")
		},
		rotate: func(password string) {
			admin(t, server, redis.Options{}, []any{"CONFIG", "SET", "tls-ca-cert-file", filepath.Join(by[password].dir, "ca.pem")},
				[]any{"CLIENT", "KILL", "TYPE", "normal"}, []any{"CLIENT", "KILL", "TYPE", "pubsub"})
		},
	}
}

func rotatesRedlock(t *testing.T) keeper {
	var servers []*testserver.Server
	var addrs []string
	for range 3 {
		s := testserver.Redis(t)
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	all := strings.Join(addrs, ",") + "?max-ttl=10m"
	newSandbox(t, "redlock://"+all).exits(0, "doctor", "--admit")
	acl(t, "hunter2", servers...)
	return keeper{
		url:    func(password string) string { return "redlock://locks:" + password + "@" + all },
		rotate: func(password string) { acl(t, password, servers...) },
	}
}

func rotatesCluster(t *testing.T) keeper {
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{})
	acl(t, "hunter2", c.All()...)
	return keeper{
		url: func(password string) string {
			return "redis+cluster://locks:" + password + "@" + strings.Join(c.Addrs(), ",")
		},
		rotate: func(password string) { acl(t, password, c.All()...) },
	}
}

// The Sentinels have a password of their own, which is rotated, too.
func rotatesSentinel(t *testing.T) keeper {
	c := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: time.Minute})
	acl(t, "hunter2", c.Redises()...)
	before := ""
	own := func(password string) {
		for _, s := range c.Sentinels {
			admin(t, s, redis.Options{Password: before, Protocol: 2}, []any{"ACL", "SETUSER", "default", "resetpass", ">" + password}, []any{"CLIENT", "KILL", "SKIPME", "yes"})
		}
		before = password
	}
	own("hunter2-sentinel")
	return keeper{
		url: func(password string) string {
			return "redis+sentinel://mymaster:" + password + "@" + strings.Join(c.Addrs(), ",") + "?user=locks&sentinel-password=" + password + "-sentinel"
		},
		rotate: func(password string) {
			own(password + "-sentinel")
			acl(t, password, c.Redises()...)
		},
	}
}

func rotatesEtcd(t *testing.T) keeper {
	server := testserver.Etcd(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	client := func(user, password string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Username: user, Password: password, Logger: zap.NewNop(), DialTimeout: time.Minute})
		must(nil, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := client("", "")
	for _, user := range []string{"root", "locks"} {
		must(first.UserAdd(ctx, user, "hunter2"))
		must(first.UserGrantRole(ctx, user, "root"))
	}
	must(first.AuthEnable(ctx))
	root := client("root", "hunter2")
	return keeper{
		url: func(password string) string { return "etcd://locks:" + password + "@" + server.Addr() },
		rotate: func(password string) {
			must(root.UserChangePassword(ctx, "locks", password))
			server.Restart() // which forgets all tokens
		},
	}
}

// on carries out statements as the superuser.
func on(t testing.TB, driver, dsn string) func(statements ...string) {
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := db.Exec(s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
}

func rotatesPostgres(t *testing.T) keeper {
	server := testserver.Postgres(t)
	do := on(t, "pgx", "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable")
	const hba = "host all locks 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nlocal all all trust\n"
	must(t, os.WriteFile(filepath.Join(server.Dir(), "data", "pg_hba.conf"), []byte(hba), 0o600))
	do("CREATE ROLE locks LOGIN PASSWORD 'hunter2'", "GRANT ALL ON SCHEMA public TO locks", "SELECT pg_reload_conf()")
	return keeper{
		tables: true,
		url: func(password string) string {
			return "postgres://locks:" + password + "@" + server.Addr() + "/postgres?sslmode=disable"
		},
		rotate: func(password string) {
			do("ALTER ROLE locks PASSWORD '"+password+"'", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locks'")
		},
	}
}

func rotatesMariaDB(t *testing.T) keeper {
	server := testserver.MariaDB(t)
	do := on(t, "mysql", "root@tcp("+server.Addr()+")/")
	do("CREATE DATABASE d", "CREATE USER locks@'%' IDENTIFIED BY 'hunter2'", "GRANT ALL ON d.* TO locks@'%'")
	return keeper{
		tables: true,
		url:    func(password string) string { return fmt.Sprintf("mysql://locks:%s@%s/d", password, server.Addr()) },
		rotate: func(password string) {
			do("ALTER USER locks@'%' IDENTIFIED BY '"+password+"'", "KILL USER locks@'%'")
		},
	}
}
