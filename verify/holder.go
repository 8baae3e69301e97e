// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// holderEnv marks a process that holds a key.
const holderEnv = "HASP_VERIFY_HOLDER"

// HolderMain turns this process into a holder when it was started as one, and
// does not return then. Programs that call StartHolder call it first.
func HolderMain() {
	player.Main(holderEnv, func(in io.Reader, out io.Writer) error {
		return player.Work(in, out, func(j player.Job, observe func(hasp.Event)) (player.Locks, error) {
			return hasp.New(redisdriver.New(redis.NewClient(&redis.Options{Addr: j.Store}), nil), &hasp.Options{Observe: observe})
		})
	})
}

// Holder is a process of its own that holds a key.
type Holder struct {
	*player.Process
	Fence  uint64
	events chan player.Event
}

// StartHolder starts this program again as a holder of a key, and returns once it holds the
// key. It is killed when the test ends.
func StartHolder(t testing.TB, addr, key string, ttl time.Duration) (*Holder, error) {
	h := &Holder{events: make(chan player.Event, 2)} // of one order
	var err error
	h.Process, err = player.Spawn(1, nil, holderEnv, player.Job{Store: addr, TTL: ttl}, func(_ *player.Process, e player.Event) {
		if e.What == player.Granted || e.What == player.Failed || e.What == player.Ended {
			h.events <- e
		}
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(h.Kill)
	h.Send(player.Order{Wants: []player.Want{{Key: key}}, Hold: time.Hour, Bare: true})
	e, err := h.next()
	if err == nil && e.What != player.Granted {
		err = errors.New(e.Err)
	}
	h.Fence = e.Fence
	return h, err
}

// next returns what became of the order.
func (h *Holder) next() (player.Event, error) {
	select {
	case e := <-h.events:
		return e, nil
	case <-h.Ended:
		return player.Event{}, fmt.Errorf("the holder ended: %s", h.Last())
	}
}

// Stopped stops a holder process for longer than its TTL, until another client has the
// key, and resumes it: its first check of the lease must find the loss. Lost stays zero,
// because the contexts of a stopped process cannot end.
func Stopped(t testing.TB, addr, key string, ttl time.Duration) (Loss, error) {
	h, err := StartHolder(t, addr, key, ttl)
	if err != nil {
		return Loss{}, err
	}
	if err := h.Pause(); err != nil {
		return Loss{}, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*ttl+30*time.Second)
	defer cancel()
	waiter := Locks(t, addr, nil)
	next, err := waiter.Mutex(key, &hasp.LockOptions{TTL: ttl}).Lock(ctx)
	if err != nil {
		return Loss{}, err
	}
	loss := Loss{Got: time.Now(), Before: h.Fence, After: next.Fence()}
	h.Send(player.Order{Stop: true}) // which it reads when it goes on, and checks the lease
	if err := h.Resume(); err != nil {
		return loss, err
	}
	e, err := h.next()
	if err != nil || !e.Lost {
		return loss, fmt.Errorf("the first answer of the lease after the stop: %+v, %w; want a loss", e, err)
	}
	if loss.After <= loss.Before {
		return loss, fmt.Errorf("fence %d after %d", loss.After, loss.Before)
	}
	return loss, errors.Join(next.Extend(ctx, ttl), next.Release())
}
