// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command etcd36 is the etcd server 3.6, for tests. It is a module of its own, outside
// of go.work, so that no build of hasp resolves the server's dependencies; scripts/servers builds it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
