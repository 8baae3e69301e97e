// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/fault"
)

// client returns a hasp.Client on a driver of its own, behind faults.
func (e *env) client(s fault.Script) *hasp.Client {
	e.Helper()
	return e.observed(s, func(context.Context, *event.Event) {})
}

func (e *env) observed(s fault.Script, observe func(context.Context, *event.Event)) *hasp.Client {
	e.Helper()
	d := fault.New(e.store.Open(), s)
	d.Took = e.took
	c, err := hasp.New(d, &hasp.Options{Observe: func(ctx context.Context, ev *event.Event) {
		if ev.Kind == event.Waiting {
			e.mu.Lock()
			e.waiting[ev.Owner] = true
			e.mu.Unlock()
		}
		observe(ctx, ev)
	}})
	if err != nil {
		e.Fatalf("hasp.New: %v", err)
	}
	e.Cleanup(func() { _ = c.Close() }) // the case checks what it leaves
	return c
}

// refused returns how many Locks were refused at least once.
func (e *env) refused() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting)
}

// lasting and short are the options of leases that outlast the case, or not.
func (e *env) lasting() *hasp.LockOptions { return &hasp.LockOptions{TTL: e.long} }
func (e *env) short() *hasp.LockOptions   { return &hasp.LockOptions{TTL: e.ttl} }

func (e *env) lock(c *hasp.Client, o *hasp.LockOptions) *hasp.Lease {
	e.Helper()
	lease, err := c.Mutex("k", o).Lock(e.ctx)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	return lease
}

func (e *env) unlock(l *hasp.Lease) {
	e.Helper()
	if err := l.Release(); err != nil {
		e.failed(classOf(err), err, "Release")
	}
}

// classOf is the class of an error of a lock.
func classOf(err error) driver.Class {
	if failed := (*hasp.Error)(nil); errors.As(err, &failed) {
		return failed.Class
	}
	return driver.ClassUnknown
}

// waiting is a Lock in the background.
type waiting struct {
	*env
	cancel context.CancelCauseFunc
	lease  *hasp.Lease
	err    error
	at     time.Time
	done   chan struct{}
}

// begin starts a Lock, and returns when it waits: in the queue where there is one.
func (e *env) begin(c *hasp.Client, o *hasp.LockOptions) *waiting {
	e.Helper()
	return e.beginLock(c.Mutex("k", o).Lock)
}

// beginLock is begin for any lock of "k".
func (e *env) beginLock(lock func(context.Context) (*hasp.Lease, error)) *waiting {
	e.Helper()
	places, refused := e.inspect("k").Waiters, e.refused()
	w := e.startLock(lock)
	e.eventually(0, "the Lock was refused", func() bool {
		select {
		case <-w.done:
			if e.refused() == refused { // a lease that was to refuse it may have ended meanwhile
				e.Fatalf("the Lock was not refused: granted %v, %v", w.lease != nil, w.err) // not the lease: its renewals go on
			}
		default:
		}
		return e.refused() > refused
	})
	if e.traits.Queue != driver.QueueNone {
		e.eventually(0, "the Lock waits in the queue", func() bool { return e.inspect("k").Waiters > places })
	}
	return w
}

// startLock starts a Lock, which ends with the case.
func (e *env) startLock(lock func(context.Context) (*hasp.Lease, error)) *waiting {
	ctx, cancel := context.WithCancelCause(e.ctx)
	w := &waiting{env: e, cancel: cancel, done: make(chan struct{})}
	e.Cleanup(func() { cancel(nil); <-w.done })
	go func() {
		defer close(w.done)
		w.lease, w.err = lock(ctx)
		w.at = time.Now()
	}()
	return w
}

// granted waits for the lease.
func (w *waiting) granted(limit time.Duration) *hasp.Lease {
	w.Helper()
	comes(w.env, w.done, limit+w.slack, "Lock has not returned")
	if w.err != nil {
		w.Fatalf("Lock: %v", w.err)
	}
	return w.lease
}

// goneFrom waits until the store knows nothing of "k".
func (e *env) goneFrom(limit time.Duration) {
	e.Helper()
	e.eventually(limit, "the store has nothing of the key", func() bool {
		info := e.inspect("k")
		return !info.Held && info.Waiters == 0
	})
}

// locks is the client with which an owner locks: its own, that of another owner or one of three.
func (p *player) locks(s step, name string) *hasp.Client {
	_, spread := s.says["spread"]
	at := cmp.Or(s.says["on"], name)
	if spread {
		at = strconv.Itoa(p.calls % 3)
		p.calls++
	}
	if p.hasps[at] == nil {
		p.hasps[at] = p.env.client(p.faults(s))
	}
	p.hasps[name] = p.hasps[at]
	return p.hasps[name]
}

