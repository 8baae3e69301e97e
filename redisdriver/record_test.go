// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/redis/go-redis/v9"
)

const nodeMaxTTL = time.Hour

// admit admits the server, as if everything that it may have lost had expired.
func (w *world) admit(d *Driver) voting.Record {
	w.Helper()
	rec := w.record(d)
	if err := (&Node{d}).Admit(w.ctx, rec, nodeMaxTTL); err != nil {
		w.Fatalf("Admit with %+v: %v", rec, err)
	}
	return rec
}

func (w *world) record(d *Driver) voting.Record {
	w.Helper()
	rec, err := (&Node{d}).Record(w.ctx)
	stopIf(w, err != nil, "Record: %v", err)
	return rec
}

// restart kills the server and starts it again with what is on the disk.
func (w *world) restart(ds ...*Driver) {
	w.Helper()
	w.server.Kill()
	w.server.Restart()
	w.until("it answers", func() bool { return w.admin.Ping(w.ctx).Err() == nil })
	for _, d := range ds {
		w.until("a driver reaches it", func() bool {
			_, err := d.Inspect(w.ctx, "k")
			return err == nil
		})
	}
}

// answers returns what a Renew says of each request.
func (w *world) answers(d *Driver, rs ...contend.Owner) []driver.Renewal {
	all := make([]driver.Renewal, len(rs))
	contend.Renew(w.ctx, d, rs, func(i int, r driver.Renewal) { all[i] = r })
	return all
}

// renew returns the errors of them.
func (w *world) renew(d *Driver, rs ...contend.Owner) []error {
	errs := make([]error, len(rs))
	for i, r := range w.answers(d, rs...) {
		errs[i] = r.Err
	}
	return errs
}

// heldBack fails unless every path that grants, or keeps, is shut.
func (w *world) heldBack(d *Driver, rs ...contend.Owner) {
	w.Helper()
	for _, r := range rs {
		for _, fence := range []uint64{0, w.micros()} {
			r.Fence = fence
			raised, restored := r, r
			raised.Raise, restored.Restore = true, true
			for _, r := range []contend.Owner{r, queued(r), raised, restored} {
				if res := w.refuse(d, r); res.Why != voting.NotVoting || res.Run == "" {
					w.Errorf("held back, Try of %q says %+v", r.Key, res)
				}
			}
		}
		if errs := w.renew(d, r, queued(r)); !errors.Is(errs[0], voting.ErrNotVoting) || d.Classify(errs[0]) != driver.ClassUnreachable ||
			!errors.Is(errs[1], driver.ErrNotHeld) {
			w.Errorf("held back, Renew of %q says %v", r.Key, errs)
		}
	}
}

func TestNodeOptions(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer single.Close()
	defer cluster.Close()
	for _, c := range []struct {
		rdb  redis.UniversalClient
		ttl  time.Duration
		want string
	}{
		{single, minTTL, ""},
		{single, minTTL - 1, "at least"},
		{single, 0, "at least"},
		{single, -time.Second, "at least"},
		{cluster, time.Second, "ClusterClient"},
		{nil, time.Second, "nil"},
	} {
		d := NewNode(c.rdb, c.ttl, nil)
		defer d.Close()
		err := d.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("MaxTTL %v: %v, want %q", c.ttl, err, c.want)
		}
		if traits := d.Traits(); err == nil && (traits.MaxTTL != c.ttl || traits.Survives != driver.StoreRestart|driver.StoreLoss) {
			t.Errorf("MaxTTL %v: %+v", c.ttl, traits)
		}
		if _, recErr := d.Record(t.Context()); err != nil && recErr != err {
			t.Errorf("Record says %v, want %v", recErr, err)
		}
		if admErr := d.Admit(t.Context(), voting.Record{}, time.Second); err != nil && admErr != err {
			t.Errorf("Admit says %v, want %v", admErr, err)
		}
	}
	for _, d := range []driver.Driver{New(single, nil), New(cluster, nil)} {
		_, votes := d.(voting.Node)
		_, recorded := d.(voting.Recorded)
		if tr := d.Traits(); votes || recorded || tr.MaxTTL != 0 || tr.Survives != 0 {
			t.Errorf("no node: votes %v, recorded %v, %+v", votes, recorded, tr)
		}
	}
}

