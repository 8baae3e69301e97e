// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
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
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "redisdriver", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text2, found := strings.Cut(string(text), "# Permissions")
	block := regexp.MustCompile(`(?m)^//\t(.*)$`).FindAllStringSubmatch(text2, -1)
	if !found || len(block) == 0 {
		t.Fatal("doc.go names no rights")
	}
	var rights []string
	for _, line := range block {
		rights = append(rights, strings.Fields(line[1])...)
	}
	return rights
}

// With the documented rights nothing is missing; without any one of them, the
// doctor names exactly that one. Looking changes nothing.
func TestRights(t *testing.T) {
	server := testserver.Redis(t)
	admin := client(t, redis.Options{Addr: server.Addr()})
	all := documented(t)
	look := func(without string) []Finding {
		args := []any{"ACL", "SETUSER", "bob", "reset", "on", ">secret"}
		for _, r := range all {
			if r != without {
				args = append(args, r)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		f := Look(t.Context(), client(t, redis.Options{Addr: server.Addr(), Username: "bob", Password: "secret"}))
		return slices.DeleteFunc(Judge("h:1", f, Vote{Voting: true, Record: true, MaxTTL: time.Minute}, Asked{
			MaxTTL: time.Minute, Command: func(s string) string { return s },
		}), func(f Finding) bool { return f.Check != "rights" })
	}
	if found := look(""); len(found) != 0 {
		t.Errorf("with all rights it finds %+v", found)
	}
	for _, right := range all {
		want := regexp.MustCompile(`^this user may not do what every lock needs\. As an administrator, run: ACL SETUSER bob ` + regexp.QuoteMeta(right) + `, and keep it`)
		level := Fail
		switch right {
		case "~lock:*": // seen by the trial: locks are under any prefix
			continue
		case "+select": // seen where there is a database to select
			continue
		case "+subscribe", "+publish", "+scan", "&hasp.*":
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

// The right to another database is needed before anything else.
func TestNoRightToSelect(t *testing.T) {
	server := testserver.Redis(t)
	admin := client(t, redis.Options{Addr: server.Addr()})
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@all", "-select").Err(); err != nil {
		t.Fatal(err)
	}
	f := Look(t.Context(), client(t, redis.Options{Addr: server.Addr(), Username: "bob", Password: "secret", DB: 1}))
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
	expect := func(level driver.Level, part string) {
		t.Helper()
		found := Judge("h:1", Look(t.Context(), rdb), Vote{Voting: true}, Asked{Command: func(s string) string { return s }})
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
	expect(Warn, "a restart loses locks, and there can be two holders, until the first one's next renewal. Set max-ttl=30s in the store's URL, for "+
		"every client; or run: CONFIG SET appendonly yes and: CONFIG SET appendfsync always, and: CONFIG REWRITE, as a restart reads "+conf)
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