// faults are those of the client of a step: requests that arrive "twice", or a store that is away in an outage ("faulty"). No
// reply comes, if it is "lossy", to the first request of each kind, and if "forgetful", to the second of two for the key.
func (p *player) faults(s step) fault.Script {
	var converted atomic.Bool
	for word, script := range map[string]fault.Script{
		"twice":  func(fault.Call) fault.Fault { return fault.Fault{Twice: true} },
		"faulty": p.outage.script,
		"lossy": func(c fault.Call) fault.Fault {
			if c.N == 1 && slices.Contains([]fault.Op{fault.Try, fault.Renew, fault.Release}, c.Op) ||
				c.Op == fault.Try && c.Try.Convert && converted.CompareAndSwap(false, true) {
				return fault.Fault{Lost: fault.ErrLink}
			}
			return fault.Fault{}
		},
		"forgetful": func(c fault.Call) fault.Fault {
			if c.Op == fault.Try && c.N%2 == 0 {
				return fault.Fault{Lost: fault.ErrLink}
			}
			return fault.Fault{}
		},
	} {
		if _, ok := s.says[word]; ok {
			return script
		}
	}
	return nil
}

// locker is what an owner locks with, as its name says: w is a writer among readers.
func (p *player) locker(s step, name string) (lock, try func(context.Context) (*hasp.Lease, error)) {
	c, key, o := p.locks(s, name), p.key(name), p.lasting()
	if _, short := s.says["short"]; short {
		o = p.short()
	}
	if _, asks := s.says["asking"]; asks { // which asks when it is handed the key, and does not enter
		o.Lead = o.TTL / 2
	}
	switch m := ownerName.FindStringSubmatch(name); {
	case m[2] != "":
		l := c.Semaphore(key, number(m[2]), o)
		return l.Lock, l.TryLock
	case m[1] == "r":
		l := c.RWMutex(key, o)
		return l.RLock, l.TryRLock
	case m[1] == "w":
		l := c.RWMutex(key, o)
		return l.Lock, l.TryLock
	}
	l := c.Mutex(key, o)
	return l.Lock, l.TryLock
}

// leased notes a lease that is as the step says.
func (p *player) leased(s step, name string, lease *hasp.Lease, err error) {
	p.Helper()
	if err != nil {
		p.failed(classOf(err), err, name)
	}
	if reads := name[0] == 'r' || name[0] == 's'; reads != (lease.Mode() == hasp.Shared) {
		p.Fatalf("%s has a lease of mode %v", name, lease.Mode())
	}
	p.leases[name] = lease
	p.granted(s, name, driver.Result{Granted: true, Fence: lease.Fence(), Slot: lease.Slot(), Abandoned: lease.Abandoned()})
}

