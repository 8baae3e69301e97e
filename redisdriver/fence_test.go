// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func (w *world) micros() uint64 {
	w.Helper()
	now, err := w.admin.Time(w.ctx).Result()
	w.succeeds(err)
	return uint64(now.UnixMicro())
}

// When the mark is ahead of the clock (which was set back), the fence is the
// mark plus one, exactly: at this size a Lua number turned into text by itself
// loses its last digits. The mark then stays until the clock has passed it.
func TestFenceAheadOfTheClock(t *testing.T) {
	w, d := newPlain(t)
	const lead = 3 * time.Hour
	mark := w.micros() + uint64(lead.Microseconds())
	w.do("SET", "hasp.fence", strconv.FormatUint(mark, 10), "EX", 60)
	a, b, c := ask("k"), ask("k"), ask("k")
	if got := w.grant(d, a).Fence; got != mark+1 {
		t.Errorf("a free key has the fence %d, want %d", got, mark+1)
	}
	w.on(d).wait(b).release(a)
	if got := w.grant(d, b).Fence; got != mark+2 {
		t.Errorf("a handed over key has the fence %d, want %d", got, mark+2)
	}
	w.do("DEL", "lock:k")
	if got := w.grant(d, c).Fence; got != mark+3 {
		t.Errorf("a key whose holder vanished has the fence %d, want %d", got, mark+3)
	}
	if got := w.admin.Get(w.ctx, "hasp.fence").Val(); got != strconv.FormatUint(mark+3, 10) {
		t.Errorf("the mark is %s", got)
	}
	if left := w.admin.PTTL(w.ctx, "hasp.fence").Val(); left < 24*time.Hour+lead-time.Minute || left > 25*time.Hour+lead {
		t.Errorf("the mark expires in %v", left)
	}
}

// A server that comes back from an old snapshot mints above what it forgot.
func TestFenceAfterAnOldSnapshot(t *testing.T) {
	w, d := newPlain(t)
	w.on(d).grant(ask("before")).do("SAVE")
	last := w.grant(d, ask("k")).Fence
	w.server.Kill()
	w.server.Restart()
	w.until("it answers", func() bool { return w.admin.Ping(w.ctx).Err() == nil })
	if w.admin.Exists(w.ctx, "lock:before").Val() != 1 || w.admin.Exists(w.ctx, "lock:k").Val() != 0 {
		t.Fatalf("it came back with %q", w.keys())
	}
	if got := w.grant(w.driver(nil), ask("k")).Fence; got <= last {
		t.Errorf("the fence is %d after %d", got, last)
	}
}

// Servers before 7.0 know no PEXPIRE with GT; the scripts then compare for
// themselves.
func TestWithoutExpireGreaterThan(t *testing.T) {
	w := newWorld(t)
	old := w.client(nil)
	old.AddHook(oldServer)
	d := w.over(old, nil)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b)
	short := a
	short.TTL = time.Second
	w.grant(d, short)
	if left := w.inspect(d, "k").Left; left < 20*time.Second {
		t.Errorf("a shorter Try left %v", left)
	}
	a.TTL = time.Hour
	w.grant(d, a)
	if left := w.inspect(d, "k").Left; left < 50*time.Minute {
		t.Errorf("a longer Try left %v", left)
	}
	w.on(d).release(a).claim(b)
	if left := w.inspect(d, "k").Left; left < 20*time.Second {
		t.Errorf("a claim left %v", left)
	}
	w.on(d).do("CONFIG", "RESETSTAT").renew(b)
	if n := w.calls()["pttl"]; n != 2 {
		t.Errorf("PTTL was asked %d times: this tested the other path", n)
	}
	w.on(d).do("PERSIST", "lock:k").renew(b)
	if left := w.admin.PTTL(w.ctx, "lock:k").Val(); left >= 0 {
		t.Errorf("a permanent lock ends after %v", left)
	}
}

// oldServer makes scripts believe that they run on a server before 7.0, and refuses
// PEXPIRE with an option.
var oldServer = hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	switch cmd.Name() {
	case "evalsha":
		return redis.ErrNoScript
	case "eval":
		cmd.Args()[1] = before70.Replace(cmd.Args()[1].(string))
	}
	return next(ctx, cmd)
})

var before70 = strings.NewReplacer("redis.REDIS_VERSION_NUM", "redis.NO_SUCH_FIELD", "'GT'", "'NO_GT'", "nil, 'NX'", "nil, 'NO_NX'")

// The mark is moved with each grant that comes alone, and keeps its expiry for 1,000 seconds; what is not as usual is
// left to the slower way, with the mark as it was.
func TestMarkIsMovedByALoneGrant(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, ask("first"))
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		mark     func(now uint64) string // "": there is none
		px       time.Duration           // its expiry
		fence    func(mark uint64) uint64
		lo, hi   time.Duration // between which its expiry is then
		unusable bool
	}{
		"behind the clock": {mark: func(now uint64) string { return strconv.FormatUint(now-1, 10) }, px: time.Hour, hi: time.Hour},
		"set long ago":     {mark: func(now uint64) string { return strconv.FormatUint(now-1_000_000_000, 10) }, px: time.Hour, lo: day - time.Minute, hi: day},
		"none":             {lo: day - time.Minute, hi: day},
		"ahead of the clock": {mark: func(now uint64) string { return strconv.FormatUint(now+60_000_000, 10) }, px: time.Hour,
			fence: func(mark uint64) uint64 { return mark + 1 }, lo: day, hi: day + time.Minute},
		"too long":               {mark: func(now uint64) string { return strconv.FormatUint(now-1, 10) + "0" }, px: time.Hour, hi: time.Hour, unusable: true},
		"a number for Lua alone": {mark: func(now uint64) string { return strconv.FormatUint(now, 10)[:7] + "0000000e9" }, px: time.Hour, hi: time.Hour, unusable: true},
		"none of ours":           {mark: func(now uint64) string { return strconv.FormatUint(now-1, 10)[:15] + "x" }, px: time.Hour, hi: time.Hour, unusable: true},
	} {
		now, text := w.micros(), ""
		w.do("DEL", markKey)
		if c.mark != nil {
			text = c.mark(now)
			w.do("SET", markKey, text, "PX", c.px.Milliseconds())
		}
		r := ask(name)
		if c.unusable {
			w.refuses(d, r, markKey)
			if got := w.do("GET", markKey); got != text {
				t.Errorf("%s: the mark is %v, and was %s", name, got, text)
			}
		} else {
			fence := w.grant(d, r).Fence
			want := fence
			if c.fence != nil {
				mark, _ := strconv.ParseUint(text, 10, 64)
				want = c.fence(mark)
			}
			if got := w.do("GET", markKey); fence != want || c.fence == nil && (fence < now || fence > w.micros()) || got != strconv.FormatUint(fence, 10) {
				t.Errorf("%s: the fence is %d, want %d at %d; the mark is %v", name, fence, want, now, got)
			}
		}
		if left := w.admin.PTTL(w.ctx, markKey).Val(); left < c.lo || left > c.hi {
			t.Errorf("%s: the mark expires in %v, want %v to %v", name, left, c.lo, c.hi)
		}
	}
}
