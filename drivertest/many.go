// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package drivertest

// manyFake is of how much a case with a fake clock makes many.
const manyFake = 10_000
