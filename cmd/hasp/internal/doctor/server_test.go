// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
)

func client(t *testing.T, o redis.Options) *redis.Client {
	t.Helper()
	o.MaxRetries = -1
	rdb := redis.NewClient(&o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// documented are the rights that the package documentation of the engine names.
func documented(t *testing.T) []string {
	t.Helper()
	_, text := fromRoot(t, "redisdriver/doc.go", "# Permissions")
	block := regexp.MustCompile(`(?m)^//\t(.*)$`).FindAllStringSubmatch(text, -1)
	if len(block) == 0 {
		t.Fatal("doc.go names no rights")
	}
	var rights []string
	for _, line := range block {
		rights = append(rights, strings.Fields(line[1])...)
	}
	return rights
}

// fromRoot returns what a file of the repository has before and after a text.
func fromRoot(t *testing.T, name, from string) (before, after string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), from)
	if !found {
		t.Fatalf("%s has no %q", name, from)
	}
	return before, after
}

// documentedForRedisson are the rights that docs/stores/redisson.md names for a kind of Redisson's locks.
func documentedForRedisson(t *testing.T, kind redisson.Kind) []string {
	t.Helper()
	_, text := fromRoot(t, "docs/stores/redisson.md", "### A Redis user for Redisson's locks")
	text, _, _ = strings.Cut(text, "\n### ")
	block := regexp.MustCompile("(?s)```\nACL SETUSER locks on >PASSWORD (.*?)```").FindStringSubmatch(text)
	row := regexp.MustCompile("(?m)^\\| `" + kind.String() + "` \\| `(.*)` \\|$").FindStringSubmatch(text)
	if block == nil || row == nil {
		t.Fatalf("docs/stores/redisson.md does not name the rights of the kind %v", kind)
	}
	return strings.Fields(block[1] + " " + row[1])
}

// With the documented rights nothing is missing; without any one of them, the
// doctor names exactly that one. Looking changes nothing.
func TestRights(t *testing.T) {
	namesEach(t, documented(t), Canonical(), Asked{MaxTTL: time.Minute})
}

// Of a server on which clients keep a node record, a client without max-ttl is warned, where it may read the record.
func TestRecordOfOthers(t *testing.T) {
	server := testserver.Redis(t)
	admin := client(t, redis.Options{Addr: server.Addr()})
	warned := func(o redis.Options, a Asked) (texts []string) {
		o.Addr, a.Command = server.Addr(), func(s string) string { return s }
		for _, f := range Judge("h:1", Look(t.Context(), client(t, o), Canonical(), nil), Vote{}, a) {
			if f.Check == "votes" {
				texts = append(texts, f.Text)
			}
		}
		return texts
	}
	if texts := warned(redis.Options{}, Asked{}); texts != nil {
		t.Errorf("without a record: %q", texts)
	}
	node := redisdriver.NewNode(admin, 90*time.Second, nil)
	defer node.Close()
	record, err := node.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if texts := warned(redis.Options{}, Asked{}); len(texts) != 1 || !strings.Contains(texts[0], "Add max-ttl, as those clients") {
		t.Errorf("while it is held back: %q", texts)
	}
	if err := node.Admit(t.Context(), record, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if texts := warned(redis.Options{}, Asked{}); len(texts) != 1 || !strings.Contains(texts[0], "Add max-ttl=1m30s to this URL") {
		t.Errorf("with a record: %q", texts)
	}
	for name, a := range map[string]Asked{"with max-ttl": {MaxTTL: time.Minute}, "Redisson": {Redisson: true}, "Cluster": {Cluster: true}} {
		if texts := warned(redis.Options{}, a); texts != nil {
			t.Errorf("%s: %q", name, texts)
		}
	}
	allow(t, admin, []string{"+@all", "~lock:*", "&*"})
	if texts := warned(redis.Options{Username: "bob", Password: "secret"}, Asked{}); texts != nil {
		t.Errorf("without the right to read it: %q", texts)
	}
}

func TestRightsForRedisson(t *testing.T) {
	for kind := redisson.Lock; kind <= redisson.ReadWrite; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			namesEach(t, documentedForRedisson(t, kind), Redisson(kind, "jobs/"), Asked{Redisson: true})
		})
	}
}

