// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspotel_test

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

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/memdriver"
	haspotel "github.com/hasplock/hasp/telemetry/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// record returns a tracer, a context within a sampled span, and what collects the spans.
func record(t testing.TB, o haspotel.Options, sampler trace.Sampler) (*haspotel.Tracer, context.Context, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans), trace.WithSampler(sampler))
	o.TracerProvider = provider
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	t.Cleanup(func() { span.End() })
	return haspotel.New(&o), ctx, spans
}

var always = trace.ParentBased(trace.AlwaysSample())

// eventOf is one of an owner's on a key, whose name gives away a person.
func eventOf(ctx context.Context, kind event.Kind, fence uint64) (context.Context, *event.Event) {
	e := &event.Event{Kind: kind, Engine: "memory", Key: "patient:jane", Owner: "OWNER", Fence: fence, TTL: 30 * time.Second}
	switch kind {
	case event.Acquired:
		e.LeaseDelta, e.Waited = 1, time.Second
	case event.Lost:
		e.LeaseDelta, e.Err = -1, fmt.Errorf("hold %q: %w", e.Key, hasp.ErrLost)
	case event.Released:
		e.LeaseDelta = -1
	}
	return ctx, e
}

// attrs returns a span's attributes as text.
func attrs(s trace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func wantAttrs(t *testing.T, s trace.ReadOnlySpan, want map[string]string) {
	t.Helper()
	if got := attrs(s); !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v", s.Name(), got, want)
	}
}

// A call is a span, and its lease another that follows it, both of the caller's span.
func TestSpansOfALease(t *testing.T) {
	tr, ctx, spans := record(t, haspotel.Options{}, always)
	before := time.Now()
	_, acquired := eventOf(ctx, event.Acquired, 7)
	acquired.Handoff = time.Millisecond
	tr.Observe(ctx, acquired)
	tr.Observe(eventOf(ctx, event.Released, 7))
	after := time.Now()
	all := spans.Ended()
	if len(all) != 2 || all[0].Name() != "lock wait" || all[1].Name() != "lock hold" {
		t.Fatalf("ended %d spans", len(all))
	}
	for _, s := range all {
		if s.Parent().SpanID() != api.SpanContextFromContext(ctx).SpanID() || s.Status().Code != codes.Unset {
			t.Errorf("%s: a child of %v, status %v", s.Name(), s.Parent().SpanID(), s.Status())
		}
	}
	wait, hold := all[0], all[1]
	if took := wait.EndTime().Sub(wait.StartTime()); took != time.Second {
		t.Errorf("the wait took %v", took)
	}
	if !hold.StartTime().Equal(wait.EndTime()) || hold.StartTime().Before(before) || hold.EndTime().After(after) {
		t.Errorf("held from %v to %v, waited until %v", hold.StartTime(), hold.EndTime(), wait.EndTime())
	}
	both := map[string]string{"lock.system": "memory", "lock.class": "patient", "lock.mode": "exclusive", "lock.owner": "OWNER", "lock.fence": "7", "lock.ttl": "30"}
	one := maps.Clone(both)
	one["lock.outcome"], one["lock.handoff"] = "acquired", "0.001"
	wantAttrs(t, wait, one)
	both["lock.outcome"] = "released"
	wantAttrs(t, hold, both)
}

// How a call or a lease ended is the outcome, and an error when nobody asked for it. The key
// and what may name it stay out, unless they are wanted.
func TestOutcomes(t *testing.T) {
	held := &hasp.HeldError{Holder: hasp.Holder{Label: "jane's laptop"}}
	of := func(class driver.Class, err error) error {
		return &hasp.Error{Op: "lock", Key: "patient:jane", Class: class, Err: err}
	}
	for _, c := range []struct {
		kind    event.Kind
		err     error
		outcome string
		code    codes.Code
	}{
		{event.Failed, of(0, held), "held", codes.Unset},
		{event.Failed, of(0, &hasp.WaitError{End: context.Canceled, Why: held}), "canceled", codes.Unset},
		{event.Failed, of(0, hasp.ErrClosed), "closed", codes.Unset},
		{event.Failed, of(0, &hasp.WaitError{End: context.DeadlineExceeded, Why: held}), "timeout", codes.Error},
		{event.Failed, of(driver.ClassDenied, errors.New("no")), "denied", codes.Error},
		{event.Released, of(0, fmt.Errorf("broken: %w", hasp.ErrLost)), "lost", codes.Error},
		{event.Released, of(driver.ClassUnreachable, errors.New("no")), "unconfirmed", codes.Error},
		{event.Lost, of(0, hasp.ErrLost), "lost", codes.Error},
	} {
		for _, recordKey := range []bool{false, true} {
			tr, ctx, spans := record(t, haspotel.Options{RecordKey: recordKey}, always)
			if c.kind != event.Failed {
				tr.Observe(eventOf(ctx, event.Acquired, 1))
			}
			_, e := eventOf(ctx, c.kind, 1)
			e.Err = c.err
			tr.Observe(ctx, e)
			s := spans.Ended()[len(spans.Ended())-1]
			got := attrs(s)
			if got["lock.outcome"] != c.outcome || s.Status().Code != c.code || (got["error.type"] != "") != (c.code == codes.Error) {
				t.Errorf("%v: %v, status %v", c.err, got, s.Status())
			}
			if text := fmt.Sprint(got, s.Status(), s.Events()); strings.Contains(text, "jane") != recordKey {
				t.Errorf("RecordKey %v, and the span of %v has %s", recordKey, c.err, text)
			}
		}
	}
}

