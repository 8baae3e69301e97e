// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// sign gives a sign of life, and returns when the store says to try again.
func (w *world) sign(d *Driver, r contend.Owner) time.Duration {
	w.Helper()
	a := w.answers(d, queued(r))[0]
	failIf(w, a.Err != nil, "the place is gone: %v", a.Err)
	return a.RetryIn
}

// mustLook has d's r wait behind a holder that cannot tell it of a release: its Try, and its sign of life, have it look after that.
func (w *world) mustLook(d *Driver, r contend.Owner) {
	w.Helper()
	w.watch(d, r)
	if res := w.refuse(d, queued(r)); res.RetryIn != lookAfter {
		w.Errorf("behind a holder that cannot tell: %+v", res)
	}
	if in := w.sign(d, r); in != lookAfter {
		w.Errorf("after its sign of life it should look after %v", in)
	}
}

// A sign of life of the first in the queue says when it should look: when the holder's
// lease ends, or soon where no hint would come.
func TestSignOfLifeSaysWhenToLook(t *testing.T) {
	const soon = lookAfter
	short := func(r contend.Owner) contend.Owner {
		r.TTL = 10 * time.Minute
		return r
	}
	for name, c := range map[string]struct {
		holders     []contend.Owner
		waits       contend.Owner
		change      []any
		least, most time.Duration
	}{
		"held":                      {[]contend.Owner{short(ask("k"))}, ask("k"), nil, time.Second, 11 * time.Minute},
		"by a foreign client":       {[]contend.Owner{ask("k")}, ask("k"), []any{"SET", "lock:k", "somebody", "PX", "3600000"}, soon, soon},
		"about to be free":          {[]contend.Owner{ask("k")}, ask("k"), []any{"SET", "lock:k", "somebody", "PX", "60"}, 1, 61 * time.Millisecond},
		"permanent":                 {[]contend.Owner{ask("k")}, ask("k"), []any{"PERSIST", "lock:k"}, soon, soon},
		"free":                      {[]contend.Owner{ask("k")}, ask("k"), []any{"DEL", "lock:k"}, time.Millisecond, time.Millisecond},
		"a reader, by a writer":     {[]contend.Owner{short(ask("k"))}, reader("k"), nil, time.Second, 11 * time.Minute},
		"the first of two to end":   {[]contend.Owner{reader("k"), short(reader("k"))}, sharer("k", 2), nil, time.Second, 11 * time.Minute},
		"the last of two to end":    {[]contend.Owner{reader("k"), short(reader("k"))}, ask("k"), nil, 12 * time.Minute, 31 * time.Minute},
		"nobody knows who has it":   {[]contend.Owner{short(reader("k"))}, ask("k"), []any{"DEL", "hasp.shares:{lock:k}"}, time.Second, 11 * time.Minute},
		"shared and made permanent": {[]contend.Owner{reader("k")}, ask("k"), []any{"PERSIST", "lock:k"}, soon, soon},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newPlain(t)
			for _, r := range c.holders {
				w.grant(d, r)
			}
			w.wait(d, c.waits)
			if c.change != nil {
				w.do(c.change...)
			}
			if in := w.sign(d, c.waits); in < c.least || in > c.most {
				t.Errorf("it should look after %v, want %v to %v", in, c.least, c.most)
			}
		})
	}
}

// One that is not the first is told to try when the key is free and the first does
// not come for it.
func TestSignOfLifeBehindOneThatDoesNotCome(t *testing.T) {
	w, d, other := newTwo(t)
	a, first, second := ask("k"), ask("k"), ask("k")
	w.on(d).grant(a).on(other).wait(first).on(d).wait(second)
	if in := w.sign(d, second); in != 0 {
		t.Errorf("the key is held, and the second should look after %v", in)
	}
	w.do("DEL", "lock:k")
	if in := w.sign(d, second); in != time.Millisecond {
		t.Errorf("the key is free, and the second should look after %v", in)
	}
}

// One behind more places that are passed over than one search goes through is told to
// try, which goes on with the search.
func TestSignOfLifeBehindManyPassedOver(t *testing.T) {
	w, d, dead := newTwo(t)
	a := ask("k")
	w.grant(d, ask("k"))
	w.many(dead, "k", 1500, "c", w.micros()/1000)
	w.wait(d, a)
	w.strike("k", dead)
	if in := w.sign(d, a); in != time.Millisecond {
		t.Errorf("it should look after %v", in)
	}
}

// Of several places in one request, the one that is the first in the queue is told.
func TestSignOfLifeOfSeveralPlaces(t *testing.T) {
	w, d := newPlain(t)
	first, second := ask("k"), ask("k")
	w.on(d).grant(ask("k")).wait(first, second)
	in := w.answers(d, queued(second), queued(first))
	if in[0].RetryIn != 0 || in[1].RetryIn <= 0 {
		t.Errorf("the second should look after %v, the first after %v", in[0].RetryIn, in[1].RetryIn)
	}
}