// A server that comes back with its data comes back with a record of a life
// that is over: it hands nothing off, prolongs nothing, and what it has stays
// until it ends.
func TestNodeComesBackWithItsData(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"RDB": nil,
		"AOF": {"--appendonly", "yes", "--appendfsync", "always"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, args...)
			d := w.node()
			w.admit(d)
			a, b, released := ask("k"), ask("k"), ask("r")
			next := ask("r")
			a.Fence = w.micros()
			released.Fence = w.micros()
			w.on(d).grant(a, released).wait(b)
			hints := w.wait(d, next)
			if args == nil {
				w.do("SAVE")
			}
			w.restart(d)
			w.subscribed(d, 1)
			if w.admin.Exists(w.ctx, "lock:k", "lock:r", recordKey).Val() != 3 {
				t.Fatalf("it came back with %q", w.keys())
			}
			before := w.admin.PExpireTime(w.ctx, "lock:k").Val()
			w.heldBack(d, a, b)
			select {
			case <-hints: // from the lost connection
			default:
			}
			w.on(d).do("CONFIG", "RESETSTAT").release(released)
			if info := w.inspect(d, "r"); info.Held || info.Waiters != 1 {
				t.Errorf("a Release handed on: %+v", info)
			}
			if n := w.calls()["publish"]; n != 0 {
				t.Errorf("%d hints", n)
			}
			w.heldBack(d, next)
			if after := w.admin.PExpireTime(w.ctx, "lock:k").Val(); after != before {
				t.Errorf("the lease was prolonged from %v to %v", before, after)
			}
			w.admit(d)
			if res := w.refuse(d, ask("k")); res.Why != driver.WhyHeld || res.Holder.Owner != a.Owner {
				t.Errorf("behind the lease that came back: %+v", res)
			}
			again := a
			again.Fence = w.micros()
			if res := w.grant(d, again); res.Fence != a.Fence {
				t.Errorf("the holder has the fence %d, was granted %d", res.Fence, a.Fence)
			}
			w.on(d).claim(next).release(a).has(b)
		})
	}
}

// A node that is held back refuses without a trace. A node that votes is not admitted again, and no node is for no time.
func TestNodeThatWasFlushed(t *testing.T) {
	w, d := newVoting(t)
	w.do("FLUSHALL")
	w.heldBack(d, ask("k")) // and writes nothing
	if keys := w.keys(); len(keys) != 0 {
		t.Errorf("a refusal left %q", keys)
	}
	w.admit(d)
	rec := w.record(d)
	if err := (&Node{d}).Admit(w.ctx, rec, time.Hour); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Admit of one that votes: %v", err)
	}
	if err := (&Node{d}).Admit(w.ctx, rec, minTTL-1); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Admit for nothing: %v", err)
	}
}

// A record that is no record of ours does not let the node vote.
func TestNodeRecordMustBeExact(t *testing.T) {
	w, d := newVoting(t)
	good := w.admin.Get(w.ctx, recordKey).Val()
	for _, text := range []string{
		"", "ok", "ok  60000", "ok " + strings.Repeat("0", 40) + " 60000", good[:43], good[:44], good[:44] + "x",
		"no" + good[2:], " " + good, "ok " + good[4:44] + good[44:], "wait " + good[3:43] + " N", strings.ToUpper(good),
	} {
		w.do("SET", recordKey, text)
		for _, r := range []contend.Owner{ask("k"), proposing("k", w.micros())} {
			if res, err := contend.Try(w.ctx, seen(d), r); err != nil || res.Granted || res.Why != voting.NotVoting {
				t.Errorf("with the record %q Try says %+v, %v", text, res, err)
			}
		}
		if err := w.renew(d, ask("k"))[0]; !errors.Is(err, voting.ErrNotVoting) {
			t.Errorf("with the record %q Renew says %v", text, err)
		}
		if rec := w.record(d); rec.Voting {
			t.Errorf("the record %q became %+v", text, rec)
		}
	}
	w.on(d).do("SET", recordKey, good).grant(ask("k"))
}

