// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// ofFour is a driver on a pool of four, as an application's.
func (d database) ofFour(t testing.TB) (*sql.DB, *Server) {
	db := d.pool(t)
	db.SetMaxOpenConns(4)
	return db, d.wrap(db)
}

// inUse fails unless that many connections of a pool are in use, once no sweep of its drivers is under way: each takes one.
func inUse(t testing.TB, want int, db *sql.DB, drivers ...*Server) {
	t.Helper()
	for _, s := range drivers {
		s.under.Wait()
	}
	if n := db.Stats().InUse; n != want {
		t.Errorf("%d connections are in use, want %d", n, want)
	}
}

// renewing renews leases at once, and returns their errors.
func renewing(ctx context.Context, s *Server, held ...contend.Owner) (errs []error) {
	var rs []driver.RenewRequest
	for _, r := range held {
		rs = append(rs, r.Renewal())
	}
	for _, r := range renewals(ctx, s, rs) {
		errs = append(errs, r.Err)
	}
	return errs
}

// Rule: while a lease is held the caller's own transactions may have all but one connection of its pool for as long as
// they like: leases are renewed and released beside them, at once and several together.
func spareIsKept(t *testing.T, d database) {
	db, s := d.ofFour(t)
	shared, a, b := request("s"), request("a"), request("b")
	shared.Mode, shared.Limit, b.TTL = driver.Shared, 2, time.Hour // three kinds of renewals
	all := []contend.Owner{shared, a, b}
	for _, r := range all {
		granted(t, s, r)
	}
	begun, letGo := make(chan struct{}, 4), make(chan struct{})
	var slow sync.WaitGroup
	for range 4 {
		slow.Go(func() {
			tx, err := db.BeginTx(context.Background(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			begun <- struct{}{}
			<-letGo
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, "the application has all that it can", func() bool {
		return len(begun) == 4 || len(begun) == 3 && db.Stats().WaitCount > 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		for _, err := range renewing(ctx, s, all...) {
			failIf(t, err != nil, "a renewal beside the application's transactions: %v", err)
		}
	}
	var releases sync.WaitGroup
	for _, r := range all {
		releases.Go(func() {
			if err := contend.Release(ctx, s, r); err != nil {
				t.Errorf("a release beside them: %v", err)
			}
		})
	}
	releases.Wait()
	waitFor(t, "the application has that one, too", func() bool { return len(begun) == 4 })
	close(letGo)
	slow.Wait()
	inUse(t, 0, db, s)
	must(t, s.Close())
}

// Rule: the connection that is kept goes back when nothing is held any more, however that comes.
func spareGoesBack(t *testing.T, d database) {
	db, s := d.ofFour(t)
	r, other := request("k"), request("l")
	granted(t, s, r)
	granted(t, s, other)
	must(t, contend.Release(t.Context(), s, r))
	inUse(t, 1, db, s)
	must(t, contend.Release(t.Context(), s, other))
	inUse(t, 0, db, s)

	r = request("k")
	granted(t, s, r)
	must(t, contend.Release(t.Context(), d.open(t), r)) // by an operator
	inUse(t, 1, db, s)
	if errs := renewing(t.Context(), s, r); !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Fatal(errs)
	}
	inUse(t, 0, db, s)

	short := request("short")
	short.TTL = 200 * time.Millisecond
	granted(t, s, short)
	waitFor(t, "a lease is over that is not renewed", func() bool { return db.Stats().InUse == 0 })

	held := request("held")
	granted(t, s, held)
	inUse(t, 1, db, s)
	must(t, s.Close())
	inUse(t, 0, db, s)

	db, s = d.ofFour(t)
	held = request("closed")
	granted(t, s, held)
	must(t, db.Close())
	renewing(t.Context(), s, held)
	s.under.Wait()
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("the pool is closed, and has %d connections", n)
	}
	if errs := renewing(t.Context(), s, held); errs[0] == nil || !driver.IsNotSent(errs[0]) {
		t.Errorf("the pool is closed: %v", errs)
	}
	must(t, s.Close())
}

// Rule: of a small pool nothing is kept, nor of one without bound, and one of a pool that several drivers use.
func spareIsOne(t *testing.T, d database) {
	for bound, want := range map[int]int{0: 0, 1: 0, spareOf - 1: 0, spareOf: 1} {
		db := d.pool(t)
		db.SetMaxOpenConns(bound)
		first, second := d.wrap(db), d.wrap(db)
		for _, s := range []*Server{first, second} {
			granted(t, s, request(rand.Text()))
		}
		inUse(t, want, db, first, second)
		must(t, first.Close())
		granted(t, second, request(rand.Text()))
		inUse(t, want, db, first, second) // the other keeps one now
		must(t, second.Close())
		inUse(t, 0, db, first, second)
	}
}

// Rule: when the connection that is kept is ended by the server, another is.
func spareIsReplaced(t *testing.T, d database) {
	db, s := d.ofFour(t)
	r := request("k")
	granted(t, s, r)
	which, end := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend($1)"
	if !d.postgres() {
		which, end = "SELECT CONNECTION_ID()", "KILL ?"
	}
	var id int64
	must(t, s.spare.kept.QueryRowContext(t.Context(), which).Scan(&id))
	run(t, d.pool(t), end, id)
	waitFor(t, "it is renewed", func() bool { return renewing(t.Context(), s, r)[0] == nil }) // the outcome of one may be unknown
	waitFor(t, "it is renewed on another", func() bool {
		must(t, errors.Join(renewing(t.Context(), s, r)...))
		var now int64
		must(t, s.spare.kept.QueryRowContext(t.Context(), which).Scan(&now))
		return now != id
	})
	inUse(t, 1, db, s)
	must(t, contend.Release(t.Context(), s, r))
	inUse(t, 0, db, s)
	must(t, s.Close())
}
