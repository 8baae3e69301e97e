// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package campaign runs Redlock on five real redis-servers, with clients that
// are processes of their own, through schedules of faults, and judges what the
// clients recorded.
//
// A schedule is derived from its seed alone, and knows which of the assumptions of
// Redlock it breaks, so that each verdict is "must hold" or "may break". It
// needs Linux: processes are stopped, and compare instants by one monotonic
// clock.
//
// The links between clients and servers are proxies, or, as root, real ones, with
// each client in a network namespace, and a bridge that drops packets.
package campaign
