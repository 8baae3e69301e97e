// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package clients contains tests only: hasp and other people's lock clients, each a process of its own that can be killed and stopped,
// take turns on one Redis. The processes are programs that the tests drive by the protocol of docs/protocol.md: hasp agent,
// redisson/Peer.java, python/peer.py, node/peer.js, and ../peers/golocks. The Go pairs run with make test; make interop installs what the
// others need, runs the long form of all, and writes the tables of docs/results/interop.md.
package clients
