// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspotel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
	haspotel "github.com/hasplock/hasp/telemetry/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Spans of all locks of a client, within those of the program.
func Example() {
	spans := tracetest.NewInMemoryExporter() // a program has one that sends them somewhere
	provider := trace.NewTracerProvider(trace.WithBatcher(spans))
	traces := haspotel.New(&haspotel.Options{TracerProvider: provider})

	locks, err := hasp.New(memdriver.New(), &hasp.Options{Observe: traces.Observe})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx, request := provider.Tracer("shop").Start(context.Background(), "checkout")
	lease, err := locks.Mutex("order:4711", nil).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	request.End()

	if err := provider.ForceFlush(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.Parent.SpanID() == request.SpanContext().SpanID())
	}
	// Output:
	// lock wait true
	// lock hold true
	// checkout false
}

// One trace in a hundred, as whoever began it decided; a lock outside of any trace begins
// one itself, and is sampled at the same rate.
func ExampleOptions() {
	provider := trace.NewTracerProvider(trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(0.01))))
	traces := haspotel.New(&haspotel.Options{TracerProvider: provider, RecordKey: true})
	locks, err := hasp.New(memdriver.New(), &hasp.Options{Observe: traces.Observe})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}
