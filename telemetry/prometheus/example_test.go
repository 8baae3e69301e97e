// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/memdriver"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of all locks of a client, on whatever the program exposes its others with.
func Example() {
	metrics := haspprom.New(nil)
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)

	locks, err := hasp.New(memdriver.New(), &hasp.Options{Observe: metrics.Observe})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Mutex("order:4711", nil).Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "distributed_lock_held" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: distributed_lock_held 1
}

// Keys without a ':' or '/' need a function that says what kind of lock they are. Classes
// that are named have their metrics before the first lock, so that an alert on a rate sees
// the first failure.
func ExampleOptions() {
	metrics := haspprom.New(&haspprom.Options{
		Class: func(key string) string {
			kind, _, _ := strings.Cut(key, "-") // "order-4711"
			return kind
		},
		Engine:  "redis",
		Classes: []string{"order", "invoice"},
	})
	prometheus.MustRegister(metrics)
}

// The metrics and a log of the same events.
func ExampleCollector_Observe() {
	metrics := haspprom.New(nil)
	locks, err := hasp.New(memdriver.New(), &hasp.Options{
		Observe: event.Observers(metrics.Observe, event.LogTo(nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}
