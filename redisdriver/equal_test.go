// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

var (
	equalLength = flag.Int("equal", 3, "how long the sequences of TestScriptsEqualMemory are at most")
	equalPart   = flag.Int("part", 0, "run one in so many of the longest sequences, and at least one with each adjacent pair of requests; 0: all, or one in 7 with -short")
)

// All sequences of requests up to a length, of owners of every mode, and with time
// that passes in between, get the same answers from each variant of the scripts as
// from the engine in memory, and leave the same state behind, all of which expires. make test runs a sample of
// the longest sequences, make equal all of them.
func TestScriptsEqualMemory(t *testing.T) {
	t.Parallel()
	part := *equalPart
	if part == 0 && testing.Short() {
		part = 7
	}
	for _, node := range []bool{false, true} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("node=%v,alone=%v", node, alone), func(t *testing.T) {
				t.Parallel()
				e := newEquality(t, node, alone)
				e.sample.part = part
				total := 0
				for n := 1; n <= *equalLength; n++ {
					total += e.compare(t, casts(n), n)
				}
				t.Logf("%d sequences", total)
				for _, d := range e.differences {
					t.Error(d)
				}
			})
		}
	}
}

// casts are the modes of the owners, two of them in the longest sequences: X Exclusive,
// S Shared, 1 and 2 Shared with that limit.
func casts(length int) []string {
	two := []string{"XX", "XS", "SS", "X1", "X2", "S1", "S2", "11", "12", "22"}
	if length >= 3 && length == *equalLength {
		return two
	}
	return append(two, "XXX", "XXS", "XSS", "SSS", "X11", "X22", "XS2", "S12", "222")
}

// A script with one wrong word is distinguished from the engine in memory.
func TestEqualityFindsBrokenScripts(t *testing.T) {
	t.Parallel()
	for _, b := range []struct {
		cast        string
		node, alone bool
		good, bad   string
	}{
		{"XX", false, false, "cur == value and call('EXISTS', queueKey) == 0 and", "cur == value and"}, // forgets who waits
		{"XX", false, true, "inWay = seen[1] == value and call('EXISTS', queueKey)", "inWay = seen[1] == value and 0"},
		{"XX", false, true, "call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])", "call('EXISTS', lockKey, grantKey)"}, // overtakes a queue, and a tombstone
		{"XX", false, false, "call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])", "call('EXISTS', lockKey, grantKey)"},
		{"XX", false, false, "(known.mark or most ~= newest)", "(most ~= newest)"}, // tells nobody who did not finish
		{"12", false, false, "known.n < known.least and (limit", "(limit"},         // heeds the limit of the one that asks alone
		{"XX", true, false, "local low = fence <= least", "local low = false"},     // grants any fence
	} {
		t.Run(fmt.Sprintf("%s, alone=%v", b.bad, b.alone), func(t *testing.T) {
			t.Parallel()
			e := newEquality(t, b.node, b.alone)
			all := *e.drivers[0].scripts
			text := strings.ReplaceAll(all.batch.Text(), b.good, b.bad) // some stand there for one that comes alone, too
			broken := wire.NewScript(func() string { return text })
			broken.Batch, broken.Keys = true, all.batch.Keys
			stopIf(t, text == all.batch.Text(), "no script has %q", b.good)
			all.batch = broken
			for _, d := range e.drivers {
				d.scripts = &all
			}
			for n := 1; n <= 3; n++ {
				e.compare(t, []string{b.cast}, n)
			}
			failIf(t, len(e.differences) == 0, "nothing differs")
		})
	}
}

// equality compares the scripts with the engine in memory, on one frozen clock.
type equality struct {
	w               *world // of the scripts
	clock           *frozenClock
	memory, scripts contender
	drivers         []*Driver // of the scripts
	serial          int       // of the keys
	sample          sample
	differences     []string
}

func newEquality(t *testing.T, node, alone bool) *equality {
	w, clock := frozen(t)
	e := &equality{w: w, clock: clock, scripts: contender{node: node}, memory: contender{node: node}}
	var o memdriver.NodeOptions
	if o.Now = clock.now; node {
		o.MaxTTL = equalMaxTTL
	}
	mem := memdriver.NewNode(o)
	for range 3 {
		d := w.driver(nil)
		if node {
			d = w.nodeOver(w.client(nil), equalMaxTTL)
		}
		d.delay.most = maxClaim // as that of the engine in memory
		if alone {              // each request is a script of its own
			d.send.Width(32, 1)
		}
		e.drivers, e.scripts.ds = append(e.drivers, d), append(e.scripts.ds, seen(d))
		e.memory.ds = append(e.memory.ds, mem)
	}
	if node {
		for _, d := range []voting.Recorded{mem, &Node{e.drivers[0]}} {
			rec, err := d.Record(t.Context())
			if err == nil {
				err = d.Admit(t.Context(), rec, equalMaxTTL)
			}
			must(t, err)
		}
	}
	return e
}

