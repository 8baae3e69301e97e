// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// Locks returns a client of the Redis at addr, with connections of its own and
// the default settings of go-redis. Both end with the test.
func Locks(t testing.TB, addr string, observe func(hasp.Event)) *hasp.Client {
	t.Helper()
	return LocksOn(t, &redis.Options{Addr: addr}, observe)
}

// LocksOn is Locks with other settings.
func LocksOn(t testing.TB, o *redis.Options, observe func(hasp.Event)) *hasp.Client {
	t.Helper()
	return locksOf(t, o, &hasp.Options{Observe: observe})
}

// locksOf is LocksOn with options of the client's own.
func locksOf(t testing.TB, o *redis.Options, of *hasp.Options) *hasp.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Errorf("close the connections: %v", err)
		}
	})
	c, err := hasp.New(redisdriver.New(rdb, nil), of)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, hasp.ErrLost) {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// Loss is a key that a holder lost to a waiter. All
// instants are of one machine.
type Loss struct {
	Lost    time.Time // when the holder's context ended
	Granted time.Time // when the store gave the key to the waiter, in whole ms
	Got     time.Time // when the waiter's Lock returned
	Before  uint64    // the holder's fence
	After   uint64    // the waiter's

	// Stood is for how long this process did not get to run meanwhile: the holder's
	// context may have ended later by that much.
	Stood time.Duration
}

// Cutoff lets a holder renew once, and from then on drops everything between it and
// the Redis at addr, while another client waits for the key. The holder's late Release
// must not touch the next holder's lease.
func Cutoff(t testing.TB, addr, key string, ttl time.Duration) (Loss, error) {
	stood := stall.Watch(t)
	link := faultproxy.New(t, addr)
	cut := make(chan struct{})
	var once sync.Once
	holder := Locks(t, link.Addr(), func(e hasp.Event) {
		if e.Kind == hasp.EventRenewed {
			once.Do(func() {
				link.Swallow(true, true)
				close(cut)
			})
		}
	})
	t.Cleanup(link.Clear) // before the clients close
	opts := &hasp.LockOptions{TTL: ttl}
	lease, err := holder.Mutex(key, opts).Lock(t.Context())
	if err != nil {
		return Loss{}, err
	}
	lost := make(chan time.Time, 1)
	work := lease.Context(context.Background())
	context.AfterFunc(work, func() { lost <- time.Now() })

	ctx, cancel := context.WithTimeout(t.Context(), 3*ttl+30*time.Second)
	defer cancel()
	waiter := Locks(t, addr, nil)
	next, err := waiter.Mutex(key, opts).Lock(ctx)
	if err != nil {
		return Loss{}, err
	}
	loss := Loss{Got: time.Now(), Before: lease.Fence(), After: next.Fence()}
	select {
	case <-cut:
	default:
		return loss, errors.New("the waiter got the key before the holder was cut off")
	}
	if loss.Granted, err = since(ctx, waiter, next); err != nil {
		return loss, err
	}
	select {
	case loss.Lost = <-lost:
	case <-ctx.Done():
		return loss, errors.New("the holder's context did not end")
	}
	loss.Stood = stood()
	if !errors.Is(context.Cause(work), hasp.ErrLost) {
		return loss, fmt.Errorf("the holder's context ended with %w", context.Cause(work))
	}
	link.Clear()
	if err := lease.Release(); !errors.Is(err, hasp.ErrLost) {
		return loss, fmt.Errorf("the holder's late Release: %w, want ErrLost", err)
	}
	return loss, errors.Join(next.Extend(ctx, ttl), next.Release())
}

// since returns when the store granted a lease.
func since(ctx context.Context, c *hasp.Client, lease *hasp.Lease) (time.Time, error) {
	info, err := c.Inspect(ctx, lease.Key())
	if err != nil {
		return time.Time{}, err
	}
	if info.Holder.Owner != lease.Owner() || info.Holder.Since.IsZero() {
		return time.Time{}, fmt.Errorf("the store names %+v as the holder, want owner %s and since when", info.Holder, lease.Owner())
	}
	return info.Holder.Since, nil
}

// Err returns what is wrong with a loss: the holder's context must end before the store
// grants the key to the waiter, and its fence must be the smaller one. The context may
// end later by allowed, for stalls of this process.
func (l Loss) Err(allowed time.Duration) error {
	var errs []error
	if margin := l.Granted.Sub(l.Lost) + allowed; margin <= 0 {
		errs = append(errs, fmt.Errorf("the holder's context ended %v after the store granted the key to the waiter", -margin))
	}
	if !l.Lost.Before(l.Got.Add(allowed)) {
		errs = append(errs, fmt.Errorf("the holder's context ended %v after the waiter had the key", l.Lost.Sub(l.Got)))
	}
	if l.After <= l.Before {
		errs = append(errs, fmt.Errorf("fence %d after %d", l.After, l.Before))
	}
	return errors.Join(errs...)
}
