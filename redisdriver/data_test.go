// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/redis/go-redis/v9"
)

// alien are texts that stand where hasp counts, and are none of its numbers.
var alien = []string{"abc", "-5", "0x10", " 12", "12 ", "1e15", "1.5", "+7", "", "inf", "nan",
	"9007199254740991", "9007199254740992", "00001763719200123", "9223372036854775806", "18446744073709551615", "99999999999999999999",
	"0x10000000000000", "1763719200.12345", "\x1b]0;x\a", "a\nb"}

// refuses fails unless Try says that the store holds what is not hasp's, in that key.
func (w *world) refuses(d *Driver, r contend.Owner, key string) {
	w.Helper()
	res, err := contend.Try(w.ctx, seen(d), r)
	var data *DataError
	if !errors.As(err, &data) || data.Key != key || d.Classify(err) != driver.ClassImpossible {
		w.Errorf("Try answers %+v, %v; want an error about %q", res, err, key)
	}
}

// A mark that is no number of ours grants nothing, names itself, and takes no
// lease from anybody.
func TestAlienMark(t *testing.T) {
	for _, node := range []bool{false, true} {
		w, d := newPlain(t)
		if node {
			d = w.node()
			w.admit(d)
		}
		held, waits, reads := ask("held"), ask("held"), ask("shared")
		reads.Mode = driver.Shared
		fence := w.grant(d, held).Fence
		w.grant(d, reads)
		hints := w.wait(d, waits)
		for _, text := range alien {
			w.do("SET", markKey, text)
			if node {
				w.refuses(d, proposing("free", w.micros()), markKey)
			}
			for _, key := range []string{"free", "shared"} {
				for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
					r := ask(key)
					if r.Mode = mode; key == "shared" && mode == driver.Exclusive {
						continue
					}
					w.refuses(d, r, markKey)
					w.refuses(d, queued(r), markKey)
				}
			}
		}
		w.on(d).release(held).hint(hints)
		w.refuses(d, queued(waits), markKey)
		w.do("DEL", markKey)
		if next := w.grant(d, queued(waits)).Fence; next <= fence {
			t.Errorf("the fence %d after %d", next, fence)
		}
	}
}

// Nor does a mark of the proposals that is none of ours.
func TestAlienProposedMark(t *testing.T) {
	w, d := newVoting(t)
	for _, text := range []string{"", "abc", strings.Repeat("x", 67), strings.Repeat("1", 66), strings.Repeat("1", 68)} {
		w.do("SET", proposedKey, text)
		for _, r := range []contend.Owner{proposing("k", w.micros()), queued(proposing("k", w.micros()))} {
			w.refuses(d, r, proposedKey)
		}
	}
}

// The last exactly representable numbers are granted once each, and then none.
func TestFencesEnd(t *testing.T) {
	w, d := newPlain(t)
	const last = 1<<53 - 1
	w.do("SET", markKey, "9007199254740987")
	for fence := uint64(last - 3); fence <= last; fence++ {
		if got := w.grant(d, ask("k"+string(rune('a'+last-fence)))).Fence; got != fence {
			t.Fatalf("the fence is %d, want %d", got, fence)
		}
	}
	w.refuses(d, ask("z"), markKey)
	w.do("SET", markKey, "9007199254740985")
	many := ask("many")
	many.Fences = 64
	w.refuses(d, many, markKey)
	calls := tries(d, ask("m"), ask("n"), ask("o"))
	w.together(d, calls...)
	for i, c := range calls {
		if f, ok := granted(c); !ok || f != uint64(last-5+i) {
			t.Errorf("request %d of one script: fence %d, %v", i, f, c.Err)
		}
	}
}

