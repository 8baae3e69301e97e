// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package interop contains tests only: other people's lock clients and hasp exclude
// each other on one Redis, because the lock itself is the canonical string of
// SET key owner NX PX. The peers are redsync, bsm/redislock, rueidislock, and what programs write
// with a bare go-redis client.
package interop
