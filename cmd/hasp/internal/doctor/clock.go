// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/redis/go-redis/v9"
)

const (
	// trips is how often the round trip is measured, after the connection stands.
	trips = 3
	// replicaLimit bounds what the replicas are asked, all at once, and mostReplicas how many: the server names them.
	replicaLimit = time.Second
	mostReplicas = 16
	// replicaSkew is how far a replica's clock may be behind its master's: a failover that Sentinels or a cluster begin takes longer. One by
	// hand may not (REPLICAOF NO ONE, CLUSTER FAILOVER TAKEOVER).
	replicaSkew = 500 * time.Millisecond
)

// Dialer connects to a server by its address.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// clock is a server's.
type clock struct {
	Trip  time.Duration // of the quickest of a few round trips; 0: the clock is not known
	Ahead time.Duration // it is before ours, give or take half of Trip
}

// replicaClock is that of a replica, or why it is not known.
type replicaClock struct {
	clock
	addr string
	err  error
}

func clockOf(ctx context.Context, rdb *redis.Client) (c clock, err error) {
	for range trips {
		begun := time.Now()
		at, err := rdb.Time(ctx).Result()
		took := time.Since(begun)
		if err != nil {
			return c, err
		}
		if c.Trip == 0 || took < c.Trip {
			c = clock{Trip: took, Ahead: at.Sub(begun.Add(took / 2))}
		}
	}
	return c, nil
}

// clocks asks a master's replicas, with what the client of the master logs in with.
func (f *Facts) clocks(ctx context.Context, o *redis.Options, dial Dialer) []replicaClock {
	ctx, cancel := context.WithTimeout(ctx, replicaLimit)
	defer cancel()
	replicas := f.replicas()
	all := make([]replicaClock, min(len(replicas), mostReplicas))
	var asked sync.WaitGroup
	for i := range all {
		all[i].addr = replicas[i].addr
		asked.Go(func() {
			rdb := redis.NewClient(&redis.Options{
				Addr: replicas[i].addr, Dialer: dial, CredentialsProviderContext: o.CredentialsProviderContext, Username: o.Username, Password: o.Password,
				MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
			})
			defer rdb.Close()
			all[i].clock, all[i].err = clockOf(ctx, rdb)
		})
	}
	asked.Wait()
	return all
}

// skew is about the clocks of a master's replicas. Leases end by the clock of a replica that is promoted, and fences go on above it.
func (j *judge) skew() {
	if j.f.Trip == 0 {
		return
	}
	n, drift, behind, early, instead := j.f.online(), lifetime.Drift(hasp.DefaultTTL), replicaSkew, "there can be two holders", ""
	risk := fmt.Sprintf("if it is more than %v ahead, %s after a failover", drift, early)
	falls := !j.a.Redisson && (j.a.Replicas == 0 || j.a.Replicas < n) // else fences count, or each replica that confirmed has them
	switch {
	case j.a.MaxTTL > 0: // it is held back for so long
		behind, early = admission.Wait(j.a.MaxTTL), "leases end early"
	case n > 1 && (j.a.Cluster || j.a.Replicas > 0): // max-ttl is not for them
		instead = fmt.Sprintf("; or set replicas=%d in the store's URL, for every client", n)
	case n > 1:
		instead = "; or set max-ttl=30s in the store's URL, for every client"
	}
	if falls {
		risk += fmt.Sprintf("; if it is more than %v behind, fences may fall", behind)
	}
	for _, r := range j.f.Clocks {
		ahead, give := r.Ahead-j.f.Ahead, (r.Trip+j.f.Trip)/2
		switch addr := driver.Printable(r.addr); {
		case r.err != nil && j.a.MaxTTL > 0:
		case r.err != nil:
			j.say(Warn, "skew", "the clock of its replica %s is not known (%s): %s. Let this user ask for it from here, or compare it by hand (TIME)", addr, Said(r.err), risk)
		case falls && -ahead-give > behind:
			j.say(Warn, "skew", "the clock of its replica %s is %v behind its own: fences may fall after a failover. Synchronise both with NTP, by slewing%s",
				addr, -ahead.Round(time.Millisecond), instead)
			j.repeats(true)
		case ahead-give > drift:
			j.say(Warn, "skew", "the clock of its replica %s is %v ahead of its own: %s after a failover. Synchronise both with NTP, by slewing",
				addr, ahead.Round(time.Millisecond), early)
		case j.a.MaxTTL == 0 && (ahead+give > drift || falls && give-ahead > behind):
			j.say(Warn, "skew", "the clock of its replica %s is its own give or take %v, and from here no better can be told: %s. Ask from a machine that is nearer to both, "+
				"or compare it by hand (TIME)", addr, (ahead.Abs() + give).Round(time.Millisecond), risk)
		case j.a.MaxTTL == 0 && falls && -ahead-give > time.Millisecond:
			j.say(OK, "skew", "the clock of its replica %s is its own, give or take %v: fences may fall only after a promotion by hand that is quicker (REPLICAOF NO ONE)",
				addr, -ahead.Round(time.Millisecond))
		default:
			j.say(OK, "skew", "the clock of its replica %s is its own, give or take %v", addr, max(ahead.Abs(), give).Round(10*time.Microsecond))
		}
	}
}
