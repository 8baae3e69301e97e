// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/hasplock/hasp/internal/expect"
)

var must = expect.Need

func TestByHand(t *testing.T) {
	for _, c := range []struct{ url, statement, want string }{
		{"sqlite:/a b.db", "SELECT 1;", "sqlite3 -readonly '/a b.db' 'SELECT 1;'"},
		{"redis://h:1", `GET "lock:a b"`, "redis-cli -h h -p 1 GET 'lock:a b'"},
		{"rediss://me:secret@h/3", `ZRANGE "l" 0 -1`, "redis-cli -h h -p 6379 --tls --user me -n 3 ZRANGE l 0 -1"},
		{"unix:///s", `GET "a\nb"`, `printf '%s\n' 'GET "a\nb"' | redis-cli -s /s`},
		{"redlocks://me:secret@a:1,b:2,c:3", `GET a`, "redis-cli -h a -p 1 --tls --user me GET a"},
		{"redis+sentinel://m:secret@a,b/3?user=me", `GET "a b"`, `redis-cli -h "$1" -p "$2" --user me -n 3 GET 'a b'`},
		{"rediss+cluster://:secret@[::1]:7,b", `GET a`, "redis-cli -c -h ::1 -p 7 --tls GET a"},
		{"postgres://:hunter2@h/db?user=me", "SELECT 1", "psql 'postgres://h/db?user=me' -c 'SELECT 1'"},
		{"postgres://me:hunter2@h/db?options=-c%20search_path%3Da", "SELECT 1", "psql 'postgres://me@h/db?options=-c%20search_path%3Da' -c 'SELECT 1'"},
		{"postgres://h/a%2Fb%25c", "SELECT 1", "psql postgres://h/a/b%25c -c 'SELECT 1'"}, // as libpq reads it
		{"postgres:///db?host=/run", "SELECT 1", "psql 'postgres:///db?host=%2Frun' -c 'SELECT 1'"},
		{"redis+sentinel://m@a?layout=redisson", `HGETALL "a b"`, `redis-cli -h "$1" -p "$2" HGETALL 'a b'`},
		{"redis://h", `GET "a`, `printf '%s\n' 'GET "a' | redis-cli -h h -p 6379`},
	} {
		u, err := Parse(c.url)
		must(t, err)
		if got := u.ByHand(0, c.statement); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.url, c.statement, got, c.want)
		}
	}
}
