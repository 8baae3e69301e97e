// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// What arrives just after the end of a handover, before anybody else noticed it, says whether its owner entered: a Try that it
// did not, a Convert that it did. So does what arrives once it has its old place again, and is handed the key anew.
func TestAfterTheEndOfAHandover(t *testing.T) {
	for name, c := range map[string]struct {
		says  func(s *memdriver.Store, b contend.Owner)
		marks bool
	}{
		"nothing": {func(*memdriver.Store, contend.Owner) {}, true},
		"a Try":   {func(s *memdriver.Store, b contend.Owner) { try(t, s, b) }, false},
		"a Convert": {func(s *memdriver.Store, b contend.Owner) {
			b.Mode, b.Convert = driver.Shared, true
			try(t, s, b)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ahead := time.Duration(0)
				s := memdriver.NewNode(memdriver.NodeOptions{Now: func() time.Time { return time.Now().Add(ahead) }})
				a, b, next := ask(), ask(), ask()
				b.Queue, b.Enters, next.Queue = true, true, true
				try(t, s, a)
				if _, err := contend.Watch(t.Context(), s, b); err != nil {
					t.Fatal(err)
				}
				try(t, s, b)
				try(t, s, next)
				if err := contend.Release(t.Context(), s, a); err != nil {
					t.Fatal(err)
				}
				to, ok := s.Handed(b.Claim())
				if !ok {
					t.Fatal("the key was not handed over")
				}
				ahead = to.TTL + time.Millisecond
				b.Fence = 0
				c.says(s, b)
				if res := try(t, s, next); !res.Granted || res.Abandoned != c.marks {
					t.Errorf("the next: %+v, want Abandoned %v", res, c.marks)
				}
			})
		})
	}
}

// A place that came back is handed the key again as one that does not enter: a Release, or a claim, of the earlier handover
// ends nobody's mark, and takes no lease.
func TestHandedOverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		a, b, c, d := ask(), ask(), ask(), ask()
		b.Queue, b.Enters, c.Queue, c.Enters, d.Queue = true, true, true, true, true
		try(t, s, a)
		for _, r := range []contend.Owner{b, c} {
			if _, err := contend.Watch(t.Context(), s, r); err != nil {
				t.Fatal(err)
			}
			try(t, s, r)
		}
		if err := contend.Release(t.Context(), s, a); err != nil {
			t.Fatal(err)
		}
		first, _ := s.Handed(b.Claim())
		time.Sleep(first.TTL + time.Millisecond) // c is handed it, and b has its old place
		synctest.Wait()
		try(t, s, d)
		second, _ := s.Handed(c.Claim())
		time.Sleep(second.TTL + time.Millisecond) // b again
		synctest.Wait()
		claim := b
		claim.Queue, claim.Entered, claim.Fence = false, true, first.Fence
		if err := renew(t, s, claim); err == nil {
			t.Error("a claim of the first handover takes the second")
		}
		_ = contend.Release(t.Context(), s, b) // of the first
		_ = contend.Release(t.Context(), s, c)
		if res := try(t, s, d); !res.Granted || !res.Abandoned {
			t.Errorf("the next: %+v, want a grant of an abandoned key", res)
		}
	})
}
