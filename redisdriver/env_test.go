// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

var must = expect.Need

// world is a server and what a test does with it.
type world struct {
	testing.TB
	ctx    context.Context
	server *testserver.Server
	admin  *redis.Client
}

func newWorld(t testing.TB, args ...string) *world {
	t.Helper()
	return newWorldIn(t, nil, args...)
}

// newWorldIn has more in the environment of the server.
func newWorldIn(t testing.TB, env []string, args ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for a machine under load
	t.Cleanup(cancel)
	w := &world{TB: t, ctx: ctx, server: testserver.RedisIn(t, env, args...)}
	w.admin = w.client(nil)
	return w
}

// newPlain returns a world, and a driver in it.
func newPlain(t testing.TB) (*world, *Driver) {
	t.Helper()
	w := newWorld(t)
	return w, w.driver(nil)
}

// newTwo returns a world, and two drivers in it, as of two processes.
func newTwo(t testing.TB) (w *world, d, other *Driver) {
	t.Helper()
	w, d = newPlain(t)
	return w, d, w.driver(nil)
}

// newVoting returns a world, and a node in it that votes.
func newVoting(t testing.TB) (*world, *Driver) {
	t.Helper()
	w := newWorld(t)
	d := w.node()
	w.admit(d)
	return w, d
}

// succeeds fails if err is one.
func (w *world) succeeds(err error) {
	w.Helper()
	must(w, err)
}

