// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

const (
	awakeVar   = "HASP_MUTANT"         // the id of the mutant that is awake
	reachedVar = "HASP_MUTANT_REACHED" // the file for the ids of those that are reached
)

// runtimeSource returns the file that is added to an instrumented package.
func runtimeSource(pkg string, last int) string {
	return fmt.Sprintf(`package %s

import (
	mutantCmp "cmp"
	mutantOS "os"
	mutantStrconv "strconv"
	mutantAtomic "sync/atomic"
)

var (
	mutantAwake, _ = mutantStrconv.Atoi(mutantOS.Getenv(%q))
	mutantFile     = mutantOS.Getenv(%q)
	mutantReached  [%d]mutantAtomic.Bool
)

// mutant says whether this mutant is awake.
func mutant(id int) bool {
	if mutantFile != "" && !mutantReached[id].Swap(true) {
		f, err := mutantOS.OpenFile(mutantFile, mutantOS.O_APPEND|mutantOS.O_CREATE|mutantOS.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(mutantStrconv.Itoa(id) + "\n")
		}
		if err != nil {
			panic(err)
		}
		_ = f.Close()
	}
	return id == mutantAwake
}

func mutantLess[T mutantCmp.Ordered](id int, a, b T) bool { return a < b || a == b && mutant(id) }

func mutantAtMost[T mutantCmp.Ordered](id int, a, b T) bool { return a < b || a == b && !mutant(id) }

func mutantMore[T mutantCmp.Ordered](id int, a, b T) bool { return mutantLess(id, b, a) }

func mutantAtLeast[T mutantCmp.Ordered](id int, a, b T) bool { return mutantAtMost(id, b, a) }
`, pkg, awakeVar, reachedVar, last+1)
}
