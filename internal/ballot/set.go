// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import "math/bits"

// MaxNodes bounds what a quorum is made of.
const MaxNodes = 7

// None is no node.
const None = -1

// Set is a set of nodes.
type Set uint8

// Has says whether node i is in the set.
func (s Set) Has(i int) bool { return i >= 0 && s&(1<<i) != 0 }

// Add puts node i in.
func (s *Set) Add(i int) { *s |= 1 << i }

// Drop takes node i out.
func (s *Set) Drop(i int) { *s &^= 1 << i }

// Len counts the nodes.
func (s Set) Len() int { return bits.OnesCount8(uint8(s)) }

// All is the set of the first n nodes.
func All(n int) Set { return 1<<n - 1 }
