// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/expect"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

var must = expect.Need

// gather returns all samples of a collector, each under its name without the common
// beginning, and its labels: `held{memory,order}`, `failures_total{memory,order,held}`. Of a
// histogram they are .count and .sum.
func gather(t testing.TB, c *haspprom.Collector) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, f := range families(t, c) {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			in := []string{labels["engine"], labels["class"]}
			delete(labels, "engine")
			delete(labels, "class")
			in = append(in, slices.Collect(maps.Values(labels))...) // one at most
			name, id := strings.TrimPrefix(f.GetName(), "distributed_lock_"), "{"+strings.Join(in, ",")+"}"
			if h := m.GetHistogram(); h != nil {
				all[name+".count"+id], all[name+".sum"+id] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			all[name+id] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func families(t testing.TB, c *haspprom.Collector) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	must(t, r.Register(c))
	all, err := r.Gather()
	must(t, err)
	return all
}

// Each event counts where it should, and nowhere else.
func TestEventsCount(t *testing.T) {
	oops := errors.New("oops")
	held := fmt.Errorf("try lock: %w", hasp.ErrHeld)
	away := &hasp.Error{Class: driver.ClassUnreachable, Err: oops}
	for name, c := range map[string]struct {
		event event.Event
		want  map[string]float64
	}{
		"acquired":               {event.Event{Kind: event.Acquired, LeaseDelta: 1, Waited: 2 * time.Second}, map[string]float64{"held": 1, "wait_seconds.count/acquired": 1, "wait_seconds.sum/acquired": 2}},
		"acquired by a handoff":  {event.Event{Kind: event.Acquired, LeaseDelta: 1, WaiterDelta: -1, Handoff: time.Second}, map[string]float64{"held": 1, "waiters": -1, "wait_seconds.count/acquired": 1, "handoff_seconds.count": 1, "handoff_seconds.sum": 1}},
		"begins to wait":         {event.Event{Kind: event.Waiting, WaiterDelta: 1}, map[string]float64{"waiters": 1}},
		"still waits":            {event.Event{Kind: event.Waiting}, nil},
		"refused":                {event.Event{Kind: event.Failed, Waited: time.Second, Err: held}, map[string]float64{"wait_seconds.count/failed": 1, "wait_seconds.sum/failed": 1, "failures_total/held": 1}},
		"gave up":                {event.Event{Kind: event.Failed, WaiterDelta: -1, Err: &hasp.WaitError{End: context.DeadlineExceeded, Why: held}}, map[string]float64{"waiters": -1, "wait_seconds.count/failed": 1, "failures_total/timeout": 1}},
		"away":                   {event.Event{Kind: event.Failed, Err: away}, map[string]float64{"wait_seconds.count/failed": 1, "failures_total/unreachable": 1, "store_errors_total": 1}},
		"gave up, away":          {event.Event{Kind: event.Failed, Err: &hasp.Error{Class: driver.ClassUnreachable, Err: &hasp.WaitError{End: context.Canceled, Why: oops}}}, map[string]float64{"wait_seconds.count/failed": 1, "failures_total/unreachable": 1}},
		"held back at once":      {event.Event{Kind: event.Failed, Err: voting.ErrNotVoting}, map[string]float64{"wait_seconds.count/failed": 1, "failures_total/held_back": 1, "held_back_total": 1}},
		"held back":              {event.Event{Kind: event.HeldBack, Err: voting.ErrNotVoting}, map[string]float64{"held_back_total": 1}},
		"trouble":                {event.Event{Kind: event.Trouble, Err: oops}, map[string]float64{"store_errors_total": 1}},
		"renewed":                {event.Event{Kind: event.Renewed, Age: 10 * time.Second, TTL: 30 * time.Second}, map[string]float64{"renewals_total/ok": 1, "renewal_age_ratio.count": 1, "renewal_age_ratio.sum": 1. / 3}},
		"not renewed":            {event.Event{Kind: event.RenewFailed, Age: 20 * time.Second, TTL: 40 * time.Second, Err: oops}, map[string]float64{"renewals_total/failed": 1, "renewal_age_ratio.count": 1, "renewal_age_ratio.sum": .5}},
		"released":               {event.Event{Kind: event.Released, LeaseDelta: -1, Held: 3 * time.Second}, map[string]float64{"held": -1, "held_seconds.count": 1, "held_seconds.sum": 3}},
		"not confirmed":          {event.Event{Kind: event.Released, LeaseDelta: -1, Err: away}, map[string]float64{"held": -1, "held_seconds.count": 1, "release_failures_total": 1}},
		"lost":                   {event.Event{Kind: event.Lost, LeaseDelta: -1, Held: time.Second, Err: hasp.ErrLost}, map[string]float64{"held": -1, "held_seconds.count": 1, "held_seconds.sum": 1, "losses_total": 1}},
		"released after that":    {event.Event{Kind: event.Released, Held: 2 * time.Second, Err: hasp.ErrLost}, nil},
		"found lost by releases": {event.Event{Kind: event.Released, LeaseDelta: -1, Err: hasp.ErrLost}, map[string]float64{"held": -1, "held_seconds.count": 1, "losses_total": 1}},
		"forgotten":              {event.Event{Kind: event.Forgotten, Err: oops}, map[string]float64{"forgotten_total": 1}},
		"downgraded":             {event.Event{Kind: event.Downgraded}, nil},
		"of a later version":     {event.Event{Kind: 200}, nil},
	} {
		o := haspprom.New(nil)
		c.event.Engine, c.event.Key = "memory", "order:1"
		o.Observe(t.Context(), &c.event)
		got := map[string]float64{}
		for id, v := range gather(t, o) {
			if v != 0 {
				id, label, _ := strings.Cut(id, "{memory,order")
				if label = strings.Trim(label, ",}"); label != "" {
					id += "/" + label
				}
				got[id] = v
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: counted %v, want %v", name, got, c.want)
		}
	}
}

// All series of a class exist at 0 from its first event, or from the start.
func TestSeriesBeginAtZero(t *testing.T) {
	ids := func(c *haspprom.Collector, class string) (ids []string) {
		for id, v := range gather(t, c) {
			if of, rest, _ := strings.Cut(id, "{memory,"); strings.HasPrefix(rest, class+",") || rest == class+"}" {
				ids = append(ids, of+strings.TrimPrefix(rest, class))
				if v != 0 && class == "known" {
					t.Errorf("%s begins at %v", id, v)
				}
			}
		}
		slices.Sort(ids)
		return ids
	}
	o := &haspprom.Options{Classes: []string{"known"}, Engine: "memory"}
	start := ids(haspprom.New(o), "known")
	if want := 2 + 13 + 2 + 5 + 2*(2+3); len(start) != want {
		t.Errorf("%d series from the start, want %d: %v", len(start), want, start)
	}
	o.Engine = ""
	c := haspprom.New(o)
	if all := gather(t, c); len(all) > 0 {
		t.Errorf("of no engine: %v", all)
	}
	c.Observe(t.Context(), &event.Event{Kind: event.Waiting, Engine: "memory", Key: "new/1"})
	for _, class := range []string{"known", "new"} {
		if got := ids(c, class); !slices.Equal(got, start) {
			t.Errorf("%s: %v; want %v", class, got, start)
		}
	}
}

// classes returns the classes that have series, sorted.
func classes(t *testing.T, c *haspprom.Collector) []string {
	all := map[string]bool{}
	for _, f := range families(t, c) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "class" {
					all[l.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func TestClassesAreBounded(t *testing.T) {
	saw := func(key, engine string) *event.Event {
		return &event.Event{Kind: event.Forgotten, Engine: engine, Key: key}
	}
	c := haspprom.New(&haspprom.Options{MaxClasses: 3, Classes: []string{"first", "first", "other"}})
	for _, key := range []string{"a:1", "b", "c", "a/2", "d:2", "other:1", ""} {
		c.Observe(t.Context(), saw(key, "memory"))
	}
	for _, key := range []string{"b", "e"} {
		c.Observe(t.Context(), saw(key, "redis"))
	}
	if got := classes(t, c); !slices.Equal(got, []string{"a", "b", "first", "other"}) {
		t.Errorf("the classes are %q", got)
	}
	all := gather(t, c)
	for id, want := range map[string]float64{"{memory,a}": 2, "{memory,b}": 1, "{memory,other}": 4, "{redis,b}": 1, "{redis,other}": 1, "{redis,first}": 0} {
		if got, ok := all["forgotten_total"+id]; !ok || got != want {
			t.Errorf("%s counts %v (%v), want %v", id, got, ok, want)
		}
	}
	none := haspprom.New(&haspprom.Options{MaxClasses: -1, Classes: []string{"a"}, Engine: "memory"})
	none.Observe(t.Context(), saw("b", "memory"))
	if got := classes(t, none); !slices.Equal(got, []string{"other"}) {
		t.Errorf("without classes they are %q", got)
	}
	many := haspprom.New(nil)
	for i := range 2 * haspprom.DefaultMaxClasses {
		many.Observe(t.Context(), saw(fmt.Sprint("order-", i), "memory"))
	}
	if got := classes(t, many); len(got) != haspprom.DefaultMaxClasses+1 {
		t.Errorf("%d classes by default", len(got))
	}
}

// Whatever a key or Class holds, a class is short, valid and printable, and can be exposed.
func TestHostileKeys(t *testing.T) {
	c := haspprom.New(nil)
	for _, key := range []string{"\xff\xfe:1", "a\nb:1", "\x1b[2J", `"} 1`, "<script>/x", strings.Repeat("ü", 200), "\x00"} {
		c.Observe(t.Context(), &event.Event{Kind: event.Forgotten, Engine: "memory", Key: key})
	}
	custom := haspprom.New(&haspprom.Options{Class: func(key string) string { return strings.Repeat(key, 9000) }})
	custom.Observe(t.Context(), &event.Event{Kind: event.Forgotten, Engine: "memory", Key: "\x07long"})
	got := append(classes(t, c), classes(t, custom)...)
	if len(got) != 8 {
		t.Errorf("the classes are %q", got)
	}
	for _, class := range got {
		if len(class) > 64 || !utf8.ValidString(class) || strings.ContainsAny(class, "\n\x1b\x00\x07") {
			t.Errorf("a class is %q", class)
		}
	}
}

// Many see one new class at once: it has one set of series, and no event is lost.
func TestFirstEventsAtOnce(t *testing.T) {
	c := haspprom.New(&haspprom.Options{MaxClasses: 5})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 100 {
				c.Observe(t.Context(), &event.Event{Kind: event.Forgotten, Engine: fmt.Sprint(i % 2), Key: fmt.Sprint((i + g) % 10)})
			}
		})
	}
	all.Wait()
	var sum float64
	for id, v := range gather(t, c) {
		if strings.HasPrefix(id, "forgotten_total") {
			sum += v
		}
	}
	if got := classes(t, c); sum != 800 || len(got) != 6 {
		t.Errorf("%v events of 800, classes %q", sum, got)
	}
}