// lockVerbs are done with package hasp by each owner of a step, on a client of its own unless it names another's.
var lockVerbs = map[string]func(p *player, s step, name string, r contend.Owner){
	"lock": func(p *player, s step, name string, _ contend.Owner) {
		lock, _ := p.locker(s, name)
		start, slowest := time.Now(), p.stalled()-p.lost() // of earlier requests
		ctx, cancel := context.WithCancel(p.ctx)           // which a lease outlives
		lease, err := lock(ctx)
		cancel()
		took, most := time.Since(start), p.ttl/2+p.lost()+slowest
		if of, after := p.terms[s.says["after"]]; after && time.Since(of.from) > of.ttl+p.slack+most {
			p.Fatalf("%s was granted %v after a lease of %v", name, time.Since(of.from), of.ttl)
		}
		if _, soon := s.says["soon"]; soon && took > most {
			p.Fatalf("%s was granted after %v", name, took)
		}
		p.leased(s, name, lease, err)
	},
	"trylock": func(p *player, s step, name string, _ contend.Owner) {
		_, try := p.locker(s, name)
		lease, err := try(p.ctx)
		p.leased(s, name, lease, err)
	},
	"busy": func(p *player, s step, name string, _ contend.Owner) {
		_, try := p.locker(s, name)
		if _, err := try(p.ctx); !errors.Is(err, hasp.ErrHeld) {
			p.Fatalf("TryLock of %s: %v, want ErrHeld", name, err)
		}
	},
	"begin": func(p *player, s step, name string, _ contend.Owner) { // a Lock in the background
		lock, _ := p.locker(s, name)
		p.waits[name] = p.beginLock(lock)
	},
	"comes": func(p *player, s step, name string, _ contend.Owner) { // the lease of that Lock; "alone": no other does
		lease := p.waits[name].granted(p.limit(s.says["in"]))
		delete(p.waits, name)
		if _, alone := s.says["alone"]; alone {
			for _, other := range p.waits {
				other.stillWaits("while another holds the key")
			}
		}
		p.leased(s, name, lease, nil)
	},
	"cancel": func(p *player, s step, name string, _ contend.Owner) { // a Lock that was kept waiting, by an owner that it names
		w, why := p.waits[name], errors.New("changed my mind")
		delete(p.waits, name)
		w.cancel(why)
		<-w.done
		p.judged = true
		var held *hasp.HeldError
		var silent *hasp.Error
		switch {
		case !errors.Is(w.err, context.Canceled) || !errors.Is(w.err, why):
			p.Errorf("the error is %v, want Canceled with its cause", w.err)
		case errors.As(w.err, &held):
			if want := p.leases[s.says["by"]].Owner(); held.Holder.Owner != want {
				p.Errorf("kept waiting by %+v, want %s", held.Holder, want)
			}
		case p.fake || !errors.As(w.err, &silent) || silent.Class != driver.ClassUnreachable: // a store that is slow is not waited for
			p.Errorf("the error is %v, want a HeldError", w.err)
		}
	},
	"unwanted": func(p *player, s step, name string, _ contend.Owner) {
		select {
		case <-p.leases[name].Wanted():
			p.Fatalf("%s is wanted, but no owner waits", name)
		default:
		}
	},
	"wanted": func(p *player, s step, name string, _ contend.Owner) {
		comes(p.env, p.leases[name].Wanted(), p.ttl+p.slack, "not wanted, but an owner waits,")
	},
	"still":  func(p *player, s step, name string, _ contend.Owner) { p.waits[name].stillWaits(s.text) },
	"unlock": func(p *player, _ step, name string, _ contend.Owner) { p.unlock(p.leases[name]) },
	"downgrade": func(p *player, _ step, name string, _ contend.Owner) {
		if err := p.leases[name].Downgrade(p.ctx); err != nil {
			p.failed(classOf(err), err, "Downgrade")
		}
	},
	"shares": func(p *player, s step, name string, _ contend.Owner) { // after a Downgrade
		lease := p.leases[name]
		if lease.Mode() != hasp.Shared || lease.Err() != nil {
			p.Fatalf("downgraded: mode %v, %v", lease.Mode(), lease.Err())
		}
		p.is(s, name, driver.Result{Granted: true, Fence: lease.Fence()})
	},
	"adopt": func(p *player, s step, name string, _ contend.Owner) {
		from := s.says["from"]
		lease, err := p.locks(s, name).Operator().Adopt(p.ctx, p.key(name), p.owner(from).Owner, p.short())
		if err == nil && p.traits.Fencing && lease.Fence() != p.fences[from] {
			p.Fatalf("the fence is %d, and %d adopted", p.fences[from], lease.Fence())
		}
		p.leased(s, name, lease, err)
	},
}

// stands lets time pass, two TTLs unless it says half of one, after which no lease is lost and no Lock has returned.
func (p *player) stands(s step) {
	p.Helper()
	if s.says["for"] == "half" { // enough for a Lock that does not wait to return
		time.Sleep(p.ttl / 2)
	} else {
		time.Sleep(2 * p.ttl)
	}
	for _, name := range s.owners {
		if w := p.waits[name]; w != nil {
			w.stillWaits("while another holds the key")
		} else if lease := p.leases[name]; lease.Err() != nil {
			p.Fatalf("%s is lost: %v", name, lease.Err())
		}
	}
}

// must returns the lease, and fails if there is none.
func (e *env) must(lease *hasp.Lease, err error) *hasp.Lease {
	e.Helper()
	if err != nil {
		e.failed(classOf(err), err, "not granted")
	}
	return lease
}

// stillWaits fails if the Lock has returned.
func (w *waiting) stillWaits(why string) {
	w.Helper()
	select {
	case <-w.done:
		w.Fatalf("the lock returned (%v) %s", w.err, why)
	default:
	}
}

// outage is a script under which the store is unreachable for some time.
type outage struct {
	start time.Time
	until atomic.Int64 // since start
}

func newOutage() *outage { return &outage{start: time.Now()} }

// begin cuts the store off for d from now on.
func (o *outage) begin(d time.Duration) { o.until.Store(int64(time.Since(o.start) + d)) }

func (o *outage) script(fault.Call) fault.Fault {
	if time.Since(o.start) < time.Duration(o.until.Load()) {
		return fault.Fault{Err: fault.ErrLink}
	}
	return fault.Fault{}
}
