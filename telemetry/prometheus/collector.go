// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// DefaultMaxClasses is how many classes of keys have metrics of their own.
const DefaultMaxClasses = 100

// Options configure a Collector. The zero value, and nil, mean the defaults.
type Options struct {
	// Class returns the class of a key: what its metrics are labelled with. It is called
	// for every event, by many goroutines, and must always say the same of a key. nil: what
	// is before the first ':' or '/' ("order" of "order:4711"). A key with neither is its
	// own class, so keys like "order-4711" use up MaxClasses: they need a function.
	//
	// What it returns may be any bytes: it is shown in at most 64 bytes, escaped as in a
	// Go string. Empty is "other".
	Class func(key string) string
	// MaxClasses is how many classes have metrics of their own, the first that are seen;
	// the rest are together "other". 0 means DefaultMaxClasses; negative: all are "other".
	// A class costs about a hundred series for each engine.
	MaxClasses int
	// Classes are known from the start: their metrics exist at 0 before the first event, as
	// soon as the engine is known. They count towards MaxClasses, and what is over it is
	// left out.
	Classes []string
	// Engine is the kind of store of which Classes exist before its first event: "redis",
	// "sqlite", ... Empty: they exist from its first event on.
	Engine string
}

// Collector counts the events of any number of clients. Register it once, and give its
// Observe to each client. All methods may be called by many goroutines at once.
type Collector struct {
	class   func(key string) string
	most    int
	initial []string // labels of Options.Classes
	vecs    *vectors

	known atomic.Pointer[known]
	mu    sync.Mutex // guards the replacement of known
}

// known is what was seen. It never changes, so that counting takes no lock.
type known struct {
	classes map[string]bool // by their labels, without Other
	engines map[string]bool
	series  map[id]*series
}

// id names the series of a class, by its label.
type id struct{ engine, class string }

// New returns a collector. nil options mean the defaults. Each collector counts by itself,
// and a registry takes one of them.
func New(o *Options) *Collector {
	if o == nil {
		o = &Options{}
	}
	c := &Collector{class: o.Class, most: o.MaxClasses, vecs: newVectors()}
	if c.class == nil {
		c.class = telemetry.Class
	}
	if c.most == 0 {
		c.most = DefaultMaxClasses
	}
	k := known{classes: map[string]bool{}, engines: map[string]bool{}, series: map[id]*series{}}
	for _, class := range o.Classes {
		if label, ok := k.label(telemetry.Label(class), c.most); ok {
			k.classes[label] = true
			c.initial = append(c.initial, label)
		}
	}
	c.known.Store(&k)
	if o.Engine != "" {
		for _, label := range c.initial {
			c.add(o.Engine, label)
		}
	}
	return c
}

// Describe sends what the metrics are; with Collect it makes a prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.vecs.all {
		v.Describe(to)
	}
}

// Collect sends all metrics.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.known.Load().series {
		s.show()
	}
	for _, v := range c.vecs.all {
		v.Collect(to)
	}
}

// Observe counts an event; it is for hasp.Options.Observe. It does no I/O.
func (c *Collector) Observe(_ context.Context, e *event.Event) {
	c.of(e.Engine, c.class(e.Key)).observe(e)
}

// of returns the series of a class, as Options.Class named it.
func (c *Collector) of(engine, class string) *series {
	k := c.known.Load()
	if s := k.series[id{engine, class}]; s != nil { // most names are their own labels
		return s
	}
	label, _ := k.label(telemetry.Label(class), c.most)
	if s := k.series[id{engine, label}]; s != nil {
		return s
	}
	return c.add(engine, label)
}

// label returns the label of a class that may have metrics of its own, or Other. admitted:
// it is one more than before.
func (k *known) label(class string, most int) (label string, admitted bool) {
	switch {
	case class == telemetry.Other || k.classes[class]:
		return class, false
	case len(k.classes) >= most:
		return telemetry.Other, false
	}
	return strings.Clone(class), true // a part of a key need not keep all of it
}

// add makes the series of a class at 0, and those of the classes that are known from the
// start, if it is the engine's first.
func (c *Collector) add(engine, class string) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.known.Load()
	label, admitted := old.label(class, c.most) // others may have come first
	if s := old.series[id{engine, label}]; s != nil {
		return s
	}
	k := &known{classes: old.classes, engines: old.engines, series: maps.Clone(old.series)}
	if admitted {
		k.classes = maps.Clone(k.classes)
		k.classes[label] = true
	}
	labels := []string{label}
	if !k.engines[engine] {
		k.engines = maps.Clone(k.engines)
		k.engines[engine] = true
		labels = append(labels, c.initial...)
	}
	for _, l := range labels {
		if i := (id{engine, l}); k.series[i] == nil {
			k.series[i] = c.vecs.series(engine, l)
		}
	}
	c.known.Store(k)
	return k.series[id{engine, label}]
}
