// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspotel

import (
	"math"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/telemetry"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The attributes, as docs/metrics.md describes them. Durations are in seconds.
const (
	attrSystem  = attribute.Key("lock.system")
	attrClass   = attribute.Key("lock.class")
	attrKey     = attribute.Key("lock.key")
	attrMode    = attribute.Key("lock.mode")
	attrOwner   = attribute.Key("lock.owner")
	attrFence   = attribute.Key("lock.fence")
	attrSlot    = attribute.Key("lock.slot")
	attrTTL     = attribute.Key("lock.ttl")
	attrOutcome = attribute.Key("lock.outcome")
	attrHandoff = attribute.Key("lock.handoff")
	attrAge     = attribute.Key("lock.age")
	attrLeft    = attribute.Key("lock.left")
	attrError   = attribute.Key("error.type") // this and the next are OpenTelemetry's own
	attrMessage = attribute.Key("error.message")
)

// describe returns what both spans say of a lock.
func (t *Tracer) describe(e *event.Event) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	all = append(all,
		attrSystem.String(e.Engine),
		attrClass.String(telemetry.Label(t.class(e.Key))),
		attrMode.String(e.Mode.String()),
		attrOwner.String(driver.Printable(e.Owner)),
		attrTTL.Float64(e.TTL.Seconds()))
	if t.recordKey {
		all = append(all, attrKey.String(driver.Printable(e.Key)))
	}
	if e.Mode == hasp.Shared && e.Fence != 0 {
		all = append(all, attrSlot.Int(e.Slot))
	}
	return append(all, fence(e.Fence)...)
}

// outcome returns what the span of a wait says.
func (t *Tracer) outcome(how string, e *event.Event) []attribute.KeyValue {
	all := append(t.describe(e), attrOutcome.String(how))
	if e.Handoff > 0 {
		all = append(all, attrHandoff.Float64(e.Handoff.Seconds()))
	}
	return all
}

// fence returns the attribute of a fence; nil for none, and for a fence too large for it.
func fence(f uint64) []attribute.KeyValue {
	if f == 0 || f > math.MaxInt64 {
		return nil
	}
	return []attribute.KeyValue{attrFence.Int64(int64(f))}
}

// trouble returns what an event within a hold says.
func (t *Tracer) trouble(e *event.Event) (all []attribute.KeyValue) {
	if e.Age > 0 {
		all = append(all, attrAge.Float64(e.Age.Seconds()))
	}
	if e.Left > 0 {
		all = append(all, attrLeft.Float64(e.Left.Seconds()))
	}
	if e.Err != nil && e.Kind != event.Forgotten {
		all = append(all, attrError.String(telemetry.Reason(e.Err)))
		if t.recordKey {
			all = append(all, attrMessage.String(driver.Printable(e.Err.Error())))
		}
	}
	return all
}

// fail gives a span the status of an error. Its text may have the key and its holder in it.
func (t *Tracer) fail(span trace.Span, reason string, err error) {
	span.SetAttributes(attrError.String(reason))
	text := reason
	if t.recordKey && err != nil {
		text = driver.Printable(err.Error())
	}
	span.SetStatus(codes.Error, text)
}
