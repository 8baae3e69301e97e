// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// What a newer hasp wrote is refused, for what it is, whatever is asked, and stays as it is.
func TestNewerLayoutIsRefused(t *testing.T) {
	const text = "v3 of a later day"
	read := contend.Owner{Mode: driver.Shared}
	for name, c := range map[string]struct {
		node  bool
		mode  contend.Owner
		place bool // b waits
		newer func(w *world, d *Driver, a, b contend.Owner) (record string)
		fails string // what is refused; all else works
	}{
		"the grant of a lease": {
			newer: func(w *world, d *Driver, _, _ contend.Owner) string { return w.overwrite(d.names("k").grant, text) },
			fails: "try a, try b, try unqueued, renew a, release a, inspect, sweep",
		},
		"the grant of a reader": {
			mode:  read,
			newer: func(w *world, d *Driver, _, _ contend.Owner) string { return w.overwrite(d.names("k").grant, text) },
			fails: "try a, try b, try unqueued, renew a, release a, inspect, sweep",
		},
		"the grant of a vote": {
			node:  true,
			newer: func(w *world, d *Driver, _, _ contend.Owner) string { return w.overwrite(d.names("k").grant, text) },
			fails: "try a, try b, try unqueued, renew a, release a, inspect, sweep",
		},
		"the grant of a free key": {
			newer: func(w *world, d *Driver, _, _ contend.Owner) string {
				w.do("DEL", "lock:k")
				return w.overwrite(d.names("k").grant, text)
			},
			fails: "try a, try b, try unqueued, renew a, release a, inspect",
		},
		"a grant without an expiry": {
			newer: func(w *world, d *Driver, _, _ contend.Owner) string {
				w.do("DEL", "lock:k")
				w.do("SET", d.names("k").grant, text)
				return d.names("k").grant
			},
			fails: "try a, try b, try unqueued, renew a, release a, inspect, sweep",
		},
		"the place of the next": {
			place: true,
			newer: func(w *world, d *Driver, _, b contend.Owner) string {
				w.do("DEL", "lock:k", d.names("k").grant)
				w.do("HSET", d.names("k").places, b.Owner, text)
				return d.names("k").places
			},
			fails: "try a, try b, try unqueued, renew b, inspect, sweep",
		},
		"the mark": {
			newer: func(w *world, d *Driver, _, _ contend.Owner) string {
				w.do("DEL", "lock:k", d.names("k").grant)
				return w.overwrite(markKey, text)
			},
			fails: "try a, try b, try unqueued",
		},
		"the proposals' mark": {
			node: true,
			newer: func(w *world, d *Driver, _, _ contend.Owner) string {
				w.do("DEL", "lock:k", d.names("k").grant)
				return w.overwrite(proposedKey, text)
			},
			fails: "try a, try b, try unqueued",
		},
		"the node record": {
			node:  true,
			newer: func(w *world, _ *Driver, _, _ contend.Owner) string { return w.overwrite(recordKey, text) },
			fails: "try a, try b, try unqueued, renew a, renew b, record",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, d := newPlain(t)
			if c.node {
				d = w.node()
				w.admit(d)
			}
			ready := func(r contend.Owner) contend.Owner {
				if r.Mode, r.Settled = c.mode.Mode, true; c.node {
					r.Fence = w.micros()
				}
				return r
			}
			a, b := ready(ask("k")), ready(ask("k"))
			w.grant(d, a)
			if c.place {
				w.refuse(d, queued(b))
			}
			record := c.newer(w, d, a, b)
			before := w.dumps()
			fails := func(what string) bool { return strings.Contains(", "+c.fails+",", ", "+what+",") }
			for what, err := range w.askAll(d, a, b, fails("sweep")) {
				var later *LayoutError
				switch {
				case !fails(what):
					failIf(t, errors.As(err, &later), "%s is refused: %v", what, err)
				case !errors.As(err, &later):
					t.Errorf("%s: %v", what, err)
				case later.Key != record || later.Layout != 3 || d.Classify(err) != driver.ClassImpossible ||
					!strings.Contains(err.Error(), "written by a newer hasp (layout 3; this build knows 1): upgrade this program"):
					t.Errorf("%s: class %v, %v", what, d.Classify(err), err)
				}
			}
			after := w.dumps()
			for key := range before {
				if (key == record || key == "lock:k" && fails("release a")) && before[key] != after[key] {
					t.Errorf("%q was changed", key)
				}
			}
		})
	}
}

