// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver is the seam between hasp and the stores that keep its locks.
//
// Programs use package hasp; only an engine implements [Driver]. Its contract is
// driver.go; [Claim], [Traits] and [Info] say what the words in it mean, and node.go
// is for engines of which a quorum can be made. Package drivertest is the
// specification: a table of cases, each with its rule as a sentence, that every
// engine must pass.
//
// Four rules shape the seam. An engine never waits: blocking is written once,
// in hasp. An engine never retries and never sleeps: it returns the store's own
// error, and hasp decides. A refusal is data, an error means that the outcome
// is unknown. And everything an engine does for an owner may be asked twice:
// requests get lost, duplicated and delayed, and replies get lost.
package driver
