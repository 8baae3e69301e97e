// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Rule: the first in the queue asks every 5 to 25 ms and at the end of the lease;
// those behind it look as much more rarely as they are further back, and at
// least once a second. They wait for as long as it took to ask, at least, for each before them.
func TestNextLook(t *testing.T) {
	for _, c := range []struct {
		ahead            int
		held, left, took time.Duration
		want             time.Duration
	}{
		{0, 0, 0, 0, 5 * time.Millisecond},
		{0, 0, 30 * time.Second, 0, 5 * time.Millisecond},
		{0, 40 * time.Millisecond, 30 * time.Second, 0, 10 * time.Millisecond},
		{0, time.Hour, 30 * time.Second, 0, 25 * time.Millisecond},
		{0, time.Hour, 3 * time.Millisecond, 0, 3 * time.Millisecond},
		{0, time.Hour, 1, 0, time.Millisecond},
		{1, 0, 0, 0, 10 * time.Millisecond},
		{1, time.Hour, 3 * time.Millisecond, 0, 50 * time.Millisecond},
		{10, time.Hour, time.Hour, 0, 275 * time.Millisecond},
		{1000, 0, time.Hour, 0, time.Second},
		{0, time.Hour, time.Hour, time.Minute, 25 * time.Millisecond},
		{3, time.Hour, time.Hour, 60 * time.Millisecond, 240 * time.Millisecond},
		{1, time.Hour, time.Hour, time.Minute, time.Second},
		{1 << 30, time.Hour, time.Hour, 0, time.Second},
	} {
		if got := nextLook(c.ahead, c.held, c.left, c.took); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Rule: what is written of a key follows from what was read of it, whatever the database.
func TestPlans(t *testing.T) {
	const hour, ttl, patience = time.Hour, 30 * time.Second, 10 * time.Second
	const now, end = hour, hour + ttl
	row := func(owner string, mode driver.Mode, limit int, expires time.Duration) Row {
		return Row{Kind: Held, Owner: owner, Mode: mode, Limit: limit, Fence: 7, Since: 1, Expires: expires}
	}
	shared := Row{Kind: Held, Fence: 9, Since: 1, Expires: now + 1, Limit: 3}
	place := func(mode driver.Mode, limit int) *Row {
		return &Row{Kind: Queued, Owner: "a", Mode: mode, Limit: limit, Since: now, Expires: now + patience}
	}
	for name, c := range map[string]struct {
		view    View
		claim   driver.Claim
		convert bool
		want    Plan
		granted bool
	}{
		"a free key": {view: View{Gone: 5}, granted: true,
			want: Plan{Own: &Row{Kind: Held, Owner: "a", Fence: 100, Since: now, Expires: end}}},
		"a key whose holder died": {view: View{Holder: row("b", driver.Exclusive, 0, now)}, granted: true,
			want: Plan{End: AllHolders, Own: &Row{Kind: Held, Owner: "a", Fence: 100, Since: now, Expires: end, Mark: true}}},
		"a renewal": {view: View{Holder: row("a", driver.Exclusive, 0, now+1), Own: row("a", driver.Exclusive, 0, now+1)}, granted: true,
			want: Plan{OwnUntil: end, Fence: 7}},
		"a renewal beside others": {view: View{Holder: shared, Own: row("a", driver.Shared, 3, now+1)}, claim: driver.Claim{Mode: driver.Shared, Limit: 3}, granted: true,
			want: Plan{OwnUntil: end, KeyUntil: end, Fence: 7}},
		"a conversion": {view: View{Holder: row("a", driver.Exclusive, 0, now+1), Own: row("a", driver.Exclusive, 0, now+1), Wrote: 4},
			claim: driver.Claim{Mode: driver.Shared, Limit: 2}, convert: true, granted: true,
			want: Plan{Own: &Row{Kind: Held, Owner: "a", Mode: driver.Shared, Limit: 2, Fence: 7, Since: 1, Expires: end},
				Key: &Row{Fence: 7, Since: 1, Expires: end, Limit: 2}, Wrote: 4}},
		"a reader beside a lapsed owner with a limit": {view: View{Holder: shared, Ended: true, Wrote: 4}, claim: driver.Claim{Mode: driver.Shared}, granted: true,
			want: Plan{End: Sharers, Own: &Row{Kind: Held, Owner: "a", Mode: driver.Shared, Fence: 100, Since: now, Expires: end, Mark: true},
				Key: &Row{Kind: Held, Fence: 100, Since: 1, Expires: end, Mark: true}, Wrote: 4}},
		"another with a limit takes the mark": {view: View{Holder: shared, Ended: true, Least: 3}, claim: driver.Claim{Mode: driver.Shared, Limit: 3}, granted: true,
			want: Plan{End: Sharers, Own: &Row{Kind: Held, Owner: "a", Mode: driver.Shared, Limit: 3, Fence: 100, Since: now, Expires: end, Mark: true},
				Key: &Row{Kind: Held, Fence: 100, Since: 1, Expires: end, Limit: 3}}},
		"a place": {view: View{Holder: row("b", driver.Exclusive, 0, end)}, want: Plan{Own: place(driver.Exclusive, 0)}},
		"a place that is prolonged": {view: View{Holder: row("b", driver.Exclusive, 0, end), Own: Row{Kind: Queued, Owner: "a", Expires: now + 1}},
			want: Plan{OwnUntil: now + patience}},
		"a holder that lapsed joins again": {view: View{Holder: row("a", driver.Exclusive, 0, now), Own: row("a", driver.Exclusive, 0, now), Ahead: 1},
			want: Plan{Own: place(driver.Exclusive, 0), Key: &Row{Fence: 7, Since: 1, Expires: now, Mark: true}, Wrote: 7}},
		"an owner with a limit that lapsed joins again": {view: View{Holder: shared, Own: row("a", driver.Shared, 3, now)},
			want: Plan{End: Sharers, Own: place(driver.Exclusive, 0), Leave: &Leaving{Mark: true}}},
		"a reader that lapsed joins again": {view: View{Holder: shared, Own: row("a", driver.Shared, 0, now), Ended: true, Barred: true},
			claim: driver.Claim{Mode: driver.Shared, Limit: 2}, want: Plan{Own: place(driver.Shared, 2)}},
	} {
		r := voting.VoteRequest{TryRequest: driver.TryRequest{Claim: c.claim, TTL: ttl, Queue: !c.convert, Patience: patience, Convert: c.convert}}
		r.Owner = "a"
		before := c.view
		res, got, err := c.view.Try(r, Now{At: now}, func(*View, voting.VoteRequest) (int64, int, error) { return 100, 1, nil })
		if err != nil || res.Granted != c.granted || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v\n%s\n%s, want", name, res, err, show(got), show(c.want))
		}
		if !reflect.DeepEqual(c.view, before) {
			t.Errorf("%s: the view was changed", name)
		}
	}
}

// show is a plan with the rows that it points to.
func show(p Plan) string {
	var own, key Row
	if p.Own != nil {
		own = *p.Own
	}
	if p.Key != nil {
		key = *p.Key
	}
	return fmt.Sprintf("%+v own %+v key %+v leave %v", p, own, key, p.Leave)
}
