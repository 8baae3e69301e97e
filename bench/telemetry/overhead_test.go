// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry measures what metrics and traces cost an uncontended Lock and Release:
//
//	go test -count=1 -run TestOverhead -v ./telemetry -overhead
package telemetry

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/redisdriver"
	haspotel "github.com/hasplock/hasp/telemetry/otel"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

var long = flag.Bool("overhead", false, "measure for a minute or two, instead of trying it")

// repeats are how many figures there are of each, one from so many blocks of pairs. Blocks are
// short and take turns, so that whatever else the machine does meets all of them, and of each
// setup's the fastest fifth counts, which that did not meet.
const repeats, sample = 7, 0.01

func init() { logging.Disable() }

// setup is a client with an observer, and what a caller does around each pair.
type setup struct {
	name    string
	beside  string // the setup that it is compared with
	observe func(context.Context, *event.Event)
	within  func(ctx context.Context) (context.Context, func()) // a span of the caller's

	mutex  *hasp.Mutex
	blocks []time.Duration
	cpu    time.Duration   // that these blocks took
	ratios []float64       // to what it is compared with, of the blocks
	added  []time.Duration // CPU time of a pair, beyond that; little depends on what else the machine does
}

func setups(t *testing.T) []*setup {
	provider := trace.NewTracerProvider(trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(sample))), trace.WithBatcher(discard{}))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	tracer := provider.Tracer("caller")
	none := func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	request := func(ctx context.Context) (context.Context, func()) {
		ctx, span := tracer.Start(ctx, "request")
		return ctx, func() { span.End() }
	}
	traces := func() func(context.Context, *event.Event) {
		return haspotel.New(&haspotel.Options{TracerProvider: provider}).Observe
	}
	return []*setup{
		{name: "no observer", within: none},
		{name: "no observer again", beside: "no observer", within: none},
		{name: "an observer that does nothing", beside: "no observer", within: none, observe: func(context.Context, *event.Event) {}},
		{name: "metrics", beside: "no observer", within: none, observe: haspprom.New(nil).Observe},
		{name: "traces, outside of any span", beside: "no observer", within: none, observe: traces()},
		{name: "traces, no provider", beside: "no observer", within: none,
			observe: haspotel.New(&haspotel.Options{TracerProvider: noop.NewTracerProvider()}).Observe},
		{name: "a request's span", within: request},
		{name: "traces, within a request's span", beside: "a request's span", within: request, observe: traces()},
		{name: "metrics and traces, within a request's span", beside: "a request's span", within: request,
			observe: event.Observers(haspprom.New(nil).Observe, traces())},
	}
}

// discard is an exporter to nowhere.
type discard struct{}

func (discard) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                          { return nil }

// What telemetry adds to the time of a pair, at 1 % sampling.
func TestOverhead(t *testing.T) {
	for _, store := range []struct {
		name          string
		open          func(t *testing.T) func() driver.Driver
		pairs, blocks int // pairs of a block, blocks of a repeat
	}{
		{"memory", func(*testing.T) func() driver.Driver { return func() driver.Driver { return memdriver.New() } }, 50, 300},
		{"redis", func(t *testing.T) func() driver.Driver {
			server := testserver.Redis(t)
			return func() driver.Driver {
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
				t.Cleanup(func() { rdb.Close() })
				return redisdriver.New(rdb, nil)
			}
		}, 5, 600},
	} {
		t.Run(store.name, func(t *testing.T) {
			all, open := setups(t), store.open(t)
			for _, s := range all {
				locks, err := hasp.New(open(), &hasp.Options{Observe: s.observe})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = locks.Close() })
				s.mutex = locks.Mutex("order:"+s.name, nil)
			}
			if !*long {
				store.pairs, store.blocks = 2, 2
			}
			for range repeats {
				repeat(t, all, store.pairs, store.blocks)
			}
			report(t, all, store.pairs)
		})
	}
}

// repeat makes one figure of each setup.
func repeat(t *testing.T, all []*setup, pairs, blocks int) {
	for _, s := range all {
		s.blocks, s.cpu = nil, 0
	}
	for i := range blocks + 1 {
		for j := range all {
			s := all[(i+j)%len(all)] // each comes after each other
			began, spent := time.Now(), cpuTime()
			for range pairs {
				s.pair(t)
			}
			if i > 0 { // the first one warms up
				s.blocks = append(s.blocks, time.Since(began))
				s.cpu += cpuTime() - spent
			}
		}
	}
	for _, s := range all {
		for _, other := range all {
			if other.name == s.beside {
				s.ratios = append(s.ratios, float64(fastest(s.blocks))/float64(fastest(other.blocks)))
				s.added = append(s.added, (s.cpu-other.cpu)/time.Duration(pairs*blocks))
			}
		}
	}
}

func (s *setup) pair(t *testing.T) {
	ctx, end := s.within(t.Context())
	defer end()
	lease, err := s.mutex.Lock(ctx)
	if err == nil {
		err = lease.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func report(t *testing.T, all []*setup, pairs int) {
	var out strings.Builder
	for _, s := range all {
		if s.beside == "" {
			fmt.Fprintf(&out, "\n%s: %v a pair, %v of CPU time", s.name, fastest(s.blocks)/time.Duration(pairs), s.cpu/time.Duration(pairs*len(s.blocks)))
			continue
		}
		percent := func(r float64) float64 { return 100 * (r - 1) }
		fmt.Fprintf(&out, "\n%s: %+.1f %% (%+.1f to %+.1f) of the time, and %v (%v to %v) of CPU time, over %s", s.name, percent(median(s.ratios)),
			percent(slices.Min(s.ratios)), percent(slices.Max(s.ratios)), median(s.added), slices.Min(s.added), slices.Max(s.added), s.beside)
	}
	t.Log(out.String())
}

// fastest is the fifth part's largest.
func fastest(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/5] }

func median[T float64 | time.Duration](all []T) T {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
