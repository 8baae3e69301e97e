// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package quorum

import "time"

// The race detector makes everything about ten times slower: scripts/test runs this
// once more without it.
const manySpan = 4 * time.Second
