// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
)

// Of the goroutines of many requests at once a few stay for the next ones, and with the connection they end: the bubble finds them.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		gate := make(chan struct{})
		c := New(theirs, func(context.Context, string, json.RawMessage, bool) (any, error) {
			<-gate
			return nil, nil
		}, nil)
		c.greeted = true
		go func() { _ = c.Serve(t.Context(), nil) }()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		before := runtime.NumGoroutine()
		ask := func(n int) {
			for id := range n {
				fmt.Fprintf(ours, `{"jsonrpc":"2.0","id":%d,"method":"m"}`+"\n", id)
			}
			synctest.Wait()
		}
		ask(1000)
		close(gate)
		for range 2 { // what stays answers more
			ask(1000)
			if more := runtime.NumGoroutine() - before; more < 1 || more > maxIdle+10 {
				t.Errorf("%d goroutines stay", more)
			}
		}
		_ = ours.Close()
	})
}
