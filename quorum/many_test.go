// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package quorum

import "time"

// manySpan is how long many waiters are watched.
const manySpan = 20 * time.Second
