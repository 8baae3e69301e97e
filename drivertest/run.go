// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package drivertest is the specification of an engine: a table of cases, each
// with its rule as a sentence. An engine's own test calls [Run]:
//
//	func TestEngine(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{New: func(t testing.TB) drivertest.Store {
//			file := filepath.Join(t.TempDir(), "locks.db") // a store of its own
//			return drivertest.Store{Open: func() driver.Driver { return open(t, file) }}
//		}})
//	}
//
// What an engine promises is known from its [driver.Traits], never from its name: a case
// that needs more is skipped, and names the missing trait.
// Decorators of an engine must pass, too.
package drivertest

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Harness says how to make stores to test.
type Harness struct {
	// New makes an empty store for one case, and closes what it opened with
	// t.Cleanup. A store with a node record (voting.Recorded) must be held back then,
	// as it is when it is new or was flushed: the suite admits it, for the MaxTTL of
	// its Traits, which must be an hour at least. Where a decorator hides the record,
	// New admits the store itself.
	New func(t testing.TB) Store
	// TTL is the TTL of leases that a case waits to end. It must be long enough for a
	// few requests. 0 means 30 seconds with Fake, else 500 milliseconds. An engine's
	// MinTTL is used when it is longer.
	TTL time.Duration
	// Parallel runs the cases in parallel, as t.Parallel does: most of them wait for
	// leases to end. New must make a separate store for each.
	Parallel bool
	// AtOnce is how many cases run at once with Parallel, whatever the -parallel of go test is:
	// few for a store that works more than it waits. 0 means that t.Parallel decides.
	AtOnce int
	// Only leaves out the cases with other names, of a variant of an engine that passes all of them elsewhere: the
	// reason stands beside it. nil: all.
	Only *regexp.Regexp
	// Fake runs each case in a testing/synctest bubble, where waiting takes no
	// time. It needs a store without I/O.
	Fake bool
}

// Store is a store under test.
type Store struct {
	// Open returns a new driver for the store, as another process would have it:
	// with its own connections where the engine has any. The suite closes it.
	Open func() driver.Driver
	// Leftovers returns the names, in the store's own terms, of everything in the
	// store that will not expire. nil: the store cannot be searched.
	Leftovers func() []string
	// Names returns the names, in the store's own terms, of everything in the store
	// now. nil: it has no names that a key could collide with.
	Names func() []string
	// Ended reports whether nothing of a lease on key is left on any node of the
	// store. nil: there is one node, and Inspect is enough.
	Ended func(key string) bool

	// Persist takes the expiry from the lease on a key, as a person may, and reports whether there was one still. nil: no lease is
	// without one.
	Persist func(key string) bool

	// How a store with a node record loses its data, or seems to. Each returns when
	// the store can be reached again. nil: the cases that need it are skipped.
	Restart func() // its process is replaced by one without data
	Reload  func() // its process is replaced by one with all its data
	Flush   func() // it loses all its data, including its record, and continues to run
}

// A Case is one rule and the test of it.
type Case struct {
	Name string
	// Rule is what the engine must do, as a sentence.
	Rule string
	// Needs are the traits without which the rule does not apply.
	Needs []Need

	// timely: the case must do something within a TTL, such as to renew, for which a busy
	// machine and a slow disk must be allowed more. It begins anew with more yet, twice at most, when it
	// fails and the machine was so slow that it proves nothing. Only its own goroutine calls env.Fatalf.
	timely bool
	// claims: the case looks at what was handed off before its claim time has passed, and
	// begins anew when that was too late. Only its own goroutine calls env.Fatalf.
	claims bool
	// play is the case as a trace; see step. run is the case as a function, where a trace cannot say it.
	play string
	run  func(e *env)
}

// A Need is a trait that an engine may have or not.
type Need struct {
	Trait string
	Met   func(driver.Driver) bool
}

