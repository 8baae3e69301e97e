// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// TestMain lets more cases run side by side than other packages do: leases of etcd last for
// whole seconds, and nearly all cases wait for their end.
func TestMain(m *testing.M) {
	const least = 24
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value.(flag.Getter)
	if n := parallel.Get().(int); n < least {
		if err := flag.Set("test.parallel", strconv.Itoa(least)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
