// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package verify runs hasp on real servers through faults: links that drop and delay messages, servers that are killed, restarted
// and flushed, processes that are stopped and killed. Its tests check what must always hold; the program in cmd runs the campaigns,
// measures, and prints figures.
package verify