// What happens during a hold is an event of its span; a loss ends it, once.
func TestEventsOfAHold(t *testing.T) {
	tr, ctx, spans := record(t, haspotel.Options{}, always)
	tr.Observe(eventOf(ctx, event.Acquired, 1))
	_, failed := eventOf(ctx, event.RenewFailed, 1)
	failed.Age, failed.Left, failed.Err = 11*time.Second, 19*time.Second, fmt.Errorf("patient:jane: %w", context.DeadlineExceeded)
	tr.Observe(ctx, failed)
	tr.Observe(eventOf(ctx, event.Renewed, 1))
	tr.Observe(eventOf(ctx, event.Downgraded, 1))
	tr.Observe(eventOf(ctx, event.Forgotten, 1))
	failed.Owner = "ANOTHER" // who was not sampled
	tr.Observe(ctx, failed)
	tr.Observe(eventOf(ctx, event.Lost, 1))
	_, after := eventOf(ctx, event.Released, 1)
	after.LeaseDelta = 0
	tr.Observe(ctx, after)
	tr.Observe(ctx, failed)
	all := spans.Ended()
	if len(all) != 2 {
		t.Fatalf("ended %d spans", len(all))
	}
	var names []string
	for _, e := range all[1].Events() {
		names = append(names, e.Name)
		if strings.Contains(fmt.Sprint(e), "jane") {
			t.Errorf("the key is in %v", e)
		}
	}
	if want := []string{"lock renewal failed", "lock downgraded", "lock forgotten"}; !slices.Equal(names, want) {
		t.Fatalf("events %q, want %q", names, want)
	}
	got := fmt.Sprint(all[1].Events()[0].Attributes)
	for _, want := range []string{"lock.age", "11", "lock.left", "19", "error.type", "timeout"} {
		if !strings.Contains(got, want) {
			t.Errorf("a renewal that failed has no %s: %s", want, got)
		}
	}
}

// A holder links to the one before it on its key.
func TestLinks(t *testing.T) {
	tr, ctx, spans := record(t, haspotel.Options{MaxKeys: 2}, always)
	pair := func(key string, fence uint64) trace.ReadOnlySpan {
		_, a := eventOf(ctx, event.Acquired, fence)
		_, r := eventOf(ctx, event.Released, fence)
		a.Key, r.Key = key, key
		tr.Observe(ctx, a)
		tr.Observe(ctx, r)
		return spans.Ended()[len(spans.Ended())-1]
	}
	first, other, second := pair("a", 1), pair("b", 2), pair("a", 3)
	if len(first.Links())+len(other.Links()) != 0 {
		t.Errorf("the first holders have %d and %d links", len(first.Links()), len(other.Links()))
	}
	if l := second.Links(); len(l) != 1 || l[0].SpanContext.SpanID() != first.SpanContext().SpanID() || l[0].Attributes[0].Value.String() != "1" {
		t.Errorf("the second holder links to %v", l)
	}
	for i := range 100 {
		pair(fmt.Sprint(i), 4)
	}
	known := 0
	for i := range 100 { // what one of these forgets it does not know again before its turn
		known += len(pair(fmt.Sprint(i), 5).Links())
	}
	if known > 2 {
		t.Errorf("%d keys are remembered, 2 are allowed", known)
	}
	none, ctx2, spans := record(t, haspotel.Options{MaxKeys: -1}, always)
	for i := range 2 {
		none.Observe(eventOf(ctx2, event.Acquired, uint64(i)))
		none.Observe(eventOf(ctx2, event.Released, uint64(i)))
	}
	for _, s := range spans.Ended() {
		if len(s.Links()) > 0 {
			t.Error("a link without keys")
		}
	}
}

