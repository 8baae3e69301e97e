// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package zkdriver keeps locks in ZooKeeper.
package zkdriver
