// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	// patient is how long a call may take whose connection is reset, and every one that is not cut.
	patient = 30 * time.Second
	// brief is how long one may take that gets no answer: its caller gives up then.
	brief = 500 * time.Millisecond
	// lasts is the TTL of every lease, so that none ends by itself.
	lasts = 2 * time.Minute
)

// request asks for a key, with an owner of its own.
func request(key string) driver.TryRequest {
	return driver.TryRequest{Claim: driver.Claim{Key: key, Owner: rand.Text(), Label: "a sweep"}, TTL: lasts, Patience: lasts}
}

// step is one operation that is cut once.
type step struct {
	w   *sweep
	op  *operation
	cut Cut
	dir faultproxy.Direction
	k   int // at which chunk, from 1

	far   driver.Driver // behind the links
	links []*faultproxy.Proxy
	r     driver.TryRequest // its own
	other driver.TryRequest // that of another owner, whom the near driver serves
	fence uint64            // once granted

	seen     atomic.Int64  // chunks of the operation in its direction
	happened chan struct{} // closed once it is cut
	release  chan struct{} // closed to deliver what comes late
}

// run reports whether the operation was cut.
func (s *step) run() (cut bool) {
	_, err := testserver.Perform(s.w.t.Context(), func(t *testserver.Program) any {
		s.links = s.w.store.Links(t)
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
		t.Must(s.op.run(s, t.Context()))
		cut = s.isCut()
		return nil
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

func (s *step) isCut() bool {
	select {
	case <-s.happened:
		return true
	default:
		return false
	}
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

// call carries out the operation itself, which may be cut: by limit it has to end.
func (s *step) call(ctx context.Context, f func(ctx context.Context) error) error {
	s.arm()
	limit := patient
	if s.cut != Lost {
		limit = brief
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	if took := time.Since(began); took > limit+patient {
		s.found("it returned %v after its context had ended", took-limit)
	}
	s.disarm()
	if err != nil && !errors.Is(err, driver.ErrNotHeld) && !s.isCut() && s.cut == Lost {
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

func (s *step) mended() bool {
	select {
	case <-s.release:
		return true
	default:
		return false
	}
}

// again calls f until it has an answer: the connection may have to be made anew.
func (s *step) again(ctx context.Context, f func(ctx context.Context) error) error {
	var err error
	for until := time.Now().Add(soon); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(ctx, patient)
		err = f(ctx)
		cancel()
		if err == nil || errors.Is(err, driver.ErrNotHeld) {
			return err
		}
	}
	return fmt.Errorf("no answer within %v: %w", soon, err)
}
