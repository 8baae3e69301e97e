// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// together runs requests as one script, and returns them as they were answered.
func (w *world) together(d *Driver, calls ...*wire.Call) []*wire.Call {
	d.send.Exec(w.ctx, calls)
	return calls
}

func tries(d *Driver, rs ...contend.Owner) (calls []*wire.Call) {
	for _, r := range rs {
		c, _ := d.tryCall(r.Vote())
		calls = append(calls, c)
	}
	return calls
}

// granted says whether a Try was, and by which fence.
func granted(c *wire.Call) (uint64, bool) {
	a, err := parseTry(c.Reply)
	return a.Fence, c.Err == nil && err == nil && a.Granted
}

// Requests in one script are answered one by one, in their order, and fences
// rise over all of them.
func TestBatch(t *testing.T) {
	w, d := newPlain(t)
	a, b, foreign, second := ask("a"), ask("b"), ask("foreign"), ask("a")
	gone := ask("gone")
	_ = contend.Release(w.ctx, seen(d), gone)
	w.do("SET", "lock:foreign", "somebody")
	settled := a
	settled.Settled = true
	calls := tries(d, a, a, second, b, foreign, queued(second), gone)
	calls = append(calls, d.releaseCall(settled.Withdrawal()), d.releaseCall(b.Withdrawal()), d.releaseCall(b.Withdrawal()))
	calls = append(calls, tries(d, queued(second), b)...)
	w.do("CONFIG", "RESETSTAT")
	w.together(d, calls...)
	if n := w.calls()["evalsha"]; n != 1 {
		t.Errorf("%d scripts", n)
	}
	var got []string
	var fences []uint64
	for _, c := range calls {
		f, ok := granted(c)
		switch {
		case ok:
			got = append(got, "granted")
			fences = append(fences, f)
		case c.Err != nil:
			got = append(got, c.Err.Error())
		default:
			if n, ok := c.Reply.(int64); ok {
				got = append(got, fmt.Sprint(n))
			} else {
				got = append(got, "refused")
			}
		}
	}
	want := "[granted granted refused granted refused refused refused 1 1 0 granted refused]"
	failIf(t, fmt.Sprint(got) != want, "answered %v\nwant     %v", got, want)
	if len(fences) != 4 || fences[0] != fences[1] || fences[2] <= fences[0] || fences[3] <= fences[2] {
		t.Errorf("fences %d", fences)
	}
	if f := w.grant(d, ask("c")).Fence; f <= fences[3] {
		t.Errorf("the fence %d after %d", f, fences)
	}
}

// A request that cannot be carried out fails alone, with the server's error.
func TestBatchInBadCompany(t *testing.T) {
	w, d := newPlain(t)
	held := ask("held")
	w.on(d).grant(held).do("SET", d.names("bad").places, "no hash").
		do("ZADD", d.names("bad").queue, 1, value(ask("bad").Claim()))
	good, bad := ask("good"), ask("bad")
	calls := append(tries(d, good, queued(bad)), d.releaseCall(held.Withdrawal()))
	w.together(d, calls...)
	if _, ok := granted(calls[0]); !ok || calls[2].Err != nil || calls[2].Reply != int64(releasedLease) {
		t.Errorf("beside a bad one: %v %v, %v %v", calls[0].Reply, calls[0].Err, calls[2].Reply, calls[2].Err)
	}
	if !redis.HasErrorPrefix(calls[1].Err, "WRONGTYPE") || d.Classify(calls[1].Err) != driver.ClassImpossible {
		t.Errorf("the bad one: %v, %v", calls[1].Reply, calls[1].Err)
	}
	w.release(d, good)
}

// A full server frees and hands off keys, and grants none, also in one script.
func TestBatchOnAFullServer(t *testing.T) {
	w, d := newPlain(t)
	held, waits := ask("held"), ask("held")
	w.grant(d, held)
	hints := w.wait(d, waits)
	w.do("CONFIG", "SET", "maxmemory", "1")
	calls := append(tries(d, ask("new")), d.releaseCall(held.Withdrawal()))
	w.together(d, calls...)
	if d.Classify(calls[0].Err) != driver.ClassFull {
		t.Errorf("a new one: %v, %v", calls[0].Reply, calls[0].Err)
	}
	if calls[1].Err != nil || calls[1].Reply != int64(releasedLease) {
		t.Errorf("a release: %v, %v", calls[1].Reply, calls[1].Err)
	}
	w.on(d).hint(hints).claim(waits)
}

// A server that became a replica says so by an error of the whole script, however many requests it carries, by
// which the client knows to look for another.
func TestReadOnlyReplica(t *testing.T) {
	w, d := newPlain(t)
	held := ask("held")
	w.on(d).grant(held).do("REPLICAOF", "127.0.0.1", "1") // nothing listens there
	calls := append(tries(d, ask("a"), ask("b")), d.releaseCall(held.Withdrawal()))
	w.together(d, calls...)
	for i, c := range calls {
		failIf(t, d.Classify(c.Err) != driver.ClassReadOnly, "request %d: %v, %v", i, c.Reply, c.Err)
	}
	_, err := contend.Try(w.ctx, d, ask("alone"))
	failIf(t, d.Classify(err) != driver.ClassReadOnly, "one that comes alone: %v", err)
	// The caller of Try has no use for the place in hasp's script.
	if text := fmt.Sprint(err); !strings.HasPrefix(text, "READONLY ") || strings.Contains(text, "script") || strings.HasSuffix(text, ".") {
		t.Errorf("one that comes alone says %q", text)
	}
	w.on(d).do("REPLICAOF", "NO", "ONE").release(held)
}

// A fence whose mark could not be moved is given to nobody: not to the next
// request of the script either, which a full server lets through after a
// release.
func TestFenceNeedsItsMark(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, ask("x"))
	ahead := time.Now().Add(time.Hour).UnixMicro() // as after a clock that was set back
	w.do("SET", d.names("x").mark, ahead, "PX", 90000000)
	held, waits := ask("held"), ask("held")
	w.grant(d, held)
	hints := w.wait(d, waits)
	w.do("CONFIG", "SET", "maxmemory", "1")
	w.together(d, append(tries(d, ask("new")), d.releaseCall(held.Withdrawal()))...)
	w.hint(hints)
	w.do("CONFIG", "SET", "maxmemory", "0")
	handed := w.grant(d, queued(waits)).Fence
	if next := w.grant(d, ask("next")).Fence; next <= handed {
		t.Errorf("the fence %d after %d", next, handed)
	}
}