func namesEach(t *testing.T, all []string, needed Rights, a Asked) {
	server := testserver.Redis(t)
	admin := client(t, redis.Options{Addr: server.Addr()})
	a.Command = func(s string) string { return s }
	look := func(without string) []Finding {
		allow(t, admin, slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == without }))
		f := Look(t.Context(), client(t, redis.Options{Addr: server.Addr(), Username: "bob", Password: "secret"}), needed, nil)
		return slices.DeleteFunc(Judge("h:1", f, Vote{Voting: true, Record: a.MaxTTL > 0, MaxTTL: a.MaxTTL}, a), func(f Finding) bool { return f.Check != "rights" })
	}
	if found := look(""); len(found) != 0 {
		t.Errorf("with all rights it finds %+v", found)
	}
	for _, right := range all {
		want := regexp.MustCompile(`^this user may not do what every lock needs\. As an administrator, run: ACL SETUSER bob ` + regexp.QuoteMeta(right) + `, and keep it`)
		level := Fail
		switch right {
		case "~lock:*", "~jobs/*": // seen by the trial: locks are under any prefix
			continue
		case "+select": // seen where there is a database to select
			continue
		case "+subscribe", "+unsubscribe", "+publish", "+scan", "&hasp.*", "&redisson_lock__channel:*", "&redisson_rwlock:*":
			want, level = regexp.MustCompile(`\(it lacks `+regexp.QuoteMeta(right)+`\)$`), Warn
		}
		found := look(right)
		if len(found) == 0 || slices.ContainsFunc(found, func(f Finding) bool { return f.Level != level || !want.MatchString(f.Text) }) {
			t.Errorf("without %s it finds %+v", right, found)
		}
	}
	if keys := admin.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("it left %q", keys)
	}
}

