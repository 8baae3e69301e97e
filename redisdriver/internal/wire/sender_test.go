// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// answering is a client whose server answers everything.
type answering struct{ redis.UniversalClient }

func (answering) Process(_ context.Context, c redis.Cmder) error {
	time.Sleep(2 * time.Millisecond)
	c.(*command).SetVal([]any{"x"})
	return nil
}

// eachAlone is a Sender whose calls travel alone, as in a cluster.
func eachAlone(rdb redis.UniversalClient) *Sender {
	s := NewSender(GoRedis(rdb), 0, make(chan struct{}))
	s.Width(1<<20, 1)
	return s
}

func batch() *Script {
	s := NewScript(func() string { return "return {}" })
	s.Batch = true
	return s
}

// Bursts of calls in a cluster, at the moment when the lanes of the last one
// end, block nobody.
func TestBurstsOfLanes(t *testing.T) {
	t.Parallel()
	s, script := eachAlone(answering{}), batch()
	for round := range 15 {
		var wg sync.WaitGroup
		for range 400 {
			wg.Go(func() {
				if _, err := s.Do(t.Context(), &Call{Script: script}); err != nil {
					t.Error(err)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("calls are stuck")
		}
		time.Sleep(idleTime - time.Duration(round)*time.Millisecond)
	}
}

// No more lanes rest than there is room for tokens: to wake one never waits.
func TestIdleLanesWithinTheirTokens(t *testing.T) {
	for name, full := range map[string]func(*Sender){
		"as many are idle": func(s *Sender) { s.idle = cap(s.wake) },
		"as many tokens are out": func(s *Sender) {
			for range cap(s.wake) {
				s.wake <- true
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := eachAlone(answering{})
			full(s)
			start := time.Now()
			s.mu.Lock()
			s.busy++
			if s.rest() || time.Since(start) > 0 {
				t.Errorf("%s: one more rested for %v", name, time.Since(start))
			}
		})
	}
}

// forgetful is a client whose server knows no script by its name; leave is called once it has said so.
type forgetful struct {
	redis.UniversalClient
	leave func()
	texts *int // scripts that came whole
}

func (f forgetful) Process(_ context.Context, c redis.Cmder) error {
	cmd := c.(*command)
	if cmd.Args()[0] == "evalsha" {
		cmd.SetErr(noScript{})
		f.leave()
		return noScript{}
	}
	*f.texts++
	cmd.SetVal("x") // what comes alone is answered without a list
	return nil
}

type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScript) RedisError()   {}

// What a server did not know is not sent again for a caller that left: what it
// requested may be released by now.
func TestNotAgainForWhoeverLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	texts, script := 0, batch()
	s := NewSender(GoRedis(forgetful{leave: leave, texts: &texts}), 0, make(chan struct{}))
	left, stays := &Call{Script: script, ctx: ctx}, &Call{Script: script, ctx: t.Context()}
	s.Exec(t.Context(), []*Call{left, stays})
	if !errors.Is(left.Err, context.Canceled) || left.Reply != nil {
		t.Errorf("for the one that left: %v, %v", left.Reply, left.Err)
	}
	if stays.Err != nil || stays.Reply != "x" || texts != 1 {
		t.Errorf("for the other: %v, %v, and %d scripts", stays.Reply, stays.Err, texts)
	}
}

// A caller waits for itself only where that ends with a deadline, and for no replicas.
func TestWhereCallersWaitForThemselves(t *testing.T) {
	heeds := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer heeds.Close()
	not := redis.NewClient(&redis.Options{})
	defer not.Close()
	for _, c := range []struct {
		rdb      redis.UniversalClient
		replicas int
		want     bool
	}{{heeds, 0, true}, {heeds, 1, false}, {not, 0, false}, {(*redis.Client)(nil), 0, false}, {answering{}, 0, false}} {
		if got := NewSender(GoRedis(c.rdb), c.replicas, nil).direct != nil; got != c.want {
			t.Errorf("%T with %d replicas: %v", c.rdb, c.replicas, got)
		}
	}
}
