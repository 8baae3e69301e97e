// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package haspotel turns the events of locks into OpenTelemetry traces.
//
//	traces := haspotel.New(nil)
//	locks, err := hasp.New(driver, &hasp.Options{Observe: traces.Observe})
//
// A call of Lock or TryLock is a span "lock wait", and the lease that it acquired a span
// "lock hold", both children of the span of the call's context. OpenTelemetry has no
// convention for locks; this package follows the proposal in docs/metrics.md.
package haspotel
