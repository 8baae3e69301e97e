// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// Values of the labels outcome and result.
const (
	acquired = "acquired"
	failed   = "failed"
	ok       = "ok"
)

// vectors are all metrics.
type vectors struct {
	all []prometheus.Collector

	wait, heldFor, age, handoff                               *prometheus.HistogramVec
	held, waiters                                             *prometheus.GaugeVec
	failures, renewals                                        *prometheus.CounterVec
	losses, forgotten, releaseFailures, storeErrors, heldBack *prometheus.CounterVec
}

func newVectors() *vectors {
	v := &vectors{}
	v.wait = v.histogram("wait_seconds", "How long calls waited for a key, in seconds, by whether they acquired it.",
		[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "outcome")
	v.failures = v.counter("failures_total", "Calls that ended without a lease, by why.", "reason")
	v.heldFor = v.histogram("held_seconds", "How long leases were held that have ended, in seconds.",
		[]float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600})
	v.held = v.gauge("held", "Leases that are held now.")
	v.waiters = v.gauge("waiters", "Calls that wait now, for a holder or for a store in trouble.")
	v.renewals = v.counter("renewals_total", "Renewals that were answered, or had no answer, by how that went.", "result")
	v.age = v.histogram("renewal_age_ratio", "How old a lease was when its renewal was answered or failed, as a share of its TTL: about 1/3 when all is well, lost at 1.",
		[]float64{.3, .35, .4, .5, .6, .7, .8, .9, 1})
	v.losses = v.counter("losses_total", "Leases that ended before their release.")
	v.forgotten = v.counter("forgotten_total", "Leases that were dropped without release.")
	v.releaseFailures = v.counter("release_failures_total", "Releases that the store did not confirm: it keeps the key for the TTL.")
	v.handoff = v.histogram("handoff_seconds", "How long after a release the next holder came for the key that it was handed, in seconds, by the store's clock.",
		[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	v.storeErrors = v.counter("store_errors_total", "Errors of the store that calls met which asked for a key.")
	v.heldBack = v.counter("held_back_total", "Answers to calls that asked for a key: the store grants nothing yet since it, or too many of its nodes, restarted.")
	return v
}

// subsystem begins the names. They are not hasp's own, so that a dashboard can show others' locks, too.
const subsystem = "distributed_lock"

func (v *vectors) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, append([]string{"engine", "class"}, labels...))
	v.all = append(v.all, h)
	return h
}

func (v *vectors) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, append([]string{"engine", "class"}, labels...))
	v.all = append(v.all, c)
	return c
}

func (v *vectors) gauge(name, help string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, []string{"engine", "class"})
	v.all = append(v.all, g)
	return g
}

// series are the metrics of one class on one engine, looked up once.
type series struct {
	leases, waits atomic.Int64 // for the gauges, which cost more to change

	acquired, failed, heldFor, age, handoff                   batch
	held, waiters                                             prometheus.Gauge
	failures                                                  map[string]prometheus.Counter // by reason
	renewed, renewFailed                                      prometheus.Counter
	losses, forgotten, releaseFailures, storeErrors, heldBack prometheus.Counter
}

// series makes all series of a class at 0.
func (v *vectors) series(engine, class string) *series {
	s := &series{
		acquired: batch{to: v.wait.WithLabelValues(engine, class, acquired)}, failed: batch{to: v.wait.WithLabelValues(engine, class, failed)},
		heldFor: batch{to: v.heldFor.WithLabelValues(engine, class)}, age: batch{to: v.age.WithLabelValues(engine, class)},
		handoff: batch{to: v.handoff.WithLabelValues(engine, class)},
		held:    v.held.WithLabelValues(engine, class), waiters: v.waiters.WithLabelValues(engine, class),
		failures: map[string]prometheus.Counter{},
		renewed:  v.renewals.WithLabelValues(engine, class, ok), renewFailed: v.renewals.WithLabelValues(engine, class, failed),
		losses: v.losses.WithLabelValues(engine, class), forgotten: v.forgotten.WithLabelValues(engine, class),
		releaseFailures: v.releaseFailures.WithLabelValues(engine, class), storeErrors: v.storeErrors.WithLabelValues(engine, class),
		heldBack: v.heldBack.WithLabelValues(engine, class),
	}
	for _, reason := range telemetry.Reasons() {
		s.failures[reason] = v.failures.WithLabelValues(engine, class, reason)
	}
	return s
}

// show brings the gauges and histograms up to date.
func (s *series) show() {
	for _, b := range []*batch{&s.acquired, &s.failed, &s.heldFor, &s.age, &s.handoff} {
		b.mu.Lock()
		b.flush()
		b.mu.Unlock()
	}
	s.held.Set(float64(s.leases.Load()))
	s.waiters.Set(float64(s.waits.Load()))
}

// batch keeps values until there are many of them, or they are collected. A histogram touches so
// much memory that one value at a time costs 3 % of a pair on Redis.
type batch struct {
	to prometheus.Observer

	mu     sync.Mutex
	values [30]float64
	n      int
}

func (b *batch) observe(value float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[b.n] = value
	if b.n++; b.n == len(b.values) {
		b.flush()
	}
}

// flush is called with the mutex.
func (b *batch) flush() {
	for _, value := range b.values[:b.n] {
		b.to.Observe(value)
	}
	b.n = 0
}

// observe counts an event. Between two of them others use the machine's caches, so what it
// costs is the memory that it touches.
func (s *series) observe(e *event.Event) {
	if e.LeaseDelta != 0 {
		s.leases.Add(int64(e.LeaseDelta))
	}
	if e.LeaseDelta < 0 { // its first end: a lease that was lost is released as well
		s.heldFor.observe(e.Held.Seconds())
	}
	if e.WaiterDelta != 0 {
		s.waits.Add(int64(e.WaiterDelta))
	}
	switch e.Kind {
	case event.Acquired:
		s.acquired.observe(e.Waited.Seconds())
		if e.Handoff > 0 {
			s.handoff.observe(e.Handoff.Seconds())
		}
	case event.Failed:
		s.fails(e)
	case event.Renewed:
		s.renewed.Inc()
		s.ages(e)
	case event.RenewFailed:
		s.renewFailed.Inc()
		s.ages(e)
	case event.Lost:
		s.losses.Inc()
	case event.Released:
		s.released(e)
	case event.Forgotten:
		s.forgotten.Inc()
	case event.Trouble:
		s.storeErrors.Inc()
	case event.HeldBack:
		s.heldBack.Inc()
	case event.Waiting, event.Downgraded:
	}
}

func (s *series) fails(e *event.Event) {
	s.failed.observe(e.Waited.Seconds())
	reason := telemetry.Reason(e.Err)
	s.failures[reason].Inc()
	switch untold := telemetry.Untold(e.Err, reason); {
	case untold && reason == "held_back":
		s.heldBack.Inc()
	case untold:
		s.storeErrors.Inc()
	}
}

func (s *series) ages(e *event.Event) {
	if e.TTL > 0 {
		s.age.observe(e.Age.Seconds() / e.TTL.Seconds())
	}
}

func (s *series) released(e *event.Event) {
	switch {
	case e.Err == nil:
	case !errors.Is(e.Err, hasp.ErrLost):
		s.releaseFailures.Inc()
	case e.LeaseDelta < 0: // the release was what found the loss: no event.Lost tells it
		s.losses.Inc()
	}
}
