// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package testserver starts real servers for tests: each on a free loopback port, in a
// directory of its own, and ended with the test, even when the test binary is killed (on
// Linux; elsewhere a killed test binary may leave one behind).
//
// It imports testing, so only tests, and the other packages and programs for
// tests, may import it; the linter holds that.
package testserver
