// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/quorum"
)

// Three nodes in memory stand for three Redis servers, each with a
// redisdriver.NewNode(rdb, 30*time.Second, nil).
func Example() {
	var servers []*memdriver.Store
	var nodes []voting.Node
	for range 3 {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: 30 * time.Second})
		servers, nodes = append(servers, s), append(nodes, s)
	}
	ctx := context.Background()
	locks, err := hasp.New(quorum.New(nodes, nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	// The servers are new, and nobody holds a lock: they need not wait for leases
	// that they might have forgotten.
	if err := locks.Operator().Admit(ctx); err != nil {
		fmt.Println(err)
		return
	}
	lease, err := locks.Mutex("orders/42", nil).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	servers[0].Restart(nil) // with nothing in its memory
	_, err = locks.Mutex("orders/42", nil).TryLock(ctx)
	fmt.Println("somebody else has it:", errors.Is(err, hasp.ErrHeld))
	fmt.Println("released:", lease.Release() == nil)
	// Output:
	// somebody else has it: true
	// released: true
}
