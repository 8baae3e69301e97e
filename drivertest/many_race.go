// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package drivertest

// The race detector makes everything about ten times slower: scripts/test runs what is
// counted here once more without it.
const manyFake = 1_000