// compare runs all sequences of n requests of some casts.
func (e *equality) compare(t *testing.T, casts []string, n int) (total int) {
	t.Helper()
	type pair struct{ memory, scripts *course }
	together := map[string][]pair{} // time passes for many at once
	for _, modes := range casts {
		for _, seq := range sequences(modes, n, e.scripts.node) {
			key := fmt.Sprint("k", e.serial)
			if e.serial++; n == *equalLength && !e.sample.takes(seq, modes) {
				continue
			}
			total++
			together[seq.gaps()] = append(together[seq.gaps()], pair{newCourse(seq, modes, key), newCourse(seq, modes, key)})
		}
	}
	for _, gaps := range slices.Sorted(maps.Keys(together)) {
		pairs := together[gaps]
		for i := range n {
			switch gaps[i] {
			case opShort:
				e.clock.pass(t, shortGap)
			case opLong:
				e.clock.pass(t, longGap)
			}
			inEach(pairs, func(p pair) {
				e.memory.step(t, p.memory, i, e.clock.now())
				e.scripts.step(t, p.scripts, i, e.clock.now())
			})
		}
		e.w.mortal(t)
		for _, p := range pairs {
			if a, b := p.memory, p.scripts; a.heard != b.heard && len(e.differences) < 20 {
				e.differences = append(e.differences, fmt.Sprintf("%s %q:\nmemory  %s\nscripts %s", a.modes, a.seq, a.heard, b.heard))
			}
		}
		if len(e.differences) > 0 {
			break
		}
	}
	return total
}

// sample takes one in so many sequences, and each that has an adjacent pair of requests which no sequence before it had: a
// stride alone is in step with the alphabet, and misses the same pairs in every run.
type sample struct {
	part   int // 0: takes all
	asked  int
	paired map[string]bool
}

func (s *sample) takes(seq sequence, modes string) bool {
	if s.part == 0 {
		return true
	}
	if s.paired == nil {
		s.paired = map[string]bool{}
	}
	s.asked++
	pairs := seq.pairs(modes)
	takes := s.asked%s.part == 0 || slices.ContainsFunc(pairs, func(p string) bool { return !s.paired[p] })
	for _, p := range pairs {
		s.paired[p] = s.paired[p] || takes
	}
	return takes
}

// pairs are the requests that follow each other, each as the mode of its owner and its letter, and whether both have one owner.
func (s sequence) pairs(modes string) (all []string) {
	request := func(i int) string {
		if s[2*i] == ' ' {
			return string(s[2*i : 2*i+2])
		}
		owner, op := s.at(i)
		return string([]byte{modes[owner], op})
	}
	for i := 1; i < len(s)/2; i++ {
		all = append(all, fmt.Sprint(request(i-1), request(i), s[2*i-2] == s[2*i]))
	}
	return all
}

// A sample has every adjacent pair of requests, and is not much larger than its part.
func TestSampleHasEveryPair(t *testing.T) {
	t.Parallel()
	for _, node := range []bool{false, true} {
		for _, part := range []int{7, 8, 1 << 30} {
			s := sample{part: part}
			missing, total, taken := map[string]bool{}, 0, 0
			var ran []string
			for _, modes := range casts(3) {
				for _, seq := range sequences(modes, 3, node) {
					pairs := seq.pairs(modes)
					for _, p := range pairs {
						missing[p] = true
					}
					if total++; s.takes(seq, modes) {
						taken++
						ran = append(ran, pairs...)
					}
				}
			}
			for _, p := range ran {
				delete(missing, p)
			}
			if len(missing) > 0 {
				t.Errorf("node %v, part %d: %d pairs are in no sequence, such as %v", node, part, len(missing), slices.Sorted(maps.Keys(missing))[0])
			}
			if part < 10 && taken > total/4 {
				t.Errorf("node %v, part %d: %d of %d sequences", node, part, taken, total)
			}
			t.Logf("node %v, part %d: %d of %d sequences", node, part, taken, total)
		}
	}
}

// inEach calls f for many at once.
func inEach[T any](all []T, f func(T)) {
	var wg sync.WaitGroup
	next := make(chan T)
	for range min(len(all), 256) {
		wg.Go(func() {
			for v := range next {
				f(v)
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	wg.Wait()
}

// frozenClock is a server's clock that only the test advances.
type frozenClock struct {
	step func(at string)
	look func() uint64

	mu sync.Mutex // memory's timers look at it, too
	at time.Time
}

func (c *frozenClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *frozenClock) pass(t *testing.T, d time.Duration) {
	t.Helper()
	at := c.now().Add(d)
	c.mu.Lock()
	c.at = at
	c.mu.Unlock()
	c.step(at.Format(time.DateTime))
	for c.look() != uint64(at.UnixMicro()) {
		stopIf(t, t.Context().Err() != nil, "the server's clock does not move")
		time.Sleep(time.Millisecond) // the server reads the file now and then
	}
}

// frozen is a world with such a clock.
func frozen(t *testing.T) (*world, *frozenClock) {
	t.Helper()
	c := &frozenClock{at: time.Now().UTC().Truncate(time.Second)}
	w, write := fakeClock(t, c.at.Format(time.DateTime), "FAKETIME_CACHE_DURATION=1")
	c.step, c.look = write, w.micros
	w.ctx = t.Context() // how long all sequences take is the machine's affair
	return w, c
}
