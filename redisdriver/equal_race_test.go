// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package redisdriver

func init() { *equalLength = 2 } // the race detector takes three times as long
