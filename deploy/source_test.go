// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// source serves the metrics that the tests scrape.
var source func(testing.TB) http.Handler = standIn

// standIn serves the metrics of locks that nobody holds: each scrape is a second of a run in which, from
// the second 40 to the second 80, a holder of the class orders is stuck, and the store is restarted.
func standIn(t testing.TB) http.Handler {
	r := &run{random: rand.New(rand.NewPCG(1, 2))}
	registry := prometheus.NewRegistry()
	r.register(registry)
	for _, class := range []string{"orders", "stock", "nightly"} {
		r.zero(class)
	}
	serve := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.second()
		serve.ServeHTTP(w, req)
	})
}

type run struct {
	random *rand.Rand
	now    int // seconds
	stuck  float64

	wait, held, age, handoff                                     *prometheus.HistogramVec
	holders, waiters                                             *prometheus.GaugeVec
	failures, renewals                                           *prometheus.CounterVec
	losses, forgotten, releaseFailures, storeErrors, heldBackers *prometheus.CounterVec
}

const engine = "redis"

func (r *run) register(to prometheus.Registerer) {
	histogram := func(name string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "distributed_lock_" + name, Buckets: buckets}, append([]string{"engine", "class"}, labels...))
		to.MustRegister(v)
		return v
	}
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "distributed_lock_" + name}, append([]string{"engine", "class"}, labels...))
		to.MustRegister(v)
		return v
	}
	gauge := func(name string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "distributed_lock_" + name}, []string{"engine", "class"})
		to.MustRegister(v)
		return v
	}
	seconds := []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	r.wait = histogram("wait_seconds", seconds, "outcome")
	r.held = histogram("held_seconds", seconds)
	r.age = histogram("renewal_age_ratio", []float64{.3, .35, .4, .5, .6, .7, .8, .9, 1})
	r.handoff = histogram("handoff_seconds", seconds)
	r.holders, r.waiters = gauge("held"), gauge("waiters")
	r.failures, r.renewals = counter("failures_total", "reason"), counter("renewals_total", "result")
	r.losses, r.forgotten, r.releaseFailures = counter("losses_total"), counter("forgotten_total"), counter("release_failures_total")
	r.storeErrors, r.heldBackers = counter("store_errors_total"), counter("held_back_total")
}

// zero makes all series of a class, as hasp does when it first sees one.
func (r *run) zero(class string) {
	for _, v := range []*prometheus.CounterVec{r.losses, r.forgotten, r.releaseFailures, r.storeErrors, r.heldBackers} {
		v.WithLabelValues(engine, class)
	}
	for _, v := range []*prometheus.HistogramVec{r.held, r.age, r.handoff} {
		v.WithLabelValues(engine, class)
	}
	for _, outcome := range []string{"acquired", "failed"} {
		r.wait.WithLabelValues(engine, class, outcome)
	}
	for _, reason := range []string{
		"held", "timeout", "canceled", "closed", "lost", "unreachable", "held_back", "denied", "misconfigured", "full", "read_only", "unknown",
	} {
		r.failures.WithLabelValues(engine, class, reason)
	}
	for _, result := range []string{"ok", "failed"} {
		r.renewals.WithLabelValues(engine, class, result)
	}
	r.holders.WithLabelValues(engine, class)
	r.waiters.WithLabelValues(engine, class)
}

// second goes on by a second.
func (r *run) second() {
	r.now++
	incident := r.now >= 40 && r.now < 80
	r.class("stock", 20, 0.02, 0.05)
	if !incident {
		r.class("orders", 12, 0.08+r.stuck/20, 0.3)
	}
	switch {
	case incident:
		r.stuck++
		r.fail("orders", "timeout", 10)
		r.renewals.WithLabelValues(engine, "orders", "failed").Inc()
		r.age.WithLabelValues(engine, "orders").Observe(0.6)
		r.storeErrors.WithLabelValues(engine, "stock").Add(2)
	case r.now == 80:
		r.losses.WithLabelValues(engine, "orders").Inc()
		r.releaseFailures.WithLabelValues(engine, "orders").Inc()
		r.forgotten.WithLabelValues(engine, "stock").Inc()
	case r.now > 80 && r.now < 100:
		r.heldBackers.WithLabelValues(engine, "stock").Add(3)
		r.stuck = math.Max(0, r.stuck-4)
	}
	r.fail("stock", "held", 0)
	r.holders.WithLabelValues(engine, "orders").Set(3)
	r.holders.WithLabelValues(engine, "stock").Set(1 + float64(r.random.IntN(3)))
	r.holders.WithLabelValues(engine, "nightly").Set(1)
	r.waiters.WithLabelValues(engine, "orders").Set(float64(r.random.IntN(4)) + r.stuck)
	r.waiters.WithLabelValues(engine, "stock").Set(float64(r.random.IntN(3)))
	r.waiters.WithLabelValues(engine, "nightly").Set(1)
	for range 2 {
		r.renewals.WithLabelValues(engine, "nightly", "ok").Inc()
		r.age.WithLabelValues(engine, "nightly").Observe(0.33 + r.random.Float64()/50)
	}
}

// class has n leases taken and released, after a wait of about these seconds.
func (r *run) class(name string, n int, wait, held float64) {
	for range n {
		r.wait.WithLabelValues(engine, name, "acquired").Observe(wait * r.random.ExpFloat64())
		r.held.WithLabelValues(engine, name).Observe(held * r.random.ExpFloat64())
		r.handoff.WithLabelValues(engine, name).Observe(0.002 * r.random.ExpFloat64())
	}
}

func (r *run) fail(class, reason string, wait float64) {
	r.wait.WithLabelValues(engine, class, "failed").Observe(wait)
	r.failures.WithLabelValues(engine, class, reason).Inc()
}