// overwrite replaces a text, which keeps its expiry.
func (w *world) overwrite(key, text string) string {
	w.do("SET", key, text, "KEEPTTL")
	w.do("PEXPIRE", key, 60_000)
	return key
}

// dumps is everything in the server.
func (w *world) dumps() map[string]string {
	all := map[string]string{}
	for _, key := range w.keys() {
		all[key] = fmt.Sprint(w.do("DUMP", key))
	}
	return all
}

// askAll asks for everything that there is to ask of a key that a has and b wants, and releases last. hidden: no
// sweep shows it.
func (w *world) askAll(d *Driver, a, b contend.Owner, hidden bool) map[string]error {
	errs := map[string]error{}
	try := func(what string, r contend.Owner) { _, errs[what] = contend.Try(w.ctx, seen(d), r) }
	renew := func(what string, r contend.Owner) { errs[what] = w.renew(d, r)[0] }
	c := b
	c.Owner = ask("k").Owner
	try("try a", a)
	try("try b", queued(b))
	try("try unqueued", c)
	renew("renew a", a)
	renew("renew b", queued(b))
	_, errs["inspect"] = d.Inspect(w.ctx, "k")
	for _, err := range d.List(w.ctx, "") {
		errs["list"] = errors.Join(errs["list"], err)
	}
	held := func(i driver.Info) {
		failIf(w, hidden, "a sweep shows %+v", i)
	}
	for l, err := range d.ListLeftovers(w.ctx, "", held) {
		if errs["sweep"] = err; err == nil {
			w.Errorf("%q is left over", l.Name)
		}
	}
	if d.maxTTL != 0 {
		_, errs["record"] = (&Node{d}).Record(w.ctx)
	}
	errs["release a"] = contend.Release(w.ctx, seen(d), a)
	return errs
}

// One key with a record of a newer hasp refuses nothing to the others in its batch, and a listing of leftovers goes on behind it.
func TestNewerLayoutBesideOthers(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	var all []contend.Owner
	for i := range 40 {
		r := ask(fmt.Sprint("k", i))
		w.grant(d, r)
		all = append(all, r)
	}
	w.overwrite(d.names("k7").grant, "v2")
	w.do("PERSIST", "lock:k7")
	w.do("SET", d.names("old").grant, "x") // left over
	w.do("DEL", d.names("k9").grant)
	w.do("PERSIST", "lock:k9")
	for i, err := range w.renew(d, all...) {
		if later := new(LayoutError); errors.As(err, &later) != (i == 7) || i != 7 && err != nil {
			t.Errorf("renewal %d: %v", i, err)
		}
	}
	left := map[string]bool{}
	var last error
	for l, err := range d.ListLeftovers(w.ctx, "", nil) {
		if last = err; err == nil {
			left[l.Key] = true
			if l.Key == "k9" {
				l.Name, l.Key, l.State = "lock:k7", "k7", "lease unknown "+w.admin.Get(w.ctx, "lock:k7").Val()
				if _, err := d.RemoveLeftover(w.ctx, l); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("what stands beside a newer grant is removed: %v", err)
				}
			}
		}
	}
	if later := new(LayoutError); !errors.As(last, &later) || later.Key != d.names("k7").grant || !left["old"] || !left["k9"] || left["k7"] {
		t.Errorf("a sweep shows %v, and %v", left, last)
	}
	calls := make([]error, len(all))
	for i, r := range all {
		calls[i] = contend.Release(w.ctx, d, r)
	}
	for i, err := range calls {
		failIf(t, (err != nil) != (i == 7), "release %d: %v", i, err)
	}
}

