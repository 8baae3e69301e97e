// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package model

const (
	short      = 1_000_000 // states of a search in the short run
	exhaustive = true      // whether that must be all of them
)