// Too many leases at once have no spans of their own.
func TestHoldsAreBounded(t *testing.T) {
	tr, ctx, spans := record(t, haspotel.Options{MaxHolds: 2}, always)
	for i := range 5 {
		tr.Observe(eventOf(ctx, event.Acquired, uint64(i)))
	}
	for i := range 5 {
		tr.Observe(eventOf(ctx, event.Released, uint64(i)))
	}
	tr.Observe(eventOf(ctx, event.Acquired, 9))
	tr.Observe(eventOf(ctx, event.Released, 9))
	if n := len(spans.Ended()); n != 6+2+1 {
		t.Errorf("%d spans, want 6 waits and 3 holds", n)
	}
}

// A lease that was lost before its caller had it is not kept.
func TestLostBeforeItWasHad(t *testing.T) {
	tr, ctx, spans := record(t, haspotel.Options{MaxHolds: 1}, always)
	for i := range 3 {
		_, e := eventOf(ctx, event.Acquired, uint64(i))
		e.LeaseDelta = 0
		tr.Observe(ctx, e)
	}
	if n := len(spans.Ended()); n != 6 || attrs(spans.Ended()[5])["lock.outcome"] != "lost" {
		t.Errorf("%d spans ended", n)
	}
}

// counting counts the spans that are asked for.
type counting struct {
	noop.TracerProvider
	n int
}

func (c *counting) Tracer(string, ...api.TracerOption) api.Tracer { return countingTracer{c: c} }

type countingTracer struct {
	noop.Tracer
	c *counting
}

func (t countingTracer) Start(ctx context.Context, name string, o ...api.SpanStartOption) (context.Context, api.Span) {
	t.c.n++
	return noop.Tracer{}.Start(ctx, name, o...)
}

// Within a span that is not sampled nothing is asked for, kept or allocated.
func TestNotSampledCostsNothing(t *testing.T) {
	parent := api.ContextWithSpanContext(t.Context(), api.NewSpanContext(api.SpanContextConfig{TraceID: api.TraceID{1}, SpanID: api.SpanID{1}}))
	var all []*event.Event
	for kind := event.Waiting; kind <= event.Released; kind++ {
		_, e := eventOf(parent, kind, 1)
		all = append(all, e)
	}
	c := &counting{}
	tr := haspotel.New(&haspotel.Options{TracerProvider: c})
	if n := testing.AllocsPerRun(100, func() {
		for _, e := range all {
			tr.Observe(parent, e)
		}
	}); n > 0 || c.n > 0 {
		t.Errorf("%v allocations, %d spans asked for", n, c.n)
	}
	ask := haspotel.New(&haspotel.Options{TracerProvider: c, AskSampler: true})
	ask.Observe(eventOf(parent, event.Acquired, 1))
	if c.n != 1 {
		t.Errorf("with AskSampler %d spans were asked for, want one", c.n)
	}
}

// Outside of a span the sampler decides of a call and its lease at once, which are one trace.
func TestRoots(t *testing.T) {
	for name, c := range map[string]struct {
		sampler trace.Sampler
		want    int
	}{"sampled": {always, 2}, "not sampled": {trace.ParentBased(trace.NeverSample()), 0}} {
		tr, _, spans := record(t, haspotel.Options{}, c.sampler)
		tr.Observe(eventOf(t.Context(), event.Acquired, 1))
		tr.Observe(eventOf(t.Context(), event.Released, 1))
		all := spans.Ended()
		if len(all) != c.want {
			t.Fatalf("%s: %d spans", name, len(all))
		}
		if len(all) > 0 && (all[0].Parent().IsValid() || all[1].Parent().SpanID() != all[0].SpanContext().SpanID()) {
			t.Errorf("%s: the wait is a child of %v, the hold of %v", name, all[0].Parent().SpanID(), all[1].Parent().SpanID())
		}
	}
}

// Of real locks, in cohorts and without, under contention: each call has its span, each
// lease one that ends, and nothing stays open after Close.
func TestRealLocks(t *testing.T) {
	tr, ctx, spans := record(t, haspotel.Options{}, always)
	locks, err := hasp.New(memdriver.New(), &hasp.Options{Observe: tr.Observe})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 20 {
				lease, err := locks.Mutex("job:1", &hasp.LockOptions{Cohort: time.Duration(i%2) * time.Second}).Lock(ctx)
				if err == nil {
					err = lease.Release()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := locks.Mutex("left", nil).Lock(ctx); err != nil {
		t.Error(err)
	}
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for _, s := range spans.Ended() {
		count[s.Name()+" "+attrs(s)["lock.outcome"]] += 1
		if s.Name() == "lock hold" {
			count["links"] += len(s.Links())
		}
	}
	want := map[string]int{"lock wait acquired": 161, "lock hold released": 161, "links": 159}
	if !maps.Equal(count, want) || len(spans.Started()) != len(spans.Ended())+1 { // the caller's
		t.Errorf("%v, want %v; %d spans began", count, want, len(spans.Started()))
	}
}
