// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/redisdriver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// s6 is holders that die.
var s6 = scenario{
	name: "s6",
	metrics: []metric{
		{"median", "late, median", seconds, lower, true},
		{"longest", "late, longest", seconds, lower, true},
		{"waited", "after the kill, median", seconds, neither, false},
	},
	variants: counts("kill", 10),
	takes: func(e *env, p *peer) bool {
		// A local lock dies with its process; to fail fast is no help here;
		// a quick run has one of each kind.
		return waiting(e, p) && p.on != inProcess && !strings.HasSuffix(p.name, "fail-fast") && !(e.quick && strings.Contains(p.name, " "))
	},
	rounds: 3, // of ten kills each
	limit:  time.Minute,
	run:    runKills,
	bars: []bar{{"the next waiter has the key within 50 ms of the expiry, in every round", func(r *scenarioResult) (string, bool, bool) {
		if _, ok := r.figure(10, baseline, "longest"); !ok {
			return "", false, false
		}
		v := slices.Max(r.cell(10, baseline).values("longest"))
		return r.write("longest", v), v <= 0.050, true
	}}},
}

// killTTL is the TTL of the lease of a holder that is killed.
const killTTL = 3 * time.Second

// holdInChild holds a key until it is killed, or its standard input ends.
func holdInChild(l locker, key string, in *json.Decoder, say func(report) error) error {
	if _, err := l.Lock(context.Background(), key); err != nil {
		return err
	}
	if err := say(report{}); err != nil {
		return err
	}
	return in.Decode(new(any))
}

func runKills(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to := e.target
	to.TTL = killTTL
	random := rand.New(rand.NewPCG(6, 6)) //nolint:gosec // the same moments for all
	// Polling peers must not all ask at the same moments of a lease.
	asks, kills := make([]time.Duration, v.n), make([]time.Duration, v.n)
	for i := range asks {
		asks[i] = time.Duration(random.Int64N(int64(killTTL / 10)))
		kills[i] = killTTL/10 + time.Duration(random.Int64N(int64(killTTL*7/10)))
	}
	late, waited := make([]float64, v.n), make([]float64, v.n)
	if err := many(v.n, func(i int) error {
		l, w, err := e.kill(ctx, p, to, "kill/"+strconv.Itoa(i), asks[i], kills[i])
		late[i], waited[i] = l.Seconds(), w.Seconds()
		if err != nil {
			cancel() // the others can stop
		}
		return err
	}); err != nil {
		return nil, err
	}
	return figures{"median": median(late), "longest": slices.Max(late), "waited": median(waited)}, nil
}

// early is how much before the end of the lease a grant may seem to come, since
// stores tell the time left in whole milliseconds.
const early = 2 * time.Millisecond

// kill makes a child process lock a key, a client wait for it, and kills the process, at the given
// times after it has it. late is from the end of the lease to the grant, waited from the kill.
func (e *env) kill(ctx context.Context, p *peer, to target, key string, asks, after time.Duration) (late, waited time.Duration, err error) {
	began := time.Now()
	holder, err := task{"hold", p.name, to, key}.start(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer holder.Kill() // in case of an error
	asking, doom := time.After(asks), time.After(after)
	l, err := p.open(ctx, to)
	if err != nil {
		return 0, 0, err
	}
	defer l.Close()
	var granted time.Time
	got := make(chan error, 1)
	go func() {
		<-asking
		unlock, err := l.Lock(ctx, key)
		granted = time.Now()
		if err == nil {
			err = unlock(ctx)
		}
		got <- err
	}()
	select {
	case <-doom:
	case err := <-got:
		switch {
		case err == nil && granted.Before(began.Add(to.TTL)):
			err = errTwoHolders
		case err == nil:
			err = errors.New("the lease was over before its holder was killed: this machine is too slow")
		}
		return 0, 0, err
	}
	killed := time.Now()
	holder.Kill()
	expiry, err := e.expiry(ctx, p, key)
	if err != nil {
		return 0, 0, err
	}
	err = <-got
	late = granted.Sub(expiry)
	if err == nil && late < -early {
		err = fmt.Errorf("%w: granted %v before the end of the lease", errTwoHolders, -late)
	}
	return late, granted.Sub(killed), err
}

// expiry returns when the lease of a holder that was just killed expires in the
// store.
func (e *env) expiry(ctx context.Context, p *peer, key string) (time.Time, error) {
	if p.on == onEtcd {
		return e.etcdExpiry(ctx, key)
	}
	name, servers, copies := key, 1, 1
	switch {
	case p.name == baseline, p.name == overRueidis:
		name = redisdriver.DefaultPrefix + key
	case strings.HasPrefix(p.name, "redsync 5"):
		servers = nodes
	case strings.HasPrefix(p.name, "rueidislock"):
		name = "rueidislock:%d:" + key
		if p.name != "rueidislock" {
			copies = 3
		}
	}
	var ends []time.Time
	missing := 0
	for server := range servers {
		for i := range copies {
			one := strings.ReplaceAll(name, "%d", strconv.Itoa(i))
			start := time.Now()
			left, err := e.admin[server].PTTL(ctx, one).Result()
			if err != nil {
				return time.Time{}, err
			}
			// Counted from before the question, so never too late. A key that is
			// not there (left is negative) is free: a majority is enough to hold.
			ends = append(ends, start.Add(max(left, 0)))
			if left < 0 {
				missing++
			}
		}
	}
	if missing > len(ends)/2 {
		return time.Time{}, fmt.Errorf("%w: the store has no %s of the holder that was just killed", errLost, key)
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends[len(ends)/2], nil // from then on most of them are free
}

// etcdExpiry asks until the whole seconds that etcd reports change.
func (e *env) etcdExpiry(ctx context.Context, key string) (time.Time, error) {
	c, err := connectEtcd(e.Etcd)
	if err != nil {
		return time.Time{}, err
	}
	defer c.Close()
	got, err := c.Get(ctx, "/lock/"+key+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return time.Time{}, err
	}
	if len(got.Kvs) == 0 {
		return time.Time{}, fmt.Errorf("%w: etcd has no key of it", errLost)
	}
	var asked time.Time // the time before, when last was the answer
	for last := int64(-1); ; {
		start := time.Now()
		lease, err := c.TimeToLive(ctx, clientv3.LeaseID(got.Kvs[0].Lease))
		if err != nil {
			return time.Time{}, err
		}
		if lease.TTL < last { // then there was at least last left
			return asked.Add(time.Duration(last) * time.Second), nil
		}
		asked, last = start, lease.TTL
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
}
