// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "time"

func processCPU() time.Duration { return 0 }

func checkLimits() error { return nil }
