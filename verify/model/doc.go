// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package model searches small models of Redlock as hasp builds it for states
// that must not be, breadth first: every order of messages, losses, expiries,
// restarts and admissions among a few nodes and owners. The algorithm as built is
// searched until nothing is left or a limit is reached; each rule is also removed,
// and then the search must find a counterexample.
//
// README.md says what is modelled, and proves in words what the search cannot:
// the same for any number of nodes and owners.
package model
