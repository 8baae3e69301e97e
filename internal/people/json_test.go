// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package people

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A store may hold any time: one that JSON cannot carry is left out, and nothing else is lost.
func TestHostileTimes(t *testing.T) {
	for _, year := range []int{-1, 10000, 292277026596} {
		i := hasp.Info{Key: "k", Held: true, Holder: hasp.Holder{Owner: "o", Since: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)}}
		i.Queue = []hasp.Holder{i.Holder}
		if text, err := json.Marshal(ToKeyJSON(i)); err != nil {
			t.Errorf("year %d: %s, %v", year, text, err)
		}
	}
}

// A number of seconds has the digits of its milliseconds, or of its microseconds below a second, and no others.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 300 * time.Millisecond: "0.3", 29998712345: "29.999", -1234567: "-0.001235", 100 * time.Hour: "360000", 1001 * time.Millisecond: "1.001"} {
		if text, err := json.Marshal(Seconds(d)); string(text) != want || err != nil {
			t.Errorf("%v is %s, want %s (%v)", d, text, want, err)
		}
	}
}

// A moment that our clock has not reached is of a clock that is ahead, and not of now.
func TestMomentsAhead(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for since, want := range map[time.Duration][2]string{
		-90 * time.Second: {"1m30s ago", "for 1m30s"}, 0: {"0.0s ago", "for 0.0s"}, 500 * time.Millisecond: {"0.0s ago", "for 0.0s"},
		5 * time.Minute: {"5m0s ahead of this clock", "since 5m0s ahead of this clock"},
	} {
		if ago, held := Ago(now.Add(since), now), For(now.Add(since), now); ago != want[0] || held != want[1] {
			t.Errorf("%v: %q and %q, want %q", since, ago, held, want)
		}
	}
}

// What a program of ours reads of a key is what another wrote.
func TestInfoOfJSON(t *testing.T) {
	since, label := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), driver.Label{Host: "h", PID: 7, User: "u", Reason: "r"}.Encode()
	want := hasp.Info{Key: "k", Held: true, Fence: 1 << 60, Left: 1500 * time.Millisecond, Leases: 2, Waiters: 2, Holder: hasp.Holder{Owner: "o", Label: label, Since: since, Mode: hasp.Shared, Limit: 3, Slot: 1},
		Queue: []hasp.Holder{{Owner: "p", Label: label}, {Foreign: true, Label: "value"}, {Owner: "q", Label: driver.Label{Host: "h", Kept: true}.Encode(), Mode: hasp.Shared}}}
	want.Holders = []driver.Holding{{Holder: want.Holder, Fence: want.Fence, Left: want.Left}}
	for range 2 {
		text, err := json.Marshal(ToKeyJSON(want))
		if err != nil {
			t.Fatal(err)
		}
		var k KeyJSON
		if err := json.Unmarshal(text, &k); err != nil || !reflect.DeepEqual(k.Info(), want) {
			t.Errorf("%s became %+v, want %+v (%v)", text, k.Info(), want, err)
		}
		want = hasp.Info{Key: "free"}
	}
}