// Many fences for one of several requests in a script are all below the mark.
func TestManyFencesInCompany(t *testing.T) {
	w, d := newPlain(t)
	var rs []contend.Owner
	for _, key := range []string{"a", "b", "c"} {
		r := ask(key)
		r.Fences = 64
		rs = append(rs, r)
	}
	calls := tries(d, rs...)
	w.together(d, calls...)
	last := uint64(0)
	for i, c := range calls {
		f, ok := granted(c)
		if !ok || last > 0 && f < last+64 {
			t.Errorf("request %d of one script: fence %d after %d, %v", i, f, last, c.Err)
		}
		last = f
	}
	if mark, err := w.admin.Get(w.ctx, markKey).Uint64(); err != nil || mark < last {
		t.Errorf("the mark is %d, below the fence %d (%v)", mark, last, err)
	}
}

// A server whose clock is two centuries ahead, and right again.
func TestFencesAfterAClockFarAhead(t *testing.T) {
	w, step := clocked(t)
	d := w.driver(nil)
	step("+7253280000")
	_, err := contend.Try(w.ctx, seen(d), ask("k"))
	var data *DataError
	if !errors.As(err, &data) || data.Key != "" || !strings.Contains(err.Error(), "clock") {
		t.Errorf("in the year 2256: %v", err)
	}
	step("+0")
	before := w.grant(d, ask("a")).Fence
	step("+6307200000")
	fence := w.grant(d, ask("b")).Fence
	step("+0")
	for _, key := range []string{"c", "d", "e"} {
		next := w.grant(d, ask(key)).Fence
		failIf(t, next <= fence || fence <= before, "the fence %d after %d after %d", next, fence, before)
		fence = next
	}
}

// A grant record that is none of ours grants nothing, and a release frees the key.
func TestAlienGrant(t *testing.T) {
	w, d := newPlain(t)
	for _, text := range []string{"", "abc", strings.Repeat("A", 26) + " 0x10000000000000 1763719200123 h",
		strings.Repeat("A", 26) + " 1763719200123456 1763719200123 q",
		strings.Repeat("A", 26) + " 1763719200123456 176371920012 h", strings.Repeat("A", 25) + " 1763719200123456 17637192001234 h",
		strings.Repeat("A", 26) + " 176371920012345 17637192001234 h", strings.Repeat("A", 26) + " 9999999999999999 1763719200123 F"} {
		held, waits := ask("k"), ask("k")
		w.on(d).grant(held).do("SET", d.names("k").grant, text)
		if !strings.HasPrefix(text, "A") || !strings.HasSuffix(text, "F") {
			w.refuses(d, queued(waits), d.names("k").grant)
		}
		w.on(d).release(held).do("SET", d.names("free").grant, text)
		w.refuses(d, queued(ask("free")), d.names("free").grant)
		w.do("FLUSHALL")
	}
}

// A queue whose numbers have no order any more accepts nobody.
func TestAlienQueue(t *testing.T) {
	w, d := newPlain(t)
	names := d.names("k")
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b)
	for _, number := range []float64{1e300, 1 << 53, 1<<53 - 1, -5, 0.5} {
		w.admin.ZAdd(w.ctx, names.queue, redis.Z{Score: number, Member: "someone"})
		if number > 1 {
			w.refuses(d, queued(ask("k")), names.queue)
		}
		w.admin.ZRem(w.ctx, names.queue, "someone")
	}
	w.admin.HSet(w.ctx, names.places, b.Owner, "abc def") // a place without a valid value is ignored
	w.renewsNothing(d, queued(b))
	w.on(d).join(b).release(a).claim(b)
	c := ask("k")
	w.wait(d, c)
	w.admin.HSet(w.ctx, names.places, c.Owner, "abc def")
	w.release(d, b)
	failIf(t, w.holder(d, "k") != "", "the key was handed to it")
	w.grant(d, queued(c))
}

// What a script did not expect is an error of the store's data, not one to ask again for.
func TestAlienLease(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	a.Mode = driver.Shared
	w.grant(d, a)
	w.admin.HSet(w.ctx, d.names("k").held, value(a.Claim()), "abc")
	w.refuses(d, queued(a), d.names("k").held)
	b := ask("bad") // the name of a person, where a score of ours was
	w.do("SET", d.names("bad").grant, d.names("bad").grant+" x")
	w.refuses(d, queued(b), d.names("bad").grant)
}