// allow gives the user bob these rights, and no others.
func allow(t *testing.T, admin *redis.Client, rights []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "bob", "reset", "on", ">secret"}
	for _, r := range rights {
		args = append(args, r)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// The documented rights are those of the scripts of redisson, and they are enough: what is refused nevertheless is in
// the server's log.
func TestRightsForRedissonAreEnough(t *testing.T) {
	asked, calls := map[string]bool{}, regexp.MustCompile(`call\('(\w+)'`)
	for kind := redisson.Lock; kind <= redisson.ReadWrite; kind++ {
		for _, r := range Redisson(kind, "").commands {
			asked[r.name] = true
		}
		t.Run(kind.String(), func(t *testing.T) {
			server := testserver.Redis(t)
			admin := client(t, redis.Options{Addr: server.Addr()})
			allow(t, admin, documentedForRedisson(t, kind))
			var two [2]*hasp.Client
			waits := make(chan struct{}, 1)
			for i := range two {
				rdb := client(t, redis.Options{Addr: server.Addr(), Username: "bob", Password: "secret", DisableIdentity: true})
				c, err := hasp.New(redisson.New(rdb, &redisson.Options{Kind: kind, Prefix: "jobs/"}), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
					if e.Kind == event.Waiting {
						select {
						case waits <- struct{}{}:
						default:
						}
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				two[i] = c
			}
			use(t, two, waits, kind == redisson.ReadWrite)
			entries, err := admin.ACLLog(t.Context(), 100).Result()
			for _, e := range entries {
				if !strings.HasPrefix(e.Object, "client") && e.Object != "hello" {
					t.Errorf("refused: %s %s", e.Reason, e.Object)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, of := range []string{"common", "extend", "inspect", "lock_*", "fair*", "rw*"} {
		names, err := filepath.Glob("../../../../redisdriver/redisson/lua/" + of + ".lua")
		if err != nil || len(names) == 0 {
			t.Fatalf("no scripts %s, %v", of, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range calls.FindAllStringSubmatch(string(text), -1) {
				if !asked["+"+strings.ToLower(call[1])] {
					t.Errorf("%s calls %s, for which the doctor does not ask", filepath.Base(name), call[1])
				}
			}
		}
	}
}

// use does with locks what there is to do.
func use(t *testing.T, two [2]*hasp.Client, waits <-chan struct{}, shared bool) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := two[0].Mutex("k", nil).Lock(ctx)
	must(err)
	must(first.Extend(ctx, hasp.DefaultTTL))
	got := make(chan *hasp.Lease)
	go func() {
		lease, _ := two[1].Mutex("k", nil).Lock(ctx)
		got <- lease
	}()
	<-waits
	_, err = two[0].Operator().Inspect(ctx, "k")
	must(err)
	for _, err := range two[0].Operator().List(ctx, "") {
		must(err)
	}
	must(first.Release())
	lease := <-got
	if lease == nil {
		t.Fatal("the waiter was not granted the key")
	}
	must(two[0].Operator().Break(ctx, "k", lease.Owner()))
	if shared {
		one, err := two[0].RWMutex("k", nil).RLock(ctx)
		must(err)
		other, err := two[1].RWMutex("k", nil).RLock(ctx)
		must(err)
		must(one.Extend(ctx, hasp.DefaultTTL))
		must(errors.Join(one.Release(), other.Release()))
	}
}

// The right to another database is needed before anything else.
func TestNoRightToSelect(t *testing.T) {
	server := testserver.Redis(t)
	admin := client(t, redis.Options{Addr: server.Addr()})
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@all", "-select").Err(); err != nil {
		t.Fatal(err)
	}
	f := Look(t.Context(), client(t, redis.Options{Addr: server.Addr(), Username: "bob", Password: "secret", DB: 1}), Canonical(), nil)
	found := Judge("h:1", f, Vote{Voting: true}, Asked{})
	if len(found) != 1 || found[0].Level != Fail || found[0].Check != "rights" || !strings.Contains(found[0].Text, "'select'") {
		t.Errorf("found %+v", found)
	}
}

// What a restart would read is looked at, not only what is set now: advice is
// followed, and then the server is restarted.
func TestConfigurationOutlastsARestart(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "redis.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# appendonly yes\nAppendOnly \"no\"\n")
	// The file is the first argument, and the test's own appendonly would win over it.
	server := testserver.RedisUnder(t, []string{"sh", "-c", `
		i=$#
		while [ $i -gt 0 ]; do
			arg=$1; shift; i=$((i-1))
			case $arg in --appendonly) shift; i=$((i-1));; *) set -- "$@" "$arg";; esac
		done
		exec "$0" "$CONF" "$@"`}, []string{"CONF=" + conf})
	rdb := client(t, redis.Options{Addr: server.Addr()})
	expect := func(level operator.Level, part string) {
		t.Helper()
		found := Judge("h:1", Look(t.Context(), rdb, Canonical(), nil), Vote{Voting: true}, Asked{Command: func(s string) string { return s }})
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Check == "persistence" })
		if i < 0 || found[i].Level != level || !strings.Contains(found[i].Text, part) {
			t.Fatalf("found %+v, want %s: %s", found, level, part)
		}
	}
	run := func(words ...any) {
		t.Helper()
		if err := rdb.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	expect(Warn, "a restart loses locks, and there can be two holders, until the first one's next renewal. Run: CONFIG SET appendonly yes and: "+
		"CONFIG SET appendfsync always, and: CONFIG REWRITE, as a restart reads "+conf+". Or, in place of that, set "+advised+"; hasp doctor --admit ends the first pause)")
	run("CONFIG", "SET", "appendonly", "yes")
	run("CONFIG", "SET", "appendfsync", "always")
	for strings.Contains(rdb.Info(t.Context(), "persistence").Val(), "aof_rewrite_in_progress:1") { // what was there before is written
	}
	expect(Warn, "as now configured, but "+conf+", which a restart reads, says appendfsync everysec, appendonly no. Run: CONFIG REWRITE")
	run("CONFIG", "REWRITE")
	expect(OK, ""+conf+" says the same: a restart loses nothing")
	run("SET", "k", "v")
	server.Restart()
	for rdb.Ping(t.Context()).Err() != nil { // connections of before
	}
	expect(OK, ""+conf+" says the same: a restart loses nothing")
	if got := rdb.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("after the restart the key is %q", got)
	}

	write("include /other.conf\nappendonly no\n")
	expect(OK, "as now configured, a restart loses nothing. It reads "+conf+" then, which cannot be read from here: after CONFIG SET, run: CONFIG REWRITE")
}
