// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package model

// The race detector makes everything about ten times slower, and what is searched here has
// one goroutine: scripts/test searches all of it without.
const (
	short      = 10_000
	exhaustive = false
)
