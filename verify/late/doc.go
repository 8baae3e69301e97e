// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package late shows what the guards of package fence are for. Its test has a process lock keys, stops it
// until its leases are over and others have written, and has it go on with a write that it had decided on before: each
// guard must refuse it, and without a guard it gets through.
package late
