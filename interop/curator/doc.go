// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package curator contains tests only: Java's programs with Curator's locks and hasp take turns on one ZooKeeper. The Java side
// is Peer.java, which make interop builds; until then the tests are skipped.
package curator
