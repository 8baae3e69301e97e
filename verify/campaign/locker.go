// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// locker is a library of locks, connected to all nodes.
type locker interface {
	lock(ctx context.Context, t *turn) (lease, error)
	shares() bool        // it has shared locks
	slow() time.Duration // how much longer than usual its calls to the store took so far
	close() error
}

// lease is what a locker grants.
type lease interface {
	fence() uint64 // 0: it has none
	deadline() Mono
	most() Mono            // the latest that its deadline may be; 0: nobody knows
	err() error            // nil: the lease may be relied on
	done() <-chan struct{} // nil: the library has none
	downgrade(ctx context.Context) error
	release() error
}

// open connects the library that a job names.
func open(j *job, report func(event) error) (locker, error) {
	switch j.Library {
	case "hasp":
		return openHasp(j, report)
	case "redsync":
		return openRedsync(j), nil
	}
	return nil, fmt.Errorf("no library is called %q", j.Library)
}

// dial makes a client for each address. With strict it never sends a command twice,
// and obeys contexts; otherwise it has go-redis's defaults.
func dial(addrs []string, strict bool) (all []*redis.Client) {
	for _, addr := range addrs {
		o := &redis.Options{Addr: addr}
		if strict {
			o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		}
		all = append(all, redis.NewClient(o))
	}
	return all
}

func closeAll[C io.Closer](all []C) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
