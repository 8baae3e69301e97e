// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// A Try that no node was sent says so, and leaves no owner: nobody releases it. The
// silence of one node is enough to say nothing, whatever the others say.
func TestNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		before := d.live()
		for _, s := range nodes {
			s.SetUnreachable(true)
		}
		for range 10 { // at first they are asked, then they are out of service
			if _, err := contend.Try(t.Context(), d, asks("k")); !driver.IsNotSent(err) {
				t.Errorf("no node was asked: %v, want one that says not sent", err)
			}
		}
		if n := d.live() - before; n != 0 {
			t.Errorf("%d owners are left", n)
		}
		for _, s := range nodes {
			s.SetUnreachable(false)
		}
		time.Sleep(time.Second) // back in service
		nodes[0].loses(func(r driver.VoteRequest) error {
			if r.Key == "k" {
				return context.DeadlineExceeded
			}
			return nil
		})
		nodes[1].SetUnreachable(true)
		nodes[2].SetUnreachable(true)
		r := asks("k")
		if _, err := contend.Try(t.Context(), d, r); err == nil || driver.IsNotSent(err) {
			t.Errorf("a node may have it: %v, which must not say that nothing was sent", err)
		}
		_ = contend.Release(t.Context(), d, r)
		time.Sleep(time.Minute)
		if owner, _ := nodes[0].holder(t, "k"); owner != "" {
			t.Errorf("%s has the key", owner)
		}
	})
}
