// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver is the interface between hasp and the stores that keep its locks.
//
// Programs use package hasp; only engines implement [Driver]. The contract is in
// driver.go; [Traits] and [Info] define the terms it uses. What an engine may do besides
// stands apart: told.go has what a store tells before it is asked, package operator what
// is for its operator, package voting what a quorum asks of its nodes. Package drivertest is the
// specification: a table of cases, each with its rule as a sentence, that every
// engine must pass.
//
// Four rules shape the interface. An engine never waits: blocking is written once,
// in hasp. An engine never sleeps, and repeats no request with an unknown
// outcome: it returns the store's own error, and hasp decides. (It may send a Try twice where
// [Result].Unsettled says so, and a Release as [Driver] has it. A compare-and-set that was overtaken is neither: the engine may
// read and compare again at once, a bounded number of times.) A refusal is data; an error means that the outcome is unknown. And
// every request may arrive more than once: requests are lost, duplicated and delayed,
// and replies are lost.
package driver
