// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/memdriver"
)

// A case that must renew in time begins anew, in another store and with more time, where a request took
// a good part of the TTL; but a store that is quick is judged at once, and the third one in any case.
func TestTimelyCasesBeginAnew(t *testing.T) {
	const ttl = time.Second
	for name, c := range map[string]struct {
		slow, broken int // so many of the stores
		stores       int
		fails        bool
	}{
		"slow twice":         {slow: 2, broken: 2, stores: 3},
		"slow once":          {slow: 1, broken: 1, stores: 2},
		"quick, and wrong":   {broken: 1, stores: 1, fails: true},
		"slow, always wrong": {slow: 9, broken: 9, stores: 3, fails: true},
	} {
		for _, rule := range []string{"RenewKeepsThePlace", "LockOutlivesManyTTLs"} {
			t.Run(name+"/"+rule, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					stores := 0
					h := drivertest.Harness{TTL: ttl, New: func(testing.TB) drivertest.Store {
						n := stores
						stores++
						s := memdriver.New()
						return drivertest.Store{Open: func() driver.Driver {
							p := &patched{Store: s}
							p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
								if n < c.slow {
									time.Sleep(6 * ttl << n / 3) // a third of the TTL that the case has there
								}
								if n < c.broken {
									return driver.Renewal{Err: driver.ErrNotHeld}
								}
								return renewOne(ctx, s, r)
							}
							return p
						}}
					}}
					r := &recorder{TB: t}
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer r.cleanUp()
						caseOf(t, rule).Run(r, h)
					}()
					<-done
					time.Sleep(time.Hour) // requests that were slow have ended
					if r.failed != c.fails || stores != c.stores {
						t.Errorf("failed: %v, want %v; %d stores, want %d: %s", r.failed, c.fails, stores, c.stores, r.log.String())
					}
				})
			})
		}
	}
}

func caseOf(t *testing.T, name string) drivertest.Case {
	for _, c := range drivertest.Cases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no case %s", name)
	return drivertest.Case{}
}
