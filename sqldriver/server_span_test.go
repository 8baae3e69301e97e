// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// ahead opens a driver whose server's clock is ahead.
func (d database) ahead(t testing.TB, by time.Duration) *Server {
	t.Helper()
	eng := *d.open(t).eng
	for s, text := range eng.text {
		for _, now := range []string{postgresNow, mysqlNow} {
			text = strings.ReplaceAll(text, now, fmt.Sprintf("(%s + %d)", now, by))
		}
		eng.text[s] = text
	}
	return newServer(d.pool(t), &eng)
}

// Rule: what was written while the server's clock was ahead lasts for no longer than its TTL from the first look on, by
// however many at once; and what is alive is not shortened.
func clockWasAhead(t *testing.T, d database) {
	s, far := d.open(t), d.ahead(t, 8*time.Hour)
	short := func(key string) contend.Owner {
		r := request(key)
		r.TTL, r.Patience = 500*time.Millisecond, 500*time.Millisecond
		return r
	}
	long, sharer, place, tomb := short("renewed"), short("shared"), queued(short("place")), request("tomb")
	long.TTL = time.Minute
	granted(t, s, long)
	long.TTL = 500 * time.Millisecond
	far.Renew(t.Context(), []driver.RenewRequest{long.Renewal()}, func(_ int, r driver.Renewal) {
		if r.Err != nil { // its lease was over by that clock
			granted(t, far, long)
		}
	})
	sharer.Mode, sharer.Limit = driver.Shared, 1
	granted(t, far, sharer)
	granted(t, far, short("plain"))
	granted(t, far, request(place.Key))
	try(t, far, place)
	granted(t, far, tomb)
	must(t, contend.Release(t.Context(), far, tomb))
	run(t, d.pool(t), "DELETE FROM hasp_key WHERE lock_key = '"+place.Key+"'") // what is left is the place
	for _, key := range []string{"plain", "renewed", "shared", "place", "tomb"} {
		var wg sync.WaitGroup
		for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
			wg.Go(func() {
				r := queued(request(key))
				r.Mode, r.TTL = mode, time.Minute
				waitFor(t, key+" is granted", func() bool {
					res, err := contend.Try(t.Context(), s, r)
					failIf(t, err != nil || res.Left > 2*time.Minute, "%s: %+v, %v", key, res, err)
					return err != nil || res.Granted
				})
				if err := contend.Release(t.Context(), s, r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}

	alive := request("alive")
	granted(t, s, alive)
	alive.TTL = time.Hour
	renewed(t, s, alive)
	stays := func(least time.Duration) {
		t.Helper()
		try(t, s, queued(request(alive.Key)))
		info := inspect(t, s, alive.Key)
		failIf(t, info.Left < least || info.Left > least+least/8+time.Minute, "%v are left", info.Left)
	}
	stays(59 * time.Minute)
	renewed(t, d.ahead(t, 30*time.Minute), alive)
	stays(59 * time.Minute)
	renewed(t, s, alive)
	stays(59 * time.Minute)
}

func TestSpans(t *testing.T) {
	for range 100000 {
		ttl := time.Duration(rand.Int64N(int64(longest))) >> rand.IntN(45)
		digits := span(ttl)
		if got := spanOf(1e15 + digits); digits < 1 || digits > 999 || got < ttl || got > ttl+ttl/16+2*time.Millisecond {
			t.Fatalf("%v is %d, which is %v", ttl, digits, got)
		}
	}
}