var (
	needQueue     = need("Queue", func(t driver.Traits) bool { return t.Queue != driver.QueueNone })
	needHandoff   = need("Queue: QueueHandoff", func(t driver.Traits) bool { return t.Queue == driver.QueueHandoff })
	needHints     = need("TellsFree", func(t driver.Traits) bool { return t.Tells.Has(driver.TellsFree) })
	needJoinFirst = need("TellsEarlier", func(t driver.Traits) bool { return t.Tells.Has(driver.TellsEarlier) })
	needNoQueue   = need("Queue: QueueNone", func(t driver.Traits) bool { return t.Queue == driver.QueueNone })
	needFencing   = need("Fencing", func(t driver.Traits) bool { return t.Fencing })
	needMarks     = need("MarksAbandoned", func(t driver.Traits) bool { return t.MarksAbandoned })
	needShared    = need("Shared", func(t driver.Traits) bool { return t.Shared })
	needSlots     = need("Slots", func(t driver.Traits) bool { return t.Slots })
	needNoSlots   = need("Slots: false", func(t driver.Traits) bool { return !t.Slots })
	needNoShare   = need("Shared: false", func(t driver.Traits) bool { return !t.Shared })
	needNode      = Need{"voting.Node", func(d driver.Driver) bool { _, ok := d.(voting.Node); return ok }}
)

func need(trait string, met func(driver.Traits) bool) Need {
	return Need{trait, func(d driver.Driver) bool { return met(d.Traits()) }}
}

// Cases returns the table. Each case may be run by itself.
func Cases() []Case {
	var all []Case
	for _, part := range [][]Case{
		leaseCases, queueCases, fenceCases, sharedCases, abandonedCases, tellCases, lookCases, randomCases, nodeCases, coreCases,
	} {
		all = append(all, part...)
	}
	return all
}

// Run runs every case as a subtest.
func Run(t *testing.T, h Harness) {
	slots := make(chan struct{}, h.AtOnce)
	var begun sync.WaitGroup
	for _, c := range Cases() {
		if h.Only != nil && !h.Only.MatchString(c.Name) {
			continue
		}
		if !h.Parallel || h.AtOnce == 0 {
			c.sub(t, h)
			continue
		}
		slots <- struct{}{}
		begun.Go(func() {
			defer func() { <-slots }()
			c.sub(t, h)
		})
	}
	begun.Wait()
}

// sub runs the case as a subtest.
func (c Case) sub(t *testing.T, h Harness) {
	t.Run(c.Name, func(t *testing.T) {
		if h.Parallel && h.AtOnce == 0 {
			t.Parallel()
		}
		if !h.Fake {
			c.Run(t, h)
			return
		}
		synctest.Test(t, func(t *testing.T) { c.Run(t, h) })
	})
}

// Run runs one case, and reports its rule when it fails. With Harness.Fake the
// caller provides the bubble.
func (c Case) Run(t testing.TB, h Harness) {
	at := ""
	t.Cleanup(func() {
		if t.Failed() && at != "" {
			t.Logf("what did not hold: %s of: %s", at, strings.Join(strings.Fields(c.play), " "))
		}
		if t.Failed() {
			t.Logf("the rule: %s", c.Rule)
		}
	})
	for anew := 5; ; anew-- {
		e := newEnv(t, h)
		e.at = &at
		for _, n := range c.Needs {
			if !n.Met(e.d) {
				t.Skipf("%s does not promise this: needs the trait %s", e.traits.Engine, n.Trait)
			}
		}
		e.again = !h.Fake && anew > 0
		switch {
		case !e.again: // a fake clock does not run while a goroutine works
		case c.timely:
			e.ttl *= 6 << (5 - anew)
			e.hurries = anew > 3
		case c.claims:
			e.anew = true
		}
		if e.carriesOut(c) {
			return
		}
	}
}

// carriesOut is false when the case is to begin anew, in another store.
func (e *env) carriesOut(c Case) (done bool) {
	defer func() {
		if why := recover(); why == errAnew { //nolint:errorlint // the value itself
			e.Logf("begun anew: %v", why)
		} else if why != nil {
			panic(why)
		}
	}()
	if c.play != "" {
		e.play(c.play)
	} else {
		c.run(e)
	}
	return !e.void.Load()
}
