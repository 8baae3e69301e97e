// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspotel_test

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	haspotel "github.com/hasplock/hasp/telemetry/otel"
	"go.opentelemetry.io/otel/attribute"
)

// The tables of docs/metrics.md list the spans, their events and attributes, and no others.
func TestDocumentedConvention(t *testing.T) {
	b, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## Traces")
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z.]+)` \\| (\\w+) \\|").FindAllStringSubmatch(text, -1) {
		documented[m[1]] = m[2]
	}

	tr, ctx, spans := record(t, haspotel.Options{RecordKey: true}, always)
	for fence := range uint64(2) {
		for kind := event.Waiting; kind <= event.Released; kind++ {
			ctx, e := eventOf(ctx, kind, fence+1)
			e.Mode, e.Handoff, e.Age, e.Left, e.Err = hasp.Shared, time.Second, time.Second, time.Second, errors.New("no")
			if kind == event.Lost {
				continue
			}
			tr.Observe(ctx, e)
		}
		tr.Observe(eventOf(ctx, event.Acquired, fence+1))
		for _, kind := range []event.Kind{event.RenewFailed, event.Downgraded, event.Forgotten, event.Lost} {
			ctx, e := eventOf(ctx, kind, fence+1)
			e.Age, e.Left, e.Err = time.Second, time.Second, errors.New("no")
			tr.Observe(ctx, e)
		}
	}
	made, names := map[string]string{}, map[string]bool{}
	note := func(all []attribute.KeyValue) {
		for _, a := range all {
			made[string(a.Key)] = map[attribute.Type]string{attribute.STRING: "string", attribute.INT64: "int", attribute.FLOAT64: "double"}[a.Value.Type()]
		}
	}
	for _, s := range spans.Ended() {
		names[s.Name()] = true
		note(s.Attributes())
		for _, e := range s.Events() {
			names[e.Name] = true
			note(e.Attributes)
		}
		for _, l := range s.Links() {
			note(l.Attributes)
		}
	}
	if !maps.Equal(documented, made) {
		t.Errorf("docs/metrics.md has the attributes %v, and made are %v", documented, made)
	}
	if want := []string{"lock downgraded", "lock forgotten", "lock hold", "lock renewal failed", "lock wait"}; !slices.Equal(slices.Sorted(maps.Keys(names)), want) {
		t.Errorf("made are %v, want %v", slices.Sorted(maps.Keys(names)), want)
	}
	for name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/metrics.md does not have %q", name)
		}
	}
}
