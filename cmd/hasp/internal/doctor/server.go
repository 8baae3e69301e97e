// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Facts are what a Redis server says of itself.
type Facts struct {
	Err  error         // it does not answer
	Trip time.Duration // of the quickest of a few round trips

	Ahead time.Duration // its clock before ours, give or take half of Trip

	Info    map[string]string // INFO
	InfoErr error

	Config map[string]string // the settings that could be read
	Denied map[string]error  // rights that locks need, or are better with, and are missing
}

// settings are those that matter here. CONFIG GET * would bring the password.
var settings = []string{"maxmemory-policy", "appendonly", "appendfsync", "save"}

// trips is how often the round trip is measured, after the connection stands.
const trips = 3

// channel is one that the ACL of locks allows; nobody listens there.
const channel = "hasp.inbox:doctor"

// Look asks a server about itself. It changes nothing.
func Look(ctx context.Context, rdb *redis.Client) Facts {
	f := Facts{Denied: map[string]error{}, Config: map[string]string{}}
	if f.Err = rdb.Ping(ctx).Err(); f.Err != nil {
		return f
	}
	for range trips {
		begun := time.Now()
		at, err := rdb.Time(ctx).Result()
		took := time.Since(begun)
		if err != nil {
			f.Denied["TIME"] = err
			break
		}
		if f.Trip == 0 || took < f.Trip {
			f.Trip, f.Ahead = took, at.Sub(begun.Add(took/2))
		}
	}
	text, err := rdb.Info(ctx).Result()
	f.Info, f.InfoErr = parseInfo(text), err
	for _, name := range settings {
		if got, err := rdb.ConfigGet(ctx, name).Result(); err == nil && len(got) == 1 {
			f.Config[name] = got[name]
		}
	}
	f.rights(ctx, rdb)
	return f
}

// rights finds out which rights are missing that locks are poorer without.
func (f *Facts) rights(ctx context.Context, rdb *redis.Client) {
	for name, ask := range map[string]func() error{
		"PUBLISH": func() error { return rdb.Publish(ctx, channel, "").Err() },
		"SCAN":    func() error { return rdb.Scan(ctx, 0, channel, 1).Err() },
		"SUBSCRIBE": func() error {
			sub := rdb.Subscribe(ctx, channel)
			defer sub.Close()
			_, err := sub.Receive(ctx)
			return err
		},
	} {
		if err := ask(); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
			f.Denied[name] = err
		}
	}
}

// parseInfo reads the answer to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}
