// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/clock"
)

// call is what one Try may take.
const call = 5 * time.Second

// at is an instant by all clocks of a machine.
func at(d time.Duration) clock.Instant { return clock.Instant{Mono: d, Wall: d} }

// A caller that continues another's wait has only waited since it came.
func TestPatienceJoins(t *testing.T) {
	for _, c := range []struct{ silent, puzzled, from, wantSilent, wantPuzzled time.Duration }{
		{1, 2, 5, 5, 5},
		{7, 8, 5, 7, 8},
		{4, 6, 5, 5, 6},
	} {
		p := patience{terms: &Terms{}, silent: at(c.silent), puzzled: at(c.puzzled)}
		p.joins(at(c.from))
		if p.silent != at(c.wantSilent) || p.puzzled != at(c.wantPuzzled) {
			t.Errorf("%+v: silent since %v, puzzled since %v", c, p.silent.Mono, p.puzzled.Mono)
		}
	}
}

// The wait ends when the pause would end at the bound, not only after it.
func TestPatienceTires(t *testing.T) {
	why := errors.New("trouble")
	for _, c := range []struct {
		name            string
		ttl, most       time.Duration
		silent, puzzled time.Duration // for how long
		exhausted       string        // what is said; "": it is not
	}{
		{"no bound", time.Second, 0, time.Hour, 0, ""},
		{"within MaxSilence", time.Second, time.Minute, 59*time.Second - 1, 0, ""},
		{"at MaxSilence", time.Second, time.Minute, 59 * time.Second, 0, "no good answer"},
		{"within the TTL", time.Minute, 0, time.Hour, 59*time.Second - 1, ""},
		{"at the TTL", time.Minute, 0, time.Hour, 59 * time.Second, "the store has failed"},
		{"at the TTL, before MaxSilence", time.Minute, 2 * time.Hour, time.Hour, 59 * time.Second, "the store has failed"},
		{"at both", time.Minute, time.Minute, 59 * time.Second, 59 * time.Second, "no good answer"},
		{"a short TTL gives no less than a Try", time.Second, 0, time.Hour, call - time.Second - 1, ""},
		{"after a Try", time.Second, 0, time.Hour, call - time.Second, "the store has failed"},
	} {
		p := patience{terms: &Terms{TTL: c.ttl, Call: call, Silence: c.most}, silent: at(2*time.Hour - c.silent), puzzled: at(2*time.Hour - c.puzzled), kind: Unclear, why: why}
		err := p.exhausted(at(2*time.Hour), time.Second)
		if (err != nil) != (c.exhausted != "") || err != nil && (!errors.Is(err, why) || !strings.HasPrefix(err.Error(), c.exhausted)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// An error that the engine does not know is borne from the latest that it knew.
func TestPatienceIsPuzzled(t *testing.T) {
	p := newPatience(&Terms{TTL: time.Minute, Call: call})
	for i, kind := range []Trouble{Away, Away, Unclear, Unclear} {
		now := at(time.Duration(i) * time.Second / 100)
		p.asks(now)
		p.failed(now, kind)
		if want := time.Duration(max(i-1, 0)) * time.Second / 100; kind == Unclear && p.bound(now).borne != want {
			t.Errorf("after error %d it bore %v, not %v", i, p.bound(now).borne, want)
		}
	}
}

// One call takes half of MaxSilence at most, and what is left of it.
func TestPatienceLimit(t *testing.T) {
	for _, c := range []struct{ ttl, most, silent, want time.Duration }{
		{time.Second, 0, 0, time.Second},
		{time.Minute, 0, 0, call},
		{time.Minute, 6 * time.Second, 0, 3 * time.Second},
		{time.Minute, 6 * time.Second, 5 * time.Second, time.Second},
		{time.Minute, 6 * time.Second, 6 * time.Second, time.Second}, // the process stood still
		{time.Minute, 6 * time.Second, time.Hour, time.Second},
		{time.Minute, time.Hour, 0, call},
	} {
		p := newPatience(&Terms{TTL: c.ttl, Call: call, Silence: c.most})
		if c.silent > 0 {
			p.asks(at(time.Hour))
			p.failed(at(time.Hour), Away)
			p.due = at(time.Hour + 5*time.Second)
		}
		if got := p.asks(at(time.Hour + c.silent)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The time for which this process stood still, in a call or in the pause after it, is not the store's trouble.
func TestPatienceStoodStill(t *testing.T) {
	const short, ttl = time.Millisecond, time.Second // ttl is the limit of a call, too
	for what, stops := range map[string][]struct{ pause, call time.Duration }{
		"in a pause":         {{0, short}, {time.Minute, short}},
		"in a call":          {{0, short}, {0, time.Minute}},
		"in the first call":  {{0, time.Minute}, {0, short}},
		"in each":            {{0, time.Minute}, {time.Minute, time.Minute}, {time.Minute, time.Minute}},
		"with a slow answer": {{0, ttl}, {time.Minute, ttl}},
	} {
		for _, kinds := range [][2]Trouble{{Away, Away}, {Unclear, Unclear}, {Rejects, Rejects}, {Rejects, Away}, {Away, Rejects}} {
			for _, most := range []time.Duration{0, 15 * time.Second} {
				p, now, bound := newPatience(&Terms{TTL: ttl, Call: call, Silence: most, Grace: 15 * time.Second}), clock.Instant{Mono: 1, Wall: 1, Boot: 1}, time.Duration(0)
				p.why = errors.New("away")
				for i, s := range stops {
					now = now.Add(s.pause)
					bound += p.asks(now)
					now = now.Add(s.call)
					pause := p.failed(now, kinds[i%2])
					b := p.bound(now)
					if err := p.exhausted(now, pause); err != nil || b.borne > bound || b.borne < 0 {
						t.Errorf("%v, %s: after call %d it bore %v, at most %v is the store's: %v", kinds, what, i, b.borne, bound, err)
					}
					bound += pause
				}
			}
		}
	}
}
