// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/broken"
)

const (
	// soon bounds what must happen, far above what it takes.
	soon = time.Minute
	// patient is how long a call may take that is not cut, or that has its connection reset.
	patient = 30 * time.Second
	// brief is how long a call may take that gets no answer: its caller gives up then.
	brief = 500 * time.Millisecond
	// lasts is the TTL of every lease, so that none ends by itself.
	lasts = 2 * time.Minute
)

// request asks for a key, with an owner of its own.
func request(key string) driver.TryRequest {
	return driver.TryRequest{Claim: driver.Claim{Key: key, Owner: rand.Text(), Label: "a sweep"}, TTL: lasts, Patience: lasts}
}

// step is one operation that is cut once. An error of a request that nothing disturbs ends it, as does whatever else cannot be done.
type step struct {
	*testserver.Program
	w   *sweep
	op  *operation
	cut Cut
	dir faultproxy.Direction
	k   int // at which chunk, from 1

	far   driver.Driver // behind the links
	links []*faultproxy.Proxy
	r     driver.TryRequest // its own
	other driver.TryRequest // that of another owner, which the near driver serves
	fence uint64            // once granted

	seen     atomic.Int64  // chunks of the operation in its direction
	happened chan struct{} // closed once it is cut
	release  chan struct{} // closed to deliver what comes late
}

// run reports whether the operation was cut.
func (s *step) run() bool {
	cut, err := testserver.Perform(s.w.t.Context(), func(t *testserver.Program) bool {
		s.Program, s.links = t, s.w.store.Links(t)
		conn, err := Open(s.w.store.Kind, s.w.store.Through(s.links))
		t.Must(err)
		t.Cleanup(func() { s.mend(); _ = conn.Close() })
		s.far = broken.Around(conn, s.w.o.Broken)
		key := fmt.Sprintf("%s %s, %s, %d %d", s.w.name, s.op.name, s.cut, s.dir, s.k)
		s.r, s.other = request(key), request(key)
		s.happened, s.release = make(chan struct{}), make(chan struct{})
		s.w.uses(key, 0)
		if !s.op.cold {
			_, err = s.far.Inspect(t.Context(), key) // it is connected
			t.Must(err)
		}
		s.op.run(s)
		return closed(s.happened)
	})
	if err != nil {
		s.found("%v", err)
	}
	return cut
}

func (s *step) found(format string, args ...any) {
	way := map[faultproxy.Direction]string{faultproxy.Up: "request", faultproxy.Down: "answer"}[s.dir]
	s.w.found("%s, chunk %d of the %s %s: %s", s.op.name, s.k, way, s.cut, fmt.Sprintf(format, args...))
}

// arm has the next call cut.
func (s *step) arm() {
	for _, l := range s.links {
		l.Hook(func(c faultproxy.Chunk) bool {
			if c.Dir != s.dir || s.seen.Add(1) != int64(s.k) {
				return false
			}
			close(s.happened)
			switch s.cut {
			case Lost:
				go l.Reset() // within the hook it would wait for itself
			case Mute:
				l.Swallow(s.dir == faultproxy.Up, s.dir == faultproxy.Down)
			case Late:
				<-s.release
				return false
			}
			return true
		})
	}
}

// call is a request to the store.
type call = func(ctx context.Context) error

// asks is the owner's Try; its answer goes to res.
func (s *step) asks(res *driver.Result) call {
	return func(ctx context.Context) (err error) { *res, err = s.far.Try(ctx, s.r); return err }
}

// gives is the Release of what an owner has.
func gives(d driver.Driver, r driver.TryRequest, settled bool) call {
	return func(ctx context.Context) error {
		return d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: settled})
	}
}

// within carries out a request, by limit.
func (s *step) within(limit time.Duration, f call) error {
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	return f(ctx)
}

// call carries out the operation itself, which may be cut: by limit it has to end.
func (s *step) call(f call) error {
	s.arm()
	limit := patient
	if s.cut != Lost {
		limit = brief
	}
	began := time.Now()
	err := s.within(limit, f)
	if took := time.Since(began); took > limit+patient {
		s.found("it returned %v after its context had ended", took-limit)
	}
	s.disarm()
	if err != nil && !errors.Is(err, driver.ErrNotHeld) && !closed(s.happened) && s.cut == Lost {
		s.found("it fails without a cut: %v", err)
	}
	return err
}

// disarm has no later call cut.
func (s *step) disarm() {
	for _, l := range s.links {
		l.Hook(nil)
	}
}

// mend ends the fault: what was held back is delivered, and half-open connections are reset.
func (s *step) mend() {
	s.disarm()
	if s.mended() {
		return
	}
	close(s.release)
	if s.cut == Mute {
		for _, l := range s.links {
			l.Reconnect()
		}
	}
}

func (s *step) mended() bool { return closed(s.release) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// again repeats a request until it has an answer: the connection may have to be made anew.
func (s *step) again(f call) (err error) {
	for until := time.Now().Add(soon); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if err = s.within(patient, f); err == nil || errors.Is(err, driver.ErrNotHeld) {
			return err
		}
	}
	return fmt.Errorf("no answer within %v: %w", soon, err)
}

// mustEnd is Must for a release; what it releases may have ended.
func (s *step) mustEnd(err error) {
	if !errors.Is(err, driver.ErrNotHeld) {
		s.Must(err)
	}
}

// The roles of an owner in the store; "" is none.
const (
	holds = "holds"
	waits = "waits"
)

// role is what the store has of an owner.
func (s *step) role(owner string) string {
	info, err := s.w.near.Inspect(s.Context(), s.r.Key)
	s.Must(err)
	switch {
	case slices.ContainsFunc(info.Holders, func(l driver.Holding) bool { return l.Holder.Owner == owner }):
		return holds
	case slices.ContainsFunc(info.Queue, func(h driver.Holder) bool { return h.Owner == owner }):
		return waits
	}
	return ""
}

// has notes the owner's fence.
func (s *step) has(fence uint64) {
	s.fence = fence
	s.w.uses(s.r.Key, fence)
}

// near has another owner ask over a link without faults, which must be granted the key, or refused.
func (s *step) near(r driver.TryRequest, granted bool) {
	res, err := s.w.near.Try(s.Context(), r)
	s.Must(err)
	switch {
	case res.Granted != granted:
		s.found("another owner asks, and is answered %+v", res)
		if res.Granted {
			s.free(r)
		}
		return
	case granted && r.Mode == driver.Exclusive && res.Fence <= s.fence:
		s.found("the fence %d came after %d", res.Fence, s.fence)
	}
	s.w.uses(r.Key, res.Fence)
}

// free has another owner release.
func (s *step) free(r driver.TryRequest) { s.Must(gives(s.w.near, r, true)(s.Context())) }

// passOn has another owner be granted the key, and release.
func (s *step) passOn(r driver.TryRequest) {
	s.near(r, true)
	s.free(r)
}
