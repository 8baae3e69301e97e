// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/etcddriver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func Example() {
	client, err := etcddriver.Connect(clientv3.Config{
		Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	locks, err := hasp.New(etcddriver.New(client, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("orders/42", nil).Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println("fence", lease.Fence())
}
