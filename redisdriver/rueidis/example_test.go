// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rueidis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hasplock/hasp"
	hasprueidis "github.com/hasplock/hasp/redisdriver/rueidis"
	"github.com/redis/rueidis"
)

// The client is the program's own: hasp neither closes nor changes it.
func Example() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, ConnWriteTimeout: 8 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	locks, err := hasp.New(hasprueidis.New(client, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx := context.Background()
	lease, err := locks.Mutex("orders/42", nil).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println("fence", lease.Fence())
}