// A place that is known to be passed over is not any more once it shows that it lives.
func TestSignOfLifeOfAPlaceThatIsPassedOver(t *testing.T) {
	for name, shows := range map[string]func(w *world, d *Driver, r contend.Owner){
		"by a sign of life": func(w *world, d *Driver, r contend.Owner) { w.sign(d, r) },
		"by a Try":          func(w *world, d *Driver, r contend.Owner) { w.refuse(d, queued(r)) },
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newPlain(t)
			a, first, second, third := ask("k"), ask("k"), ask("k"), ask("k")
			w.grant(d, a)
			for _, r := range []contend.Owner{first, second, third} {
				w.wait(d, r)
			}
			known := func() bool { return w.admin.HExists(w.ctx, d.names("k").places, "?").Val() }
			w.do("HSET", d.names("k").places, "?", fmt.Sprint("2 ", w.micros()/1000))
			if shows(w, d, third); !known() {
				t.Error("the third is behind them")
			}
			if shows(w, d, second); known() {
				t.Error("the second is the last of them")
			}
		})
	}
}

// A queue lasts as long as the most patient in it.
func TestQueueLastsForTheMostPatient(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, ask("k"))
	for _, patience := range []time.Duration{10 * time.Second, time.Hour, time.Minute} {
		r := ask("k")
		r.Patience = patience
		w.wait(d, r)
		for _, key := range []string{d.names("k").queue, d.names("k").places} {
			if left := w.admin.PTTL(w.ctx, key).Val(); left < patience || patience == time.Minute && left < time.Hour {
				t.Errorf("%s goes after %v, with a patience of %v", key, left, patience)
			}
		}
	}
}

// A reader that nobody is in the way of any more is told to try, beside other readers.
func TestSignOfLifeOfAReaderThatMayHaveTheKey(t *testing.T) {
	w, d := newPlain(t)
	a, writer, b := reader("k"), ask("k"), reader("k")
	w.on(d).grant(a).wait(writer, b)
	n := d.names("k")
	w.do("ZREM", n.queue, value(writer.Claim()))
	w.do("HDEL", n.places, writer.Owner)
	if in := w.sign(d, b); in <= 0 || in > 2*time.Millisecond {
		t.Errorf("it should look after %v", in)
	}
}

// A reader behind a writer hears of the reader whose lease ends last.
func TestReaderBehindAWriterIsToldWhoHolds(t *testing.T) {
	w, d := newPlain(t)
	a, b, writer := reader("k"), reader("k"), ask("k")
	a.TTL = 10 * time.Second
	w.on(d).grant(a, b).wait(writer)
	if res := w.refuse(d, queued(reader("k"))); res.Holder.Owner != b.Owner || res.Left < 20*time.Second {
		t.Errorf("refused with %+v, want the lease of %q", res, b.Owner)
	}
}

// A place that is gone stays gone, whoever else waits for a key that is free; and a lock key
// of another type is in the way for as long as it lasts.
func TestSignOfLifeOfAPlaceThatIsGone(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(ask("k")).wait(a, b).do("ZREM", d.names("k").queue, value(a.Claim())).do("DEL", "lock:k")
	w.renewsNothing(d, queued(a))
	w.do("RPUSH", "lock:k", "a list")
	w.do("PEXPIRE", "lock:k", 60)
	in := w.sign(d, b)
	if left := w.admin.PTTL(w.ctx, "lock:k").Val(); in < left || in <= 0 || in > 61*time.Millisecond {
		t.Errorf("it should look after %v, and the key lasts %v", in, left)
	}
	w.do("DEL", "lock:k")
	w.do("HDEL", d.names("k").places, b.Owner)
	if errs := w.renew(d, queued(b)); !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Errorf("a sign of life from half a place: %v", errs)
	}
	if info := w.inspect(d, "k"); info.Waiters != 0 {
		t.Errorf("Inspect says %+v", info)
	}
}

// Who asks again for longer has everything that belongs to a shared key last for longer.
func TestSharerAsksForLonger(t *testing.T) {
	w, d := newPlain(t)
	a := sharer("k", 3)
	w.grant(d, a)
	a.TTL = 10 * time.Minute
	w.grant(d, a)
	for _, key := range w.ofKey() {
		if left := w.admin.PTTL(w.ctx, key).Val(); left < 9*time.Minute {
			t.Errorf("%s lasts %v", key, left)
		}
	}
}

// Behind those who share a key a writer looks when it may have it, and a sharer's longer
// lease moves that.
func TestWriterBehindSharers(t *testing.T) {
	for _, limit := range []int{0, 3} {
		w, d := newPlain(t)
		a, b, writer := sharer("k", limit), sharer("k", limit), ask("k")
		a.TTL = 10 * time.Second
		w.on(d).grant(a, b)
		w.watch(d, writer)
		if res := w.refuse(d, queued(writer)); res.RetryIn < 20*time.Second {
			t.Errorf("limit %d: refused with %+v", limit, res)
		}
		if left := w.admin.PTTL(w.ctx, "lock:k").Val(); left < 20*time.Second {
			t.Errorf("limit %d: the key lasts %v", limit, left)
		}
	}
}
