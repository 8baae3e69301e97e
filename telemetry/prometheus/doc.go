// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package haspprom turns the events of locks into Prometheus metrics.
//
//	metrics := haspprom.New(nil)
//	prometheus.MustRegister(metrics)
//	locks, err := hasp.New(driver, &hasp.Options{Observe: metrics.Observe})
//
// Every metric has the labels engine ("redis", "sqlite", ...) and class: what kind of lock it
// is, never which one; see [Options].Class. docs/metrics.md lists the metrics, and what to
// look at.
package haspprom
