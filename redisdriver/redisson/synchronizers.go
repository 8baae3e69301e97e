// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// SynchronizerOptions say which semaphores and latches Synchronizers reach. A nil *SynchronizerOptions means the zero value.
type SynchronizerOptions struct {
	// Prefix is prepended to every name; "" is none. Redisson's names have none, unless its
	// configuration has a NameMapper.
	Prefix string
}

// Synchronizers are Redisson's semaphores and count-down latches, which Go and Java use together. Create them with
// [NewSynchronizers]. All methods, also those of the handles, may be called concurrently.
//
// Waiters are woken by Redisson's messages, over one connection for subscriptions beside the client's pool; in a cluster one for
// each hash slot with waiters here, at most 32, beyond which waiters ask every second. Messages can be lost:
// a waiter also asks every 3 seconds, and when the connection is there again. While the server cannot be reached a wait goes on
// for 30 seconds; then it ends with the error.
//
// An error that is not the server's own answer leaves open whether the step was carried out, unless a method says more. After Close
// every method returns [driver.ErrClosed], which is hasp.ErrClosed.
type Synchronizers struct {
	*store
	poll time.Duration // how often a waiter asks that gets messages

	mu     sync.Mutex
	closed bool
	giving int // goroutines that give permits back
}

// NewSynchronizers returns Synchronizers that use the caller's client, and never close or change it: a *redis.Client, also of
// Sentinels, or a *redis.ClusterClient. It does no I/O; of a client that cannot be used every method returns the reason.
func NewSynchronizers(rdb redis.UniversalClient, o *SynchronizerOptions) *Synchronizers {
	return SynchronizersOver(wire.GoRedis(rdb), o)
}

// SynchronizersOver is [NewSynchronizers] over another client, see [Over].
func SynchronizersOver(c wire.Client, o *SynchronizerOptions) *Synchronizers {
	if o == nil {
		o = &SynchronizerOptions{}
	}
	return &Synchronizers{store: newStore(c, o.Prefix, wakeSynchronizer, "1"), poll: pollHeard}
}

// Close ends all waits, subscriptions and goroutines. The client stays open, and permits stay acquired. Close waits for
// a second at most: an attempt to connect to a server that hangs ends later, by the client's own timeouts. The error is always nil.
func (s *Synchronizers) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	return nil
}

const latchChannel = "redisson_countdownlatch__channel__"

// wakeSynchronizer gives hints for a message. A semaphore's says how many permits there are: as many waiters are woken that
// were not yet, in the order in which they came. A latch's is 0 when it opens, and then all are.
func wakeSynchronizer(channel, payload string, all []*watcher) {
	n, err := strconv.ParseInt(payload, 10, 64)
	if strings.HasPrefix(channel, latchChannel) {
		if err != nil || n != 0 {
			return
		}
		n = math.MaxInt64
	}
	for _, w := range all {
		if n <= 0 {
			return
		}
		if !w.woken() {
			w.signal()
			n--
		}
	}
}

// object is what the handles of all kinds have: their Synchronizers, and their names in Redis.
type object struct {
	s            *Synchronizers
	what         string
	slot         int
	key, channel string
	bad          error // the name cannot be used
}

func (s *Synchronizers) object(what, name, channel, advice string, others ...string) object {
	o := object{s: s, what: what, slot: s.slotOf(name), key: s.prefix + name, channel: channel, bad: s.bad}
	if err := driver.CheckKey(name); err != nil && o.bad == nil {
		o.bad = fmt.Errorf("redisson: %w", err)
	}
	if o.bad == nil {
		o.bad = s.reserved(name)
	}
	if o.bad == nil && s.cluster {
		o.bad = oneSlot(what, advice, o.key, append(others, channel)...)
	}
	return o
}

// check returns why nothing can be asked for.
func (o *object) check() error {
	if o.s.life.Err() != nil {
		return driver.ErrClosed
	}
	return o.bad
}

// number returns what is wrong with an argument: Java's numbers have 32 bits.
func number(what string, n, least int) error {
	if n < least || n > math.MaxInt32 {
		return fmt.Errorf("redisson: %d %s: it must be %d to %d", n, what, least, math.MaxInt32)
	}
	return nil
}

// answer is what a step of a script says.
type answer struct {
	done    bool
	numbers [2]int64
}

// do runs a step.
func (o *object) do(ctx context.Context, c *wire.Call) (answer, error) {
	if err := o.check(); err != nil {
		return answer{}, err
	}
	if _, err := o.s.send.Do(ctx, c); err != nil {
		return answer{}, err
	}
	return o.read(c)
}

// read reads the reply to a step.
func (o *object) read(c *wire.Call) (a answer, err error) {
	r := wire.NewReply(c.Reply)
	switch code := wire.Next[int64](r); code {
	case 0, 1:
		a.done = code == 1
		for i := range min(len(r.Fields), len(a.numbers)) {
			a.numbers[i] = wire.Next[int64](r)
		}
	case 2: // its release came first
	case -3:
		key, sum := wire.Next[string](r), wire.Next[string](r)
		if !r.Bad {
			return a, fmt.Errorf("redisson: key %q would have %s permits, free and acquired ones, and Java's numbers have 32 bits: nothing was added", key, sum)
		}
	case -1, -2:
		key, is := wire.Next[string](r), wire.Next[string](r)
		if code == -1 {
			is = "a " + is
		} else {
			is = "the text " + wire.Quote(is)
		}
		if !r.Bad {
			return a, &wire.ConfigError{Why: fmt.Sprintf("key %q holds %s, not what a %s has there: choose another name or prefix", key, is, o.what)}
		}
	default:
		r.Bad = true
	}
	if r.Bad || len(r.Fields) > 0 {
		return a, wire.ErrReply
	}
	return a, nil
}

// untouched: a request with this error was not carried out, and never will be. A script of ours makes no error once it has written.
func untouched(err error) bool {
	var server wire.ServerError
	return driver.IsNotSent(err) || errors.As(err, &server)
}

// maxGiving is how many goroutines give permits back at most. Beyond it, one request does.
const maxGiving = 1000

// giveBack sends a request that gives back permits without a caller here, until it is answered, or for a time; 0: until Close.
// With once it is not repeated where it may have been carried out.
func (s *Synchronizers) giveBack(call func() *wire.Call, once bool, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.giving >= maxGiving {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		s.send.Begin(ctx, call(), func(*wire.Call) { cancel() })
		return
	}
	s.giving++
	s.running.Go(func() {
		defer func() {
			s.mu.Lock()
			s.giving--
			s.mu.Unlock()
		}()
		begun := time.Now()
		for pause := pollStep; ; pause = min(2*pause, pollMax) {
			ctx, cancel := context.WithTimeout(s.life, askTime)
			_, err := s.send.Do(ctx, call())
			cancel()
			class := wire.Classify(err)
			if err == nil || class == driver.ClassImpossible || class == driver.ClassDenied || class == driver.ClassMisconfigured || once && !untouched(err) ||
				limit > 0 && time.Since(begun) > limit {
				return
			}
			select {
			case <-time.After(pause):
			case <-s.life.Done():
				return
			}
		}
	})
}
