// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// world is a server and what a test does with it.
type world struct {
	testing.TB
	ctx    context.Context
	server *testserver.Server
	admin  *redis.Client
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for a machine under load
	t.Cleanup(cancel)
	w := &world{TB: t, ctx: ctx, server: testserver.Redis(t)}
	w.admin = w.client("")
	return w
}

// client opens separate connections, as a user if it is given.
func (w *world) client(user string) *redis.Client {
	o := &redis.Options{Addr: w.server.Addr(), DisableIdentity: true, Username: user}
	if user != "" {
		o.Password = "any"
	}
	c := redis.NewClient(o)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) driver(kind Kind) *Driver { return w.over(w.client(""), kind) }

func (w *world) over(rdb redis.UniversalClient, kind Kind) *Driver {
	d := New(rdb, &Options{Kind: kind})
	w.Cleanup(func() { _ = d.Close() })
	return d
}

// unbounded are the options of a kind for leases of any length, as where no program in Java is.
func unbounded(kind Kind, prefix string) *Options {
	o := &Options{Kind: kind, Prefix: prefix}
	if kind == ReadWrite {
		o.LockWatchdogTimeout = 10_000 * time.Hour
	}
	return o
}

// ask makes a request of a fresh owner.
func ask(key string) contend.Owner {
	return contend.Owner{Key: key, Owner: rand.Text(), Label: `{"host":"test","pid":1}`, TTL: 30 * time.Second, Patience: 10 * time.Second}
}

func queued(r contend.Owner) contend.Owner {
	r.Queue = true
	return r
}

func shared(r contend.Owner) contend.Owner {
	r.Mode = driver.Shared
	return r
}

func (w *world) try(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res, err := contend.Try(w.ctx, d, r)
	stopIf(w, err != nil, "Try: %v", err)
	return res
}

func (w *world) grant(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res := w.try(d, r)
	stopIf(w, !res.Granted, "refused: %+v", res)
	return res
}

func (w *world) refuse(d *Driver, r contend.Owner, ahead int) driver.Result {
	w.Helper()
	res := w.try(d, r)
	stopIf(w, res.Granted || res.Ahead != ahead, "want a refusal with %d ahead: %+v", ahead, res)
	return res
}

func (w *world) release(d *Driver, r contend.Owner) {
	w.Helper()
	if err := contend.Release(w.ctx, d, r); err != nil {
		w.Fatalf("Release: %v", err)
	}
}

func (w *world) renew(d *Driver, r contend.Owner) (res driver.Renewal) {
	w.Helper()
	contend.Renew(w.ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) { res = a })
	return res
}

func (w *world) watch(d *Driver, r contend.Owner) <-chan driver.Hint {
	w.Helper()
	hints, err := contend.Watch(w.ctx, d, r)
	stopIf(w, err != nil || hints == nil, "Watch: %v, %v", hints, err)
	select { // of the subscription that stands now
	case <-hints:
	default:
	}
	return hints
}

func (w *world) inspect(d *Driver, key string) driver.Info {
	w.Helper()
	info, err := d.Inspect(w.ctx, key)
	stopIf(w, err != nil, "Inspect: %v", err)
	return info
}

// hint waits for one.
func (w *world) hint(hints <-chan driver.Hint) {
	w.Helper()
	select {
	case <-hints:
	case <-w.ctx.Done():
		w.Fatal("no hint came")
	}
}

// none fails if there is a hint, after every message so far was delivered.
func (w *world) none(d *Driver, hints ...<-chan driver.Hint) {
	w.Helper()
	w.settled(d)
	for _, h := range hints {
		select {
		case <-h:
			w.Error("a hint came")
		default:
		}
	}
}

// settled returns when the messages that were sent so far have come to d.
func (w *world) settled(d *Driver) {
	w.Helper()
	marker := ask("marker of " + d.id)
	hints := w.watch(d, marker)
	w.do("PUBLISH", d.channel(marker.Claim()), "0")
	w.hint(hints)
}

// do runs a command of redis-cli.
func (w *world) do(args ...any) any {
	w.Helper()
	v, err := w.admin.Do(w.ctx, args...).Result()
	stopIf(w, err != nil && !errors.Is(err, redis.Nil), "%v: %v", args, err)
	return v
}

// A thread of Java's.
func thread(n int) string { return fmt.Sprintf("b983c153-7421-469a-addb-44fb92259a1b:%d", n) }

// javaFair is Redisson's script of a fair lock's acquisition, step by step: nil when it is granted, else in how many ms to ask again.
var javaFair = redis.NewScript(`
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if not first then break end
  local timeout = redis.call('zscore', KEYS[3], first)
  if not timeout or tonumber(timeout) > tonumber(ARGV[4]) then break end
  redis.call('zrem', KEYS[3], first)
  redis.call('lpop', KEYS[2])
end
if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  for _, key in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), key) end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('zscore', KEYS[3], ARGV[2]) then return math.max(0, redis.call('pttl', KEYS[1])) end
local base
local last = redis.call('lindex', KEYS[2], -1)
if last and redis.call('zscore', KEYS[3], last) then base = tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
else base = redis.call('pttl', KEYS[1]) end
if redis.call('zadd', KEYS[3], base + ARGV[3] + ARGV[4], ARGV[2]) == 1 then redis.call('rpush', KEYS[2], ARGV[2]) end
return base`)

// java has a thread ask for the fair lock k, and reports whether it was granted it.
func (w *world) java(n int, wait time.Duration) bool {
	w.Helper()
	keys := []string{"k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"}
	err := javaFair.Run(w.ctx, w.admin, keys, 30_000, thread(n), wait.Milliseconds(), time.Now().UnixMilli()).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
	return err != nil
}

// queue is who waits for the fair lock k.
func (w *world) queue() []string {
	w.Helper()
	return w.admin.LRange(w.ctx, "redisson_lock_queue:{k}", 0, -1).Val()
}

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
