// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/pipe"
)

// Whatever a client sends, nothing of it is left once its connection has ended: no goroutine, no lease, no waiter. The bubble finds the goroutines.
func FuzzServe(f *testing.F) {
	hello := request(1, "hello", `{"protocols":[1],"alive_ms":5000}`) + "\n"
	for _, lines := range []string{
		"", "{", hello, hello + request(2, "lock", `{"key":"k","linger_ms":1000,"wanted":true}`) + "\n", hello + request(2, "lock", `{"key":"k"}`) + "\n" + request(3, "bye", "{}") + "\n",
		hello + request(2, "lock", `{"key":"held"}`) + "\n" + `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}` + "\n",
		hello + request(2, "lock", `{"keys":["a","b"],"mode":"shared","cohort_ms":50,"max_hold_ms":1}`) + "\n" + request(3, "release", `{"lease":"1"}`) + "\n" + request(4, "extend", `{"lease":"1","ttl_ms":50}`) + "\n",
		hello + request(2, "lock", `{"key":"s","slots":2,"wait_ms":0}`) + "\n" + request(3, "list", `{"prefix":"","after":""}`) + "\n" + request(4, "show", `{"key":"s"}`) + "\n" + request(5, "status", `{}`) + "\nhalf",
	} {
		f.Add([]byte(lines), false)
	}
	f.Fuzz(func(t *testing.T, lines []byte, unread bool) {
		synctest.Test(t, func(t *testing.T) {
			store := memdriver.New()
			locks, err := hasp.New(store, nil)
			locks = must(t, locks, err)
			held := lockOf(t, locks, "held")
			ours, theirs := net.Pipe()
			served := make(chan struct{})
			go func() {
				_ = pipe.Serve(t.Context(), locks, theirs, &pipe.Options{}) // bytes that are no lines break the protocol
				close(served)
			}()
			if !unread {
				go func() { _, _ = io.Copy(io.Discard, ours) }() // until the end
			}
			_, _ = ours.Write(lines) // as far as the agent reads
			time.Sleep(time.Second)
			_ = ours.Close()
			<-served
			for info, err := range locks.Operator().List(context.Background(), "") {
				if err != nil || info.Key != "held" || info.Waiters > 0 {
					t.Errorf("left: %+v, %v", info, err)
				}
			}
			if err := held.Release(); err != nil {
				t.Error(err)
			}
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}
