// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulate

// The race detector makes everything about ten times slower: .ci/run plays 5,000 without it.
const defaultSeeds = 100