// client opens separate connections.
func (w *world) client(change func(*redis.Options)) *redis.Client {
	o := &redis.Options{ // the identity is a command of go-redis's own
		Addr: w.server.Addr(), DisableIdentity: true, DialTimeout: time.Hour, ReadTimeout: time.Hour, PoolTimeout: time.Hour,
	}
	if change != nil {
		change(o)
	}
	c := redis.NewClient(o)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// driver opens a driver with its own connections.
func (w *world) driver(o *Options) *Driver { return w.over(w.client(nil), o) }

func (w *world) over(rdb redis.UniversalClient, o *Options) *Driver {
	d := patient(New(rdb, o))
	w.Cleanup(func() { _ = d.Close() })
	return d
}

// node opens a node's driver with its own connections.
func (w *world) node() *Driver { return w.nodeOver(w.client(nil), nodeMaxTTL) }

func (w *world) nodeOver(rdb redis.UniversalClient, maxTTL time.Duration) *Driver {
	d := patient(NewNode(rdb, maxTTL, nil).Driver)
	w.Cleanup(func() { _ = d.Close() })
	return d
}

// seen is d as hasp sees it: a node has the methods of one.
func seen(d *Driver) driver.Driver {
	if d.maxTTL != 0 {
		return &Node{d}
	}
	return d
}

// patient gives waiters ten minutes to claim, as if round trips were slow, and the server an hour to answer the subscription: a test
// may stand still at any moment.
func patient(d *Driver) *Driver {
	d.delay.ns.Store(1 << 60)
	d.delay.most, d.boxes.options.Pace = 10*time.Minute, time.Hour
	return d
}

// hasty lets claims lapse as soon as the TTL allows.
func hasty(d *Driver) *Driver {
	d.delay.ns.Store(0)
	return d
}

// ask makes a request of a fresh owner.
func ask(key string) contend.Owner {
	return contend.Owner{
		Key: key, Owner: rand.Text(), Label: `{"host":"test","pid":1}`,
		TTL: 30 * time.Minute, Patience: 30 * time.Minute, // however long the machine stands still
	}
}

func queued(r contend.Owner) contend.Owner {
	r.Queue = true
	return r
}

func (w *world) try(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res, err := contend.Try(w.ctx, seen(d), r)
	stopIf(w, err != nil, "Try: %v", err)
	return res
}

func (w *world) grant(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res := w.try(d, r)
	stopIf(w, !res.Granted, "Try of %q was refused: %+v", r.Key, res)
	return res
}

func (w *world) refuse(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res := w.try(d, r)
	stopIf(w, res.Granted, "Try of %q was granted", r.Key)
	return res
}

func (w *world) release(d *Driver, r contend.Owner) {
	w.Helper()
	if err := contend.Release(w.ctx, seen(d), r); err != nil {
		w.Fatalf("Release of %q: %v", r.Key, err)
	}
}

// unclaimed answers a hint for r's owner, as if it had no waiter.
func (w *world) unclaimed(d *Driver, r contend.Owner) error {
	return d.released(d.send.Do(w.ctx, d.unclaimedCall(r.Claim())))
}

// releasesNothing fails unless a Release finds that r's owner does not hold its key.
func (w *world) releasesNothing(d driver.Driver, r contend.Owner) {
	w.Helper()
	if err := contend.Release(w.ctx, d, r); !errors.Is(err, driver.ErrNotHeld) {
		w.Errorf("Release of %q: %v, want that it is not held", r.Key, err)
	}
}

// renewsNothing fails unless a Renew finds neither a lease nor a place of r's owner.
func (w *world) renewsNothing(d *Driver, r contend.Owner) {
	w.Helper()
	if err := w.renew(d, r)[0]; !errors.Is(err, driver.ErrNotHeld) {
		w.Errorf("Renew of %q: %v, want that it is not held", r.Key, err)
	}
}

// has fails unless r's owner holds its key.
func (w *world) has(d *Driver, r contend.Owner) {
	w.Helper()
	if got := w.holder(d, r.Key); got != r.Owner {
		w.Fatalf("%q is held by %q, want %q", r.Key, got, r.Owner)
	}
}

// watch subscribes to the hints for r's owner.
func (w *world) watch(d *Driver, r contend.Owner) {
	w.Helper()
	if hints, err := contend.Watch(w.ctx, d, r); hints == nil || err != nil {
		w.Fatalf("Watch of %q: %v, %v", r.Key, hints, err)
	}
}

func (w *world) inspect(d *Driver, key string) driver.Info {
	w.Helper()
	info, err := d.Inspect(w.ctx, key)
	stopIf(w, err != nil, "Inspect of %q: %v", key, err)
	return info
}

// wait watches and then joins the queue, as hasp does.
func (w *world) wait(d *Driver, r contend.Owner) <-chan driver.Hint {
	w.Helper()
	hints, err := contend.Watch(w.ctx, d, r)
	stopIf(w, err != nil, "Watch: %v", err)
	w.refuse(d, queued(r))
	return hints
}

// hint waits for one, and returns the handover that it tells of.
func (w *world) hint(hints <-chan driver.Hint) (to driver.Handover) {
	w.Helper()
	select {
	case h := <-hints:
		return h.Handover
	case <-w.ctx.Done():
		w.Fatal("no hint came")
	}
	return to
}

// news is what comes to the inbox of a driver, beside the driver.
func (w *world) news(d *Driver) *redis.PubSub {
	w.Helper()
	sub := w.admin.Subscribe(w.ctx, d.inboxName())
	w.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(w.ctx)
	w.succeeds(err)
	return sub
}

// came is the next of it that is no sign of life.
func (w *world) came(sub *redis.PubSub) string {
	w.Helper()
	for {
		m, err := sub.ReceiveMessage(w.ctx)
		must(w, err)
		if m.Payload != "" {
			return m.Payload
		}
	}
}

// until polls until a condition is true.
func (w *world) until(what string, so func() bool) {
	w.Helper()
	for !so() {
		select {
		case <-w.ctx.Done():
			w.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// lasts says whether what has left just now was set, after begun, to last for want.
func lasts(left, want time.Duration, begun time.Time) bool {
	const rounding = 10 * time.Millisecond
	return left <= want+rounding && left >= want-time.Since(begun)-rounding
}

// holder says which owner holds a key.
func (w *world) holder(d *Driver, key string) string {
	w.Helper()
	return w.inspect(d, key).Holder.Owner
}

func (w *world) do(args ...any) any {
	w.Helper()
	v, err := w.admin.Do(w.ctx, args...).Result()
	stopIf(w, err != nil && !errors.Is(err, redis.Nil), "%v: %v", args, err)
	return v
}

// keys returns the names of everything in the server.
func (w *world) keys() []string {
	w.Helper()
	keys, err := w.admin.Keys(w.ctx, "*").Result()
	w.succeeds(err)
	return keys
}

// mortal fails unless all that the server has expires within a day, but a node record. A script's clock may stand a moment behind.
func (w *world) mortal(t testing.TB) {
	t.Helper()
	bad, err := w.admin.Eval(w.ctx, `
		local bad = {}
		for _, k in ipairs(redis.call('KEYS', '*')) do
			local left = redis.call('PTTL', k)
			if k ~= ARGV[1] and (left == -1 or left > 86401000) then bad[#bad + 1] = k .. ' expires in ms: ' .. left end
		end
		return bad`, nil, recordKey).StringSlice()
	if err != nil || len(bad) > 0 {
		t.Fatal(bad, err)
	}
}

// hook sees the commands of a client that it sends alone.
type hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// edit is a hook that changes the commands of a client.
type edit func(cmd redis.Cmder)

func (edit) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e edit) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e(cmd)
		return next(ctx, cmd)
	}
}

func (e edit) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			e(cmd)
		}
		return next(ctx, cmds)
	}
}

// tick waits until the server's clock has moved on by a millisecond.
func (w *world) tick() {
	w.Helper()
	begun := w.admin.Time(w.ctx).Val()
	for {
		now, err := w.admin.Time(w.ctx).Result()
		must(w, err)
		if now.UnixMilli() > begun.UnixMilli() {
			return
		}
	}
}

// strike marks d's places in a queue to be passed over from now on.
func (w *world) strike(key string, d *Driver) {
	w.Helper()
	w.do("HSET", d.names(key).places, "!", fmt.Sprintf("%sinbox:%s %013d;", wire.Sidecars, d.id, w.micros()/1000))
}

// calls counts the commands that the server carried out since CONFIG
// RESETSTAT, those of scripts included.
func (w *world) calls() map[string]int {
	w.Helper()
	text, err := w.admin.Info(w.ctx, "commandstats").Result()
	w.succeeds(err)
	out := map[string]int{}
	for _, m := range commandStat.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[2])
		must(w, err)
		out[m[1]] = n
	}
	return out
}

var commandStat = regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`)

// failIf fails a test, which goes on, when what it saw is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends a test when what it saw is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}