// A replica that is promoted has the record of the master that it copied.
func TestNodeIsAPromotedReplica(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newWorld(t)
	d := w.node()
	w.admit(d)
	a := ask("k")
	a.Fence = w.micros()
	w.grant(d, a)
	host, port, _ := strings.Cut(w.server.Addr(), ":")
	r.do("REPLICAOF", host, port)
	r.until("it has the lock", func() bool { return r.admin.Exists(r.ctx, "lock:k", recordKey).Val() == 2 })
	r.until("the copy is complete", func() bool {
		return strings.Contains(r.admin.Info(r.ctx, "replication").Val(), "master_link_status:up")
	})
	replica := r.node()
	if _, err := (&Node{replica}).Record(r.ctx); replica.Classify(err) != driver.ClassReadOnly {
		t.Errorf("Record of a replica says %v", err)
	}
	r.do("REPLICAOF", "NO", "ONE")
	r.heldBack(replica, a, ask("new"))
	rec := r.admit(replica)
	failIf(t, rec.Run == w.record(d).Run, "two servers have one name")
	if res := r.refuse(replica, ask("k")); res.Holder.Owner != a.Owner {
		t.Errorf("refused with %+v", res)
	}
}

// No request may have a longer TTL than the record allows, nor than its own
// driver, and no answer says more.
func TestNodeTTL(t *testing.T) {
	w := newWorld(t)
	d, wide := w.node(), w.nodeOver(w.client(nil), 2*nodeMaxTTL)
	w.admit(d)
	long := ask("k")
	long.TTL = nodeMaxTTL + 1
	w.do("CONFIG", "RESETSTAT")
	for _, r := range []contend.Owner{long, queued(long)} {
		if res := w.refuse(d, r); res.Why != voting.TTLTooLong || res.TTL != nodeMaxTTL {
			t.Errorf("Try says %+v", res)
		}
	}
	if err := w.renew(d, long)[0]; err == nil || d.Classify(err) != driver.ClassImpossible {
		t.Errorf("Renew says %v", err)
	}
	if n := w.calls()["evalsha"]; n != 0 {
		t.Errorf("it asked the server %d times", n)
	}
	if err := w.renew(wide, long)[0]; err == nil || !strings.Contains(err.Error(), "1h0m0s") || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew says %v", err)
	}
	if keys := w.keys(); len(keys) != 2 {
		t.Errorf("refusals left %q", keys)
	}
	a := ask("k")
	w.on(d).grant(a).do("PEXPIRE", "lock:k", "7200000") // as a longer handoff leaves it
	if res := w.grant(d, a); res.TTL > nodeMaxTTL {
		t.Errorf("a standing lease is said to last %v", res.TTL)
	}
}

// A full server still frees a key, and what it remembers stays.
func TestNodeIsFull(t *testing.T) {
	w, d := newVoting(t)
	for _, settled := range []bool{true, false} {
		a, more := ask("k"), ask("more")
		a.Fence, a.Settled = w.micros(), settled
		w.on(d).grant(a).do("CONFIG", "SET", "maxmemory", "1")
		more.Fence = w.micros()
		if _, err := contend.Try(w.ctx, seen(d), more); d.Classify(err) != driver.ClassFull {
			t.Errorf("Try says %v", err)
		}
		w.release(d, a)
		failIf(t, w.inspect(d, "k").Held, "it is still held")
		w.do("CONFIG", "SET", "maxmemory", "0")
		low := ask("k")
		low.Fence = a.Fence
		if res := w.refuse(d, low); res.Why != voting.FenceTooLow || res.Fence < a.Fence {
			t.Errorf("the fence of before: %+v", res)
		}
	}
}

// A node that comes back with a snapshot of ten minutes ago forgot what it granted
// since. Once it is admitted, a proposal by a client that is a minute behind is not above
// that, though it is above all that the snapshot knows.
func TestAdmissionRaisesTheFloor(t *testing.T) {
	w, d := newVoting(t)
	now := w.micros()
	then := now - uint64((10 * time.Minute).Microseconds())
	w.on(d).grant(proposing("k", now)).do("FLUSHALL")
	w.mark(then, then, then, then)
	w.admit(d)
	behind := proposing("k", now-uint64(time.Minute.Microseconds()))
	reads := behind
	reads.Mode = driver.Shared
	for _, r := range []contend.Owner{behind, reads} {
		if least := w.tooLow(d, r); least < now {
			t.Errorf("a node was admitted at %d, and fences go on above %d", now, least)
		}
	}
	w.grant(d, proposing("k", w.micros()))
}
