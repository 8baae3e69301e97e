// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clock

import "time"

// Elsewhere the wall clock shows that the machine slept.
func boottime() time.Duration { return 0 }

// BootID names this boot of the machine; empty where that is not known.
func BootID() string { return "" }
