// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package simulate

const defaultSeeds = 5000
