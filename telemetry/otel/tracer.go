// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspotel

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/telemetry"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// scope names this package in the traces.
const scope = "github.com/hasplock/hasp/telemetry/otel"

// Bounds of what a Tracer keeps.
const (
	DefaultMaxHolds = 10_000
	DefaultMaxKeys  = 1000
)

// Options configure a Tracer. The zero value, and nil, mean the defaults.
type Options struct {
	// TracerProvider makes the spans. nil: otel's global one.
	TracerProvider trace.TracerProvider
	// Class returns the class of a key, for the attribute lock.class: see
	// haspprom.Options.Class, which has the same default. It is called for sampled calls
	// only, and there is no bound on how many classes there are.
	Class func(key string) string
	// RecordKey adds the key itself, and the texts of errors, which have keys and the
	// names of holders in them. Without it they stay out of the traces.
	RecordKey bool
	// AskSampler asks the provider's sampler of each call. Without it a call within a span
	// that is not sampled has no spans, and costs next to nothing: so does the sampler
	// decide that is usual, sdk/trace.ParentBased. Calls outside of any span are always
	// for the sampler to decide.
	AskSampler bool
	// MaxHolds is how many sampled leases have spans at once, while they are held; more
	// leases have none. 0 means DefaultMaxHolds.
	MaxHolds int
	// MaxKeys is of how many keys the last holder is known, which the next one's span
	// links to. 0 means DefaultMaxKeys; negative: there are no links.
	MaxKeys int
}

// Tracer makes the spans of one client, or of several clients of one store: a key is one
// lock to it. All methods may be called by many goroutines at once.
type Tracer struct {
	tracer    trace.Tracer
	class     func(key string) string
	recordKey bool
	always    bool
	maxHolds  int
	maxKeys   int

	mu    sync.Mutex
	holds map[holdID]trace.Span // sampled leases that are held
	last  map[string]holder     // of each key, the sampled lease acquired last
}

// holdID names a lease. In a cohort the turns have one owner, and each a fence of its own.
type holdID struct {
	owner string
	fence uint64
}

// holder is what a link says of a lease.
type holder struct {
	span  trace.SpanContext
	fence uint64
}

// New returns a tracer. nil options mean the defaults.
func New(o *Options) *Tracer {
	if o == nil {
		o = &Options{}
	}
	t := &Tracer{class: o.Class, recordKey: o.RecordKey, always: o.AskSampler, maxHolds: o.MaxHolds, maxKeys: o.MaxKeys,
		holds: map[holdID]trace.Span{}, last: map[string]holder{}}
	provider := o.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	t.tracer = provider.Tracer(scope)
	if t.class == nil {
		t.class = telemetry.Class
	}
	if t.maxHolds == 0 {
		t.maxHolds = DefaultMaxHolds
	}
	if t.maxKeys == 0 {
		t.maxKeys = DefaultMaxKeys
	}
	return t
}

// Observe makes the spans of an event; it is for hasp.Options.Observe. It does no I/O
// unless the provider exports spans as they end (its span processor is not a batcher).
func (t *Tracer) Observe(ctx context.Context, e *event.Event) {
	parent := trace.SpanContextFromContext(ctx)
	if parent.IsValid() && !parent.IsSampled() && !t.always {
		return
	}
	switch e.Kind {
	case event.Acquired:
		t.acquired(ctx, e, parent.IsValid())
	case event.Failed:
		t.failed(ctx, e)
	case event.Lost, event.Released:
		t.ended(e)
	case event.RenewFailed, event.Downgraded, event.Forgotten:
		t.during(e)
	case event.Waiting, event.Renewed, event.Trouble, event.HeldBack:
	}
}

// acquired makes the span of the wait, and begins that of the hold.
func (t *Tracer) acquired(caller context.Context, e *event.Event, child bool) {
	now := time.Now()
	ctx, wait := t.wait(caller, e, now)
	if !wait.IsRecording() {
		return
	}
	wait.SetAttributes(t.outcome("acquired", e)...)
	wait.End(trace.WithTimestamp(now))
	if child {
		ctx = caller // the hold goes on when the wait is over: it stands beside it
	}
	t.hold(ctx, e, now)
}

// failed makes the span of a wait without a lease.
func (t *Tracer) failed(ctx context.Context, e *event.Event) {
	now := time.Now()
	_, wait := t.wait(ctx, e, now)
	if !wait.IsRecording() {
		return
	}
	reason := telemetry.Reason(e.Err)
	wait.SetAttributes(t.outcome(reason, e)...)
	switch reason {
	case "held", "canceled", "closed": // what the caller asked for
	default:
		t.fail(wait, reason, e.Err)
	}
	wait.End(trace.WithTimestamp(now))
}

// wait begins the span of a call that ends now.
func (t *Tracer) wait(ctx context.Context, e *event.Event, now time.Time) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, "lock wait", trace.WithTimestamp(now.Add(-e.Waited)))
}

// hold begins the span of a lease, and links it to the one before.
func (t *Tracer) hold(ctx context.Context, e *event.Event, now time.Time) {
	id := holdID{e.Owner, e.Fence}
	t.mu.Lock()
	before, known := t.last[e.Key]
	full := len(t.holds) >= t.maxHolds
	t.mu.Unlock()
	if full {
		return
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(now), trace.WithAttributes(t.describe(e)...)}
	if known {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: before.span, Attributes: fence(before.fence)}))
	}
	_, span := t.tracer.Start(ctx, "lock hold", options...)
	if !span.IsRecording() {
		return
	}
	t.remember(e.Key, holder{span.SpanContext(), e.Fence})
	if e.LeaseDelta == 0 { // it was lost before its caller had it
		t.lost(span, e)
		span.End(trace.WithTimestamp(now))
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[id] = span
}

// remember notes the holder of a key, in place of another key's when there are too many.
func (t *Tracer) remember(key string, h holder) {
	if !h.span.IsSampled() || t.maxKeys < 0 {
		return // no link could be followed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.last[key]; !known && len(t.last) >= t.maxKeys {
		for other := range t.last {
			delete(t.last, other)
			break
		}
	}
	t.last[key] = h
}

// ended ends the span of a lease. What is lost and then released ends once.
func (t *Tracer) ended(e *event.Event) {
	id := holdID{e.Owner, e.Fence}
	t.mu.Lock()
	span := t.holds[id]
	delete(t.holds, id)
	t.mu.Unlock()
	if span == nil {
		return
	}
	reason := telemetry.Reason(e.Err)
	switch {
	case e.Err == nil:
		span.SetAttributes(attrOutcome.String("released"))
	case reason == "lost":
		t.lost(span, e)
	default:
		span.SetAttributes(attrOutcome.String("unconfirmed"))
		t.fail(span, reason, e.Err)
	}
	span.End()
}

// lost says that a lease is lost.
func (t *Tracer) lost(span trace.Span, e *event.Event) {
	span.SetAttributes(attrOutcome.String("lost"))
	t.fail(span, "lost", e.Err)
}

// during adds an event to the span of a lease.
func (t *Tracer) during(e *event.Event) {
	t.mu.Lock()
	span := t.holds[holdID{e.Owner, e.Fence}]
	t.mu.Unlock()
	if span == nil {
		return
	}
	name, attrs := "lock renewal failed", t.trouble(e)
	switch e.Kind {
	case event.Downgraded:
		name = "lock downgraded"
	case event.Forgotten:
		name = "lock forgotten"
	}
	span.AddEvent(name, trace.WithAttributes(attrs...))
}
