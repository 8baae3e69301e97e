// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"flag"
	"strconv"
)

// SideBySide lets at least n tests of a package that call t.Parallel run at once, however few
// processors there are. It is for the TestMain of a package with tests that mostly wait, for
// leases to end and for processes, and have a store of their own.
func SideBySide(n int) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value.(flag.Getter)
	if parallel.Get().(int) >= n {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