// A list has the key that a newer hasp uses as such, and all others as ever.
func TestNewerLayoutHidesNoKeyFromAList(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	w.grant(d, ask("held"))
	for _, key := range []string{"the holder's", "the waiter's"} {
		w.grant(d, ask(key))
		b := ask(key)
		w.refuse(d, queued(b))
		if key == "the waiter's" {
			w.do("HSET", d.names(key).places, b.Owner, "v2 anything")
		} else {
			w.overwrite(d.names(key).grant, "v2 anything")
		}
	}
	w.on(d).grant(ask("waited for")).join(ask("waited for")).grant(ask("the last holder's"))
	w.overwrite(d.names("the last holder's").grant, "v2")
	listed := map[string]string{}
	for info, err := range d.List(w.ctx, "") {
		if err != nil {
			t.Error(err)
		}
		listed[info.Key] = fmt.Sprintf("held %v, foreign %v, %d wait, %s", info.Held, info.Holder.Foreign, info.Waiters, info.Holder.Label)
	}
	newer, label := "held true, foreign true, 0 wait, (a newer hasp, layout 2)", ask("").Label
	want := map[string]string{
		"held":              "held true, foreign false, 0 wait, " + label,
		"waited for":        "held true, foreign false, 1 wait, " + label,
		"the holder's":      newer,
		"the last holder's": newer,
		"the waiter's":      newer,
	}
	failIf(t, !maps.Equal(listed, want), "listed %q, want %q", listed, want)
}

// The scripts take the same texts for a newer hasp's as this package does. Others are damage, which costs no holder its lease.
func TestWhatIsANewerLayout(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	for text, want := range map[string]int{
		"v2": 2, "v10 and more": 10, "v3_": 3, "v99999999999999999999": math.MaxInt, "v": 0, "v0": 0, "vandal": 0, "V2": 0, " v2": 0, "x": 0,
	} {
		a := ask(text)
		w.grant(d, a)
		w.overwrite(d.names(text).grant, text)
		contend.Renew(w.ctx, d, []contend.Owner{a}, func(_ int, r driver.Renewal) {
			if later := new(LayoutError); errors.As(r.Err, &later) && later.Layout != want || errors.As(r.Err, &later) != (want > 0) || want == 0 && r.Err != nil {
				t.Errorf("%q: %v", text, r.Err)
			}
		})
		if err := newer("k", text); (err != nil) != (want > 0) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A place that nothing here understands holds its rank while its waiter may live, and goes when the waiter is over.
func TestStrangePlaceIsNotOvertaken(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).join(b)
	strange := func(patience time.Duration) {
		w.do("HSET", d.names("k").places, b.Owner, fmt.Sprintf("%013d %d 500 cX7 hasp.inbox:x", w.micros()/1000, patience.Milliseconds()))
	}
	strange(time.Minute)
	w.release(d, a) // nothing is handed to it, nor to another
	w.refuses(d, ask("k"), d.names("k").places)
	if data := new(DataError); !errors.As(w.renew(d, queued(b))[0], &data) {
		t.Error("a sign of life from it is no error")
	}
	failIf(t, !w.admin.HExists(w.ctx, d.names("k").places, b.Owner).Val(), "the place is gone")
	strange(0)
	w.grant(d, ask("k"))
}

// The guard of a newer hasp is refused, too.
func TestNewerGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("SET", "hasp.guard:{r}", "v2 7")
	_, err := NewGuard(w.admin).Write(w.ctx, "r", 9, nil)
	if later := new(LayoutError); !errors.As(err, &later) || w.admin.Get(w.ctx, "hasp.guard:{r}").Val() != "v2 7" {
		t.Errorf("a write says %v", err)
	}
}
