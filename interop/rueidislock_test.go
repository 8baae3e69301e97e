// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockPart is between the prefix and the name in each key of rueidislock.
const rueidislockPart = ":0:"

// obtainRueidislock uses one key: with the default majority of two, a lock is three keys.
func obtainRueidislock(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration) (unlock, error) {
	prefix, name, ok := strings.Cut(key, rueidislockPart)
	if !ok {
		return nil, errors.New("rueidislock has no such key: " + key)
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{rdb.Options().Addr}},
		KeyPrefix:      prefix,
		KeyMajority:    1,
		KeyValidity:    ttl,
		ExtendInterval: time.Hour,       // the tests want a lease that ends
		TryNextAfter:   5 * time.Second, // by default it gives a request 20 ms, which a busy machine needs for itself
	})
	if err != nil {
		return nil, err
	}
	_, end, err := locker.TryWithContext(context.WithoutCancel(ctx), name)
	if err != nil {
		locker.Close()
		if errors.Is(err, rueidislock.ErrNotLocked) {
			err = nil
		}
		return nil, err
	}
	value, err := rdb.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) { // it may have expired already
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		now, err := rdb.Get(ctx, key).Result() // the unlock itself does not say whether it freed the key
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		end()
		locker.Close()
		return value != "" && now == value, err
	}, nil
}
