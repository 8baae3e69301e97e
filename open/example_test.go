// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/open"
)

// The URL may also be redis://HOST, postgres://…, or any other that the command takes.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	locks, err := open.Client(ctx, "sqlite:"+filepath.Join(dir, "locks.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // the connections, too

	err = locks.Mutex("orders/42", nil).Do(ctx, func(context.Context, *hasp.Lease) error {
		fmt.Println("this process alone works on order 42")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: this process alone works on order 42
}
