// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package engines starts the servers of the engines other than Redis, connects drivers to them
// through links that can be cut, and cuts every operation at every step: see Sweep. The schedules
// of package campaign run on the same stores.
package engines
