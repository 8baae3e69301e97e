// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// A lease that was persisted stays when its time is over, and ends with the removal; the next waiter has the key at once.
func TestPersist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		a, b := ask(), ask()
		if res, err := contend.Try(t.Context(), s, a); err != nil || !res.Granted {
			t.Fatalf("%+v, %v", res, err)
		}
		s.Persist("k")
		s.Persist("free")
		time.Sleep(2 * a.TTL)
		hints, err := contend.Watch(t.Context(), s, b)
		if err != nil {
			t.Fatal(err)
		}
		b.Queue = true
		res, err := contend.Try(t.Context(), s, b)
		if err != nil || res.Granted || res.Left != 0 || res.RetryIn != 0 {
			t.Fatalf("a lease without an expiry is in the way, and Try says %+v, %v", res, err)
		}
		contend.Renew(t.Context(), s, []contend.Owner{b}, func(_ int, r driver.Renewal) {
			if r.Err != nil || r.RetryIn != 0 {
				t.Errorf("its waiter's renewal: %+v", r)
			}
		})
		if info, err := s.Inspect(t.Context(), "k"); err != nil || info.Left >= 0 || info.Holders[0].Left >= 0 {
			t.Errorf("Inspect says %+v, %v", info, err)
		}
		var left []driver.Leftover
		for l, err := range s.ListLeftovers(t.Context(), "", func(i driver.Info) { t.Errorf("%+v is held with an expiry", i) }) {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, l)
		}
		if len(left) != 1 {
			t.Fatalf("left over are %+v", left)
		}
		if stays, err := s.RemoveLeftover(t.Context(), left[0]); err != nil || stays != 0 {
			t.Fatalf("%v, %v", stays, err)
		}
		<-hints
		if res, err := contend.Try(t.Context(), s, b); err != nil || !res.Granted || !res.Abandoned {
			t.Errorf("the next waiter got %+v, %v", res, err)
		}
		if _, err := s.RemoveLeftover(t.Context(), left[0]); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("a second removal: %v", err)
		}
		s.SetUnreachable(true)
		for _, err := range s.ListLeftovers(t.Context(), "", nil) {
			if err == nil {
				t.Error("a store that is cut off lists")
			}
		}
		if _, err := s.RemoveLeftover(t.Context(), left[0]); err == nil {
			t.Error("a store that is cut off removes")
		}
	})
}
