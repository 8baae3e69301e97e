// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/pipe"
)

// Cases are the rules.
var Cases = []Case{
	{Name: "hello", Rule: "hello is the first request of a connection, and offers version 1 of the protocol", script: func(t *trial) {
		t.lock("k", long)
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.strays) > 0 {
			t.fail("a connection began with %s", strings.TrimSpace(t.strays[0]))
		}
	}},
	{Name: "fence", Rule: "a fence of 64 bits arrives exactly", script: func(t *trial) {
		for _, fence := range []string{"9007199254740993", "18446744073709551615"} {
			p, r := t.ask(pipe.LockParams{Key: "k"})
			g := r.plain("1", long)
			g.Fence, g.Keys[0].Fence = fence, fence
			if h := t.grant(p, r, g); h.Fence != fence || h.Keys[0].Fence != fence {
				t.fail("the fence is %s, and the adapter's are %q and %q", fence, h.Fence, h.Keys[0].Fence)
			}
		}
	}},
	{Name: "unknown", Rule: "fields, notifications and kinds of errors that the client does not know change nothing", odd: true, script: func(t *trial) {
		_, r := t.lock("k", long)
		r.write(r.notify("weather", map[string]any{"rain": []int{1}}), r.notify("lost", map[string]any{"lease": "no such", "left_ms": 0}),
			r.notify("ending", map[string]any{"left_ms": long}), line(map[string]any{"jsonrpc": "2.0", "method": "bare"}))
		p, r := t.ask(pipe.LockParams{Key: "l"})
		r.refuse("no", map[string]any{"kind": "eclipse", "moon": 1})
		if f := t.wait(p, nil); f == nil {
			t.fail("an error of a kind that is new is none to the client")
		}
		p, r = t.ask(pipe.LockParams{Key: "m"})
		r.answer(map[string]any{"lease": "3", "fence": "7", "abandoned": false, "left_ms": long, "moon": []int{1},
			"keys": []any{map[string]any{"key": "m", "fence": "7", "owner": "o", "abandoned": false, "moon": nil}}})
		t.granted(p, r, r.plain("3", long))
	}},
	{Name: "order", Rule: "answers may come in another order than their requests", script: func(t *trial) {
		p, first := t.ask(pipe.LockParams{Key: "p"})
		q, second := t.ask(pipe.LockParams{Key: "q"})
		if h := t.grant(q, second, second.plain("2", long)); h.Keys[0].Key != "q" {
			t.fail("the grant of q went to the lock of %s", h.Keys[0].Key)
		}
		if h := t.grant(p, first, first.plain("1", long)); h.Keys[0].Key != "p" {
			t.fail("the grant of p went to the lock of %s", h.Keys[0].Key)
		}
	}},
	{Name: "halves", Rule: "a line may arrive in parts", silent: true, script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "snow☃man"})
		g := r.plain("1", long)
		for part := r.answered(g); part != ""; {
			n := min(len(part), max((len(part)+1)/2, strings.Index(part, "☃")+1)) // within a character, too
			r.write(part[:n])
			part = part[n:]
			time.Sleep(50 * time.Millisecond) // a client that reads too late for this has them at once, and is right
		}
		t.granted(p, r, g)
	}},
	{Name: "together", Rule: "lines that arrive together are all read, in their order", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k"})
		g := r.plain("1", long)
		q, s := t.ask(pipe.LockParams{Key: "l"})
		r.write(r.answered(g), r.notify("lost", pipe.Notice{Lease: "1", Keys: []string{"k"}, Message: "lost"}), s.answered(s.plain("2", long)))
		t.granted(q, s, s.plain("2", long))
		var h pipe.Grant
		if f := t.wait(p, &h); f == nil && t.status(&held{Grant: h, until: r.came}) > 0 {
			t.fail("the lease is held, and its loss came with its grant")
		}
	}},
	{Name: "long", Rule: "a line has up to 64 KiB", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k"})
		r.refuse(strings.Repeat("no", 30_000), pipe.ErrorData{Kind: pipe.Denied})
		t.refused(p, pipe.Denied)
	}},
	{Name: "keys", Rule: "a lock of several keys is one request and one lease, with a fence for each key", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Keys: []string{"b", "a", "c"}})
		if got := r.Params.keys(); !slices.Equal(got, []string{"b", "a", "c"}) {
			t.fail("the keys were b, a, c, and the client asked for %q", got)
		}
		g := r.plain("1", long)
		for _, k := range t.grant(p, r, g).Keys {
			if !slices.Contains(g.Keys, k) {
				t.fail("the grant has %+v, and the adapter's %+v", g.Keys, k)
			}
		}
	}},
	{Name: "text", Rule: "keys and reasons are passed on exactly, whatever characters they have", script: func(t *trial) {
		const odd = "a \"b\"\\\n\t\u2028\u0001é😀</script>"
		p, r := t.ask(pipe.LockParams{Key: odd, Reason: odd})
		if got := r.Params.keys(); len(got) != 1 || got[0] != odd || r.Params.Reason != odd {
			t.fail("the key is %q, and the client asked for %q; the reason became %q", odd, got, r.Params.Reason)
		}
		g := r.plain("1", long)
		if h := t.grant(p, r, g); h.Keys[0].Key != odd {
			t.fail("the key of the grant is %q, and the adapter's %q", odd, h.Keys[0].Key)
		}
	}},
	{Name: "parameters", Rule: "wait_ms, ttl_ms, mode and reason are passed on exactly, and what was left out is left out", script: func(t *trial) {
		wait := pipe.Millis(1234567)
		for _, p := range []pipe.LockParams{{Key: "k", Wait: &wait, TTL: 45678, Mode: "shared", Reason: "a test"}, {Key: "k", Wait: new(pipe.Millis)}, {Key: "k"}} {
			_, r := t.ask(p)
			got := r.Params.LockParams
			t.same("wait_ms", p.Wait, got.Wait)
			t.same("ttl_ms", &p.TTL, &got.TTL)
			if got.Reason != p.Reason || got.Mode != p.Mode && (got.Mode != "exclusive" || p.Mode != "") {
				t.fail("the mode is %q and the reason %q, and the client sent %q and %q", p.Mode, p.Reason, got.Mode, got.Reason)
			}
			r.refuse("no", pipe.ErrorData{Kind: pipe.Denied})
		}
	}},
	{Name: "busy", Rule: "a client that is refused is told of the holder", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k", Wait: new(pipe.Millis)})
		want := people.HolderJSON{Host: "far", PID: 4711, User: "mia", Reason: "the \"nightly\" job", Owner: "o1", Mode: "exclusive"}
		r.refuse("k is held by mia", pipe.ErrorData{Kind: pipe.Busy, Key: "k", Holder: &want})
		f := t.refused(p, pipe.Busy)
		if h := f.Holder; h == nil || h.Host != want.Host || h.PID != want.PID || h.User != want.User || h.Reason != want.Reason || h.Owner != want.Owner {
			t.fail("the holder is %+v, and the adapter's %+v", want, h)
		}
	}},
	{Name: "errors", Rule: "each kind of error is passed on, with the agent's message", script: func(t *trial) {
		for _, kind := range []pipe.Kind{pipe.Unavailable, pipe.Denied, pipe.Misconfigured, pipe.Unsupported, pipe.Invalid, pipe.Limit, pipe.Closed} {
			p, r := t.ask(pipe.LockParams{Key: "k"})
			r.refuse("so says the agent", pipe.ErrorData{Kind: kind})
			if f := t.refused(p, kind); !strings.Contains(f.message, "so says the agent") {
				t.fail("the message of an error of kind %s became %q", kind, f.message)
			}
		}
	}},
	{Name: "release", Rule: "a release names its lease to the agent, and its failure is passed on", script: func(t *trial) {
		t.lock("other", long)
		h, _ := t.lock("k", long)
		p := t.call("release", map[string]string{"lease": h.Lease})
		r := t.want("release", nil)
		if r.Params.Lease != "of k" {
			t.fail("the release is of the lease %q, and not of %q", r.Params.Lease, "of k")
		}
		r.refuse("it was lost", pipe.ErrorData{Kind: pipe.Lost})
		t.refused(p, pipe.Lost)
	}},
	{Name: "extend", Rule: "extend passes the lease and ttl_ms on, or is unsupported", script: func(t *trial) {
		h, _ := t.lock("k", long)
		p := t.call("extend", map[string]any{"lease": h.Lease, "ttl_ms": 5000})
		r := t.want("extend", p)
		if r == nil {
			t.refused(p, pipe.Unsupported)
			return
		}
		if r.Params.Lease != "of k" || r.Params.TTL != 5000 {
			t.fail("the client extends %q by %v ms", r.Params.Lease, r.Params.TTL)
		}
		r.answer(pipe.Until{Left: 5000})
		t.must(p, nil)
	}},
	{Name: "abandoned", Rule: "the holder after one that did not finish is told", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k"})
		g := r.plain("1", long)
		g.Abandoned, g.Keys[0].Abandoned = true, true
		if h := t.grant(p, r, g); !h.Abandoned || !h.Keys[0].Abandoned {
			t.fail("the key was abandoned, and the adapter says: %s", p.result)
		}
	}},
	{Name: "wanted", Rule: "the client tells that another waits, if it was asked to, or says that it cannot", script: func(t *trial) {
		p := t.call("lock", pipe.LockParams{Key: "k", Wanted: true})
		r := t.want("lock", p)
		if r == nil {
			t.refused(p, pipe.Unsupported)
			return
		}
		if !r.Params.Wanted {
			t.fail("wanted was not passed on")
		}
		h := t.grant(p, r, r.plain("1", long))
		r.write(r.notify("wanted", pipe.Notice{Lease: "1", Keys: []string{"k"}, Left: long}))
		t.notice("wanted", h.Lease)
	}},
	{Name: "lost", Rule: "a loss of which the agent tells is told, and ends that lease alone", script: func(t *trial) {
		other, _ := t.lock("other", long)
		h, r := t.lock("k", long)
		r.write(r.notify("lost", pipe.Notice{Lease: "of k", Keys: []string{"k"}, Message: "LOST k"}))
		t.notice("lost", h.Lease)
		h.until = r.came // nothing is left
		if t.status(h); t.status(other) == 0 {
			t.fail("another lease was lost with it")
		}
	}},
	{Name: "silence", Rule: "a lease whose agent falls silent is lost by the client's own clock", silent: true, script: func(t *trial) {
		h, _ := t.lock("k", 400)
		t.status(h)
		time.Sleep(time.Until(h.until) + rounding)
		t.status(h)
	}},
	{Name: "lost release", Rule: "the release of a lost lease fails as lost, and does not wait for an agent that is silent", silent: true, script: func(t *trial) {
		h, r := t.lock("k", long)
		r.write(r.notify("lost", pipe.Notice{Lease: "of k", Keys: []string{"k"}, Message: "LOST k"}))
		t.notice("lost", h.Lease)
		t.refused(t.call("release", map[string]string{"lease": h.Lease}), pipe.Lost)
	}},
	{Name: "lost work", Rule: "the release of a lost lease says that the work under it was not finished", silent: true, script: func(t *trial) {
		h, _ := t.lock("k", 400)
		time.Sleep(time.Until(h.until) + rounding)
		t.status(h)
		t.call("release", map[string]string{"lease": h.Lease})
		if r := t.want("release", nil); !r.Params.Abandoned {
			t.fail("a lease that the client has lost is released as finished")
		}
	}},
	{Name: "clock", Rule: "left_ms counts from when the request was sent, not from its answer", silent: true, script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k"})
		time.Sleep(500 * time.Millisecond)
		g := r.plain("1", 3000)
		t.status(t.grant(p, r, g))
	}},
	{Name: "prolong", Rule: "the client asks for status before a third of the time is over, and goes on when that says so", silent: true, script: func(t *trial) {
		h, _ := t.lock("k", 6000)
		r := t.want("status", nil)
		end := h.until
		h.until = r.came.Add(long * time.Millisecond)
		r.answer(pipe.Status{Leases: 1, Until: pipe.Until{Left: long}})
		for i := 0; ; i++ {
			switch left := t.status(h); {
			case left > 6000:
				return
			case i == 50, left == 0 && time.Now().Before(end): // a client that is stopped answers no 50 times
				t.fail("status said that %d ms are left, and the client says %d", long, left)
			case left == 0:
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}},
	{Name: "new lease", Rule: "a status prolongs the leases that were held when it was sent, and no other", silent: true, script: func(t *trial) {
		first, _ := t.lock("first", 3000)
		r := t.want("status", nil)
		second, _ := t.lock("second", 8000)
		time.Sleep(200 * time.Millisecond)
		first.until = r.came.Add(long * time.Millisecond)
		r.answer(pipe.Status{Leases: 1, Until: pipe.Until{Left: long}})
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			t.status(first)
			t.status(second)
		}
	}},
	{Name: "end of file", Rule: "when the agent is gone every lease is lost", script: func(t *trial) {
		h, _ := t.lock("k", long)
		t.hangUp()
		for t.status(h) > 0 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-t.ctx.Done():
				t.fail("after the end of file the client relies on its lease")
			}
		}
	}},
	{Name: "cancel", Rule: "a cancelled lock is cancelled at the agent, and fails", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k"})
		p.cancel()
		t.want("$/cancelRequest", nil)
		r.write(line(map[string]any{"jsonrpc": "2.0", "id": r.ID, "error": map[string]any{"code": -32800, "message": "cancelled", "data": pipe.ErrorData{Kind: pipe.Cancelled}}}))
		t.refused(p, pipe.Cancelled)
	}},
	{Name: "cancel late", Rule: "a cancelled lock whose grant comes all the same is released", script: func(t *trial) {
		p, r := t.ask(pipe.LockParams{Key: "k"})
		p.cancel()
		t.want("$/cancelRequest", nil)
		r.answer(r.plain("of k", long))
		t.givenBack(p)
	}},
	{Name: "late grant", Rule: "a grant that arrives after the client gave up is released", script: func(t *trial) {
		wait := pipe.Millis(100)
		p, r := t.ask(pipe.LockParams{Key: "k", Wait: &wait})
		select {
		case <-p.done:
		case <-time.After(time.Second): // the client leaves that to the agent
		}
		r.answer(r.plain("of k", long))
		t.givenBack(p)
	}},
	{Name: "bye", Rule: "a client that closes says bye", script: func(t *trial) {
		t.lock("k", long)
		p := t.call("bye", struct{}{})
		t.want("bye", nil).answer(struct{}{})
		t.hangUp()
		t.must(p, nil)
	}},
	{Name: "kill", Rule: "a client that is killed has no connection left, and so no leases: no child keeps it", script: func(t *trial) {
		t.lock("k", long)
		kill(t.cmd)
		t.want("EOF", nil)
	}},
}

// same compares a time with what the client made of it.
func (t *trial) same(name string, want, got *pipe.Millis) {
	if (want == nil) != (got == nil) || want != nil && (*got-*want > 1e-3 || *want-*got > 1e-3) {
		t.fail("%s became %s", name, line([]*pipe.Millis{want, got}))
	}
}

// givenBack waits for the release of a late grant. An adapter that returned it is told to.
func (t *trial) givenBack(p *pending) {
	var h pipe.Grant
	if t.wait(p, &h) == nil {
		t.call("release", map[string]string{"lease": h.Lease})
	}
	if r := t.want("release", nil); r.Params.Lease != "of k" {
		t.fail("the release is of the lease %q", r.Params.Lease)
	}
}
