// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: while a message is under way between a client and MariaDB no key is locked, so that others wait for no network.
// Package pgxlisten has the same for PostgreSQL.
func TestNoLockOverTheNetwork(t *testing.T) {
	t.Parallel()
	d := newMySQL(t, testserver.MariaDB(t))
	near, db := d.open(t), d.pool(t)
	through, link := d.through(t)
	far := through.open(t)
	var locked atomic.Int64
	link.Hook(func(faultproxy.Chunk) bool {
		var free int // a sweep may lock it for a moment: only a message that waits for this one keeps it
		const probe = "SET STATEMENT innodb_lock_wait_timeout = 10 FOR SELECT 1 FROM hasp_key WHERE lock_key = 'k' FOR UPDATE"
		if locked.Load() == 0 && db.QueryRowContext(context.Background(), probe).Scan(&free) != nil {
			locked.Add(1)
		}
		return false
	})
	none := func(what string) {
		t.Helper()
		if n := locked.Swap(0); n > 0 {
			t.Errorf("%s: the key was locked while a message was under way", what)
		}
	}
	holder, first, second := settled(request("k")), settled(queued(request("k"))), queued(request("k"))
	granted(t, near, holder)
	locked.Store(0)
	try(t, far, first)
	none("to join")
	try(t, far, second)
	none("to join others")
	must(t, renewal(t, far, holder).Err)
	none("to renew")
	for _, one := range [][]driver.RenewRequest{{holder.Renewal(), first.Renewal()}, {first.Renewal(), second.Renewal()}} {
		far.Renew(t.Context(), one, func(i int, r driver.Renewal) {
			failIf(t, r.Err != nil || r.Wanted == one[i].Queue, "%d: %+v", i, r)
		})
		none("to renew several")
	}
	reader, writer := request("k"), queued(request("k"))
	reader.Mode = driver.Shared
	must(t, contend.Release(t.Context(), near, holder))
	must(t, contend.Release(t.Context(), near, first))
	must(t, contend.Release(t.Context(), near, second))
	granted(t, near, reader)
	try(t, near, writer)
	locked.Store(0)
	if r := renewal(t, far, reader); r.Err != nil || !r.Wanted || r.TTL != reader.TTL {
		t.Errorf("%+v", r)
	}
	none("to renew what is shared")
	must(t, contend.Release(t.Context(), near, reader))
	must(t, contend.Release(t.Context(), near, writer))
	holder, first, second = settled(request("k")), settled(queued(request("k"))), queued(request("k"))
	granted(t, near, holder)
	try(t, near, first)
	try(t, near, second)
	locked.Store(0)
	must(t, contend.Release(t.Context(), far, holder))
	none("to release")
	granted(t, far, first)
	none("to be granted")
	must(t, contend.Release(t.Context(), far, second))
	none("to leave")
	first.Settled, first.End = false, driver.EndUnfinished
	must(t, contend.Release(t.Context(), far, first))
	none("to release with a mark")
}

// Rule: what was read is written only while the key is as it was: who was overtaken looks again.
func TestOvertakenAfterTheLook(t *testing.T) {
	t.Parallel()
	d := newMySQL(t, testserver.MariaDB(t))
	s := d.open(t)
	for what, between := range map[string]func(key string){
		"granted": func(key string) { granted(t, s, request(key)) },
		"waited for": func(key string) {
			a := request(key)
			granted(t, s, a)
			try(t, s, queued(request(key)))
			must(t, contend.Release(t.Context(), s, settled(a)))
		},
	} {
		r := queued(request(what))
		before := settled(request(what))
		granted(t, s, before) // so that there is a row
		must(t, contend.Release(t.Context(), s, before))
		once := false
		var res driver.Result
		must(t, s.do(t.Context(), func(c *conn) error {
			return c.onKey(r.Claim(), nil, func(k *keyTx) (err error) {
				if !once {
					once = true
					between(what)
				}
				res, err = k.try(r.Vote())
				return err
			})
		}))
		failIf(t, res.Granted, "%s meanwhile, and granted: %+v", what, res)
	}
}

// Rule: an owner that stands behind others, and is granted the key by an earlier Try of its own meanwhile, is told so.
func TestGrantedAfterTheLook(t *testing.T) {
	t.Parallel()
	d := newMySQL(t, testserver.MariaDB(t))
	s := d.open(t)
	const key = "k"
	holder, waiter, o := settled(request(key)), settled(queued(request(key))), request(key)
	granted(t, s, holder)
	try(t, s, waiter)
	once, had := false, false
	must(t, s.do(t.Context(), func(c *conn) error {
		return c.onKey(o.Claim(), nil, func(k *keyTx) (err error) {
			if !once {
				once = true
				must(t, contend.Release(t.Context(), s, waiter))
				must(t, contend.Release(t.Context(), s, holder))
				granted(t, s, o)
				try(t, s, queued(request(key)))
			}
			had, err = k.release(o.Withdrawal())
			return err
		})
	}))
	if info, err := s.Inspect(t.Context(), key); err != nil || !had || len(info.Holders) > 0 {
		t.Errorf("it was released: %v, and held: %+v (%v)", had, info.Holders, err)
	}
}

// Rule: a key that others take again and again can be joined at once: that its holder is another one does not matter.
func TestJoinsWhileHoldersChange(t *testing.T) {
	t.Parallel()
	d := newMySQL(t, testserver.MariaDB(t))
	s := d.open(t)
	const key = "k"
	holder, r := settled(request(key)), queued(request(key))
	granted(t, s, holder)
	looks := 0
	var res driver.Result
	must(t, s.do(t.Context(), func(c *conn) error {
		return c.onKey(r.Claim(), nil, func(k *keyTx) (err error) {
			if looks++; looks <= attempts {
				must(t, contend.Release(t.Context(), s, holder))
				holder = settled(request(key))
				granted(t, s, holder)
			}
			res, err = k.try(r.Vote())
			return err
		})
	}))
	if info, err := s.Inspect(t.Context(), key); err != nil || looks > 1 || res.Granted || info.Waiters != 1 {
		t.Errorf("it joined after %d looks: %+v, %+v (%v)", looks, res, info, err)
	}
	must(t, contend.Release(t.Context(), s, holder))
	granted(t, s, r)
}

// A waiter whose writes always meet a key that is not as it saw it, free or held, joins its queue all the same, and asks again at
// once: no holder would tell it that the key is free.
func TestJoinsAKeyThatIsFreeByThen(t *testing.T) {
	t.Parallel()
	d := newMySQL(t, testserver.MariaDB(t))
	near := d.open(t)
	through, link := d.through(t)
	far := through.open(t)
	holder, r := settled(request("k")), queued(request("k"))
	granted(t, near, holder)
	var writes atomic.Int64
	link.Hook(func(c faultproxy.Chunk) bool {
		switch {
		case !bytes.Contains(c.Data, []byte("NOT ATOMIC")):
		case writes.Add(1)%2 == 1: // it saw it held
			must(t, contend.Release(context.Background(), near, holder))
		default:
			holder = settled(request("k"))
			if res, err := contend.Try(context.Background(), near, holder); err != nil || !res.Granted {
				t.Errorf("the key that is free is not granted: %+v, %v", res, err)
			}
		}
		return false
	})
	res := try(t, far, r)
	link.Hook(nil)
	info, err := near.Inspect(t.Context(), "k")
	if err != nil || writes.Load() != 3 || res.Granted || res.RetryIn != time.Millisecond || info.Held || info.Waiters != 1 {
		t.Errorf("it joined with %d writes: %+v, %+v (%v)", writes.Load(), res, info, err)
	}
	granted(t, far, r)
}
