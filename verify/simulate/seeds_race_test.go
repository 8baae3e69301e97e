// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulate

// The race detector makes everything about ten times slower.
const defaultSeeds = 400
