// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import "strings"

// row is a lock of another client beside the one of hasp that shares it. Where it is held in another way than it is asked for, there are
// two kinds of each.
type row struct {
	client, lock string // as the page calls it
	program      *program
	theirs, ours use
	keys         string // hasp's, where NAME is the other client's; empty: the same
}

// use is as what a lock is held, and as what it is asked for.
type use struct{ hold, wait string }

func both(kind string) use { return use{kind, kind} }

// side is one of a row's two clients.
type side struct {
	*peer
	use
	keys string
}

// The rows by program. The kinds are those that the programs know.
var rows = []row{
	{client: "Redisson", lock: "`RLock`", program: java, theirs: both("lock"), ours: both("lock")},
	{client: "Redisson", lock: "fair lock", program: java, theirs: both("fair"), ours: both("fair")},
	{client: "Redisson", lock: "`RFencedLock`", program: java, theirs: both("fenced"), ours: both("fenced")},
	{client: "Redisson", lock: "write lock", program: java, theirs: both("write"), ours: both("write")},
	{client: "Redisson", lock: "read lock, a writer waits", program: java, theirs: use{"read", "write"}, ours: use{"read", "write"}},
	{client: "Redisson", lock: "write lock, a reader waits", program: java, theirs: use{"write", "read"}, ours: use{"write", "read"}},
	{client: "Redisson", lock: "spin lock", program: java, theirs: both("spin"), ours: both("lock")},
	{client: "Redisson", lock: "`RMultiLock`", program: java, theirs: both("multi"), ours: both("multi")},
	{client: "redis-py", lock: "`Lock`", program: python, theirs: both("redis-py"), ours: both("string")},
	{client: "pottery", lock: "`Redlock`, one master", program: python, theirs: both("pottery"), ours: both("string"), keys: "redlock:NAME"},
	{client: "redlock-py", lock: "`Redlock`, one server", program: python, theirs: both("redlock-py"), ours: both("string")},
	{client: "node-redlock", lock: "`acquire`, one server", program: node, theirs: both("node-redlock"), ours: both("string")},
	{client: "redsync", lock: "`Mutex`, one server", program: goPeer, theirs: both("redsync"), ours: both("string")},
	{client: "redislock", lock: "`Lock`", program: goPeer, theirs: both("redislock"), ours: both("string")},
	{client: "rueidislock", lock: "`Locker`, one server", program: goPeer, theirs: both("rueidislock"), ours: both("strings"),
		keys: "rueidislock:0:NAME,rueidislock:1:NAME,rueidislock:2:NAME"},
}

// of are the rows of one program.
func of(p *program) (mine []row) {
	for _, r := range rows {
		if r.program == p {
			mine = append(mine, r)
		}
	}
	return mine
}

// sides are hasp's and the other client's of a row; the other way round if theirs comes first.
func (r row) sides(ours, theirs *peer, theirsFirst bool) (a, b side) {
	a, b = side{ours, r.ours, r.keys}, side{theirs, r.theirs, ""}
	if theirsFirst {
		return b, a
	}
	return a, b
}

// name is what a side calls a key.
func (s side) name(key string) string {
	if s.keys == "" {
		return key
	}
	return strings.ReplaceAll(s.keys, "NAME", key)
}

// key is the key of a case; a multi lock's are two.
func (r row) key(name string) string {
	if r.ours.hold == "multi" {
		return name + ".1," + name + ".2"
	}
	return name
}
