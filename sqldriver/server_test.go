// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
)

// serverTests are run on each kind of server, each in a database of its own.
var serverTests = map[string]func(t *testing.T, d database){
	"TablesAreNeverMadeSilently": noTables,
	"OtherVersion":               otherVersion,
	"InitByManyAtOnce":           initByMany,
	"UnsafeCommits":              unsafeCommits,
	"ClockIsReadAfterTheLock":    clockAfterLock,
	"FencesRiseAfterASweep":      fencesAfterSweep,
	"MovedWithoutItsFences":      movedWithoutFences,
	"ClockWasAhead":              clockWasAhead,
	"SweepsRaceWithGrants":       sweepsRace,
	"OvertakenIsDoneAgain":       overtaken,
	"LeastPrivileges":            leastPrivileges,
	"EveryCutIsUnknown":          everyCut,
	"BlackHole":                  blackHole,
	"OneConnection":              oneConnection,
	"BusyPool":                   busyPool,
	"SpareIsKept":                spareIsKept,
	"SpareGoesBack":              spareGoesBack,
	"SpareIsOne":                 spareIsOne,
	"SpareIsReplaced":            spareIsReplaced,
	"FreeKeyCostsOneRequest":     oneRequest,
	"ManyRenewals":               renewMany,
	"RenewalsBesideALockedKey":   renewBesideLocked,
	"RenewalsBesideManyLocked":   renewBesideManyLocked,
	"StoppedSweep":               stoppedSweep,
	"RowInOrder":                 rowInOrder,
	"ReleasedTooLate":            releasedTooLate,
	"UnusedKeepsTheMark":         unusedKeepsTheMark,
	"KeptLongEnough":             keptLongEnough,
	"LockRow":                    lockRow,
	"LockAdvisory":               lockAdvisory,
	"FenceGuard":                 fenceGuard,
}

// serverKinds are how the servers are started that are tested, and databases made in them.
var serverKinds = map[string]struct {
	start func(testing.TB, ...string) *testserver.Server
	empty func(testing.TB, *testserver.Server) database
}{
	"Postgres": {testserver.Postgres, newPostgres},
	"MySQL":    {testserver.MariaDB, newMySQL},
}

func TestServers(t *testing.T) {
	t.Parallel()
	for name, kind := range serverKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := kind.start(t)
			for name, test := range serverTests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, kind.empty(t, server))
				})
			}
		})
	}
}

func (d database) postgres() bool { return d.kind == "pgx" }

// run runs a statement.
func run(t testing.TB, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// number returns what a statement answers.
func number(t testing.TB, db *sql.DB, text string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(context.Background(), text).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

func settled(r contend.Owner) contend.Owner {
	r.Settled = true
	return r
}

// misconfigured fails unless every method says what is wrong.
func misconfigured(t *testing.T, s *Server, want string) {
	t.Helper()
	r := request("k")
	_, err := contend.Try(t.Context(), s, r)
	shared := r
	shared.Mode = driver.Shared
	_, err2 := contend.Try(t.Context(), s, shared)
	for _, err := range []error{err, err2, contend.Release(t.Context(), s, settled(r))} {
		if err == nil || s.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), want) {
			t.Errorf("%v (class %d), want one that says %q", err, s.Classify(err), want)
		}
	}
}

// Rule: a database without the tables is an error that says how to make them, and stays
// as it was.
func noTables(t *testing.T, d database) {
	db := d.pool(t)
	for _, table := range []string{"hasp_key", "hasp_lease", "hasp_meta"} {
		run(t, db, "DROP TABLE "+table)
	}
	s := d.open(t)
	misconfigured(t, s, "Init of the driver")
	_, err := s.Inspect(t.Context(), "k")
	failIf(t, s.Classify(err) != driver.ClassMisconfigured, "Inspect: %v", err)
	must(t, s.Init(t.Context()))
	granted(t, s, request("k"))
}

// Rule: tables of another version are an error that says what to do, also for a program that used them before.
func otherVersion(t *testing.T, d database) {
	old := d.open(t)
	granted(t, old, request("k"))
	run(t, d.pool(t), "UPDATE hasp_meta SET version = 7")
	misconfigured(t, d.open(t), "version 7, and this program knows 1; this program is older")
	old.ready.Store(&time.Time{}) // as a minute later
	misconfigured(t, old, "version 7")
	run(t, d.pool(t), "UPDATE hasp_meta SET version = 0")
	misconfigured(t, d.open(t), "nothing in them is damaged")
}

// Rule: Init by many at once, beside the use of the tables, changes nothing that is there,
// and no fence is given twice.
func initByMany(t *testing.T, d database) {
	s, key := d.open(t), settled(request("k"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { must(t, d.open(t).Init(context.Background())) })
	}
	var newest uint64
	for range 50 {
		res := granted(t, s, key)
		stopIf(t, res.Fence <= newest, "the fence is %d, after %d", res.Fence, newest)
		newest = res.Fence
		must(t, contend.Release(t.Context(), s, key))
	}
	wg.Wait()
}

// Rule: a database that answers a commit before it is safe is refused.
func unsafeCommits(t *testing.T, d database) {
	held := request("held")
	granted(t, d.open(t), held)
	if d.postgres() {
		d.dsn += "&synchronous_commit=off"
	} else {
		d.dsn += "?autocommit=0"
	}
	s := d.open(t)
	misconfigured(t, s, "a lease would be forgotten")
	s.Renew(t.Context(), []driver.RenewRequest{held.Renewal()}, func(_ int, r driver.Renewal) {
		failIf(t, s.Classify(r.Err) != driver.ClassMisconfigured, "Renew: %+v", r)
	})
}

// expired waits until the lease of a key is over.
func expired(t testing.TB, s *Server, key string) {
	t.Helper()
	waitFor(t, "the lease is over", func() bool {
		info := inspect(t, s, key)
		return !info.Held
	})
}

// Rule: a transaction that waited for the key's row knows what time it is, and since when another owner holds the key.
func clockAfterLock(t *testing.T, d database) {
	s, db := d.open(t), d.pool(t)
	gone, r := request("k"), request("k")
	gone.TTL, gone.Mode = time.Second, driver.Shared // so that it takes a transaction
	r.Mode = driver.Shared
	r.Limit = 1
	granted(t, s, gone)
	began, beside := time.Now(), r
	beside.Key = "held"
	granted(t, s, request(beside.Key))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	var n int
	must(t, tx.QueryRowContext(t.Context(), "SELECT held FROM hasp_key FOR UPDATE").Scan(&n))
	try := func(r contend.Owner) <-chan driver.Result {
		out := make(chan driver.Result, 1)
		go func() {
			res, err := contend.Try(context.Background(), s, queued(r))
			if err != nil {
				t.Error(err)
			}
			out <- res
		}()
		return out
	}
	late, refusal := try(r), try(beside)
	waitFor(t, "it waits for the row", func() bool {
		if d.postgres() {
			return number(t, db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_blocking_pids(pid) && ARRAY(SELECT pid FROM pg_locks WHERE relation = 'hasp_key'::regclass)") > 0
		}
		var name string
		must(t, db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
		return regexp.MustCompile("of table `" + name + "`.`hasp_key` .* waiting\\b").MatchString(innodb(t, db))
	})
	expired(t, s, "k")
	must(t, tx.Commit())
	if res := <-late; !res.Granted || res.TTL < r.TTL {
		t.Errorf("when it got the row, it did not see that the lease was over: %+v", res)
	}
	if res := <-refusal; res.Granted || res.Holder.Since.Before(began) {
		t.Errorf("the key was granted after %v: %+v, since %v", began, res, res.Holder.Since)
	}
}

// sweepNow makes all that is over ready to be swept, and has it swept.
func sweepNow(t testing.TB, s *Server, db *sql.DB) {
	t.Helper()
	run(t, db, "UPDATE hasp_key SET keep = 0 WHERE held = 0 AND others = 0")
	if _, err := s.once(context.Background(), s.db.Conn, func(c *conn) error { return c.sweep(1000) }); err != nil {
		t.Error(err)
	}
}

// Rule: nothing stays of a key, not even its fence; and yet its next is larger, whatever
// fences there were.
func fencesAfterSweep(t *testing.T, d database) {
	s, db := d.open(t), d.pool(t)
	r := settled(request("k"))
	r.Fences = 1000
	var newest uint64
	for range 3 {
		res := granted(t, s, r)
		if res.Fence < newest+uint64(res.Fences) || res.Fences != r.Fences {
			t.Fatalf("%d fences up to %d, after %d", res.Fences, res.Fence, newest)
		}
		newest = res.Fence
		must(t, contend.Release(t.Context(), s, r))
		waitFor(t, "its row is swept, by whomever", func() bool {
			sweepNow(t, s, db)
			return number(t, db, "SELECT count(*) FROM hasp_key") == 0
		})
		if err := contend.Release(t.Context(), s, settled(request("k"))); !errors.Is(err, driver.ErrNotHeld) { // makes a row that knows no fence
			t.Fatal(err)
		}
	}
}

// Rule: tables that were moved without what counts fences give none, and say what mends that, which is Init.
func movedWithoutFences(t *testing.T, d database) {
	s, db := d.open(t), d.pool(t)
	known := settled(request("known"))
	known.Fences = 1000
	newest := granted(t, s, known).Fence
	must(t, contend.Release(t.Context(), s, known))
	reset, advice := "UPDATE hasp_meta SET fence = 0", "UPDATE hasp_meta SET fence"
	if d.postgres() {
		reset, advice = "SELECT setval('hasp_fence', 1, false)", "SELECT setval('hasp_fence'"
	}
	run(t, db, reset)
	shared := request("shared")
	shared.Mode = driver.Shared
	for _, r := range []contend.Owner{known, request("new"), shared} {
		if r.Key == known.Key && !d.postgres() {
			continue // counts in its own row
		}
		res, err := contend.Try(t.Context(), s, r)
		if s.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), advice) {
			t.Errorf("%s: %+v, %v", r.Key, res, err)
		}
	}
	found, err := s.Examine(t.Context())
	must(t, err)
	has(t, found, operator.LevelFail, "fences", advice)
	must(t, s.Init(t.Context()))
	if d.postgres() { // a little behind, so that the next grant would have some fences of the last
		run(t, db, fmt.Sprintf("SELECT setval('hasp_fence', %d)", newest-500))
	}
	for _, r := range []contend.Owner{known, request("new"), shared} {
		if res := granted(t, s, r); res.Fence-uint64(res.Fences) < newest {
			t.Errorf("%s: %d fences to %d, after %d", r.Key, res.Fences, res.Fence, newest)
		}
	}
	if found, err = s.Examine(t.Context()); err != nil || slices.ContainsFunc(found, func(f operator.Finding) bool { return f.Check == "fences" }) {
		t.Errorf("after Init: %+v, %v", found, err)
	}
}

// Rule: whoever releases a lease that is over is told so, in whichever way it is released.
func releasedTooLate(t *testing.T, d database) {
	s := d.open(t)
	for i, r := range []contend.Owner{request("a"), settled(request("b")), settled(request("c"))} {
		r.TTL = 100 * time.Millisecond
		if i == 2 {
			r.Mode = driver.Shared
		}
		granted(t, s, r)
		expired(t, s, r.Key)
		tooLate(t, contend.Release(t.Context(), s, r))
	}
}

// Rule: a key that is swept while it is granted has one holder, and its fences rise. What
// takes a minute in truth takes 50 ms here: a key without a row is granted by a statement
// that lasts for less than half of what a row is kept for.
func sweepsRace(t *testing.T, d database) {
	db := d.pool(t)
	eng := *d.open(t).eng
	eng.text[sGrant] = strings.Replace(eng.text[sGrant], "30 s", "20 ms", 1)
	stop := make(chan struct{})
	var workers, sweepers sync.WaitGroup
	var mu sync.Mutex
	newest, holders := map[string]uint64{}, map[string]int{}
	for range 6 {
		s := newServer(d.pool(t), &eng)
		workers.Go(func() {
			for i := range 300 {
				r := settled(request(fmt.Sprint("k", rand.IntN(100))))
				if i%5 == 0 {
					r.Mode, r.Limit = driver.Shared, 1
				}
				res, err := contend.Try(context.Background(), s, r)
				if err != nil {
					t.Error(err)
				}
				if !res.Granted {
					continue
				}
				mu.Lock()
				if holders[r.Key]++; holders[r.Key] > 1 || res.Fence <= newest[r.Key] {
					t.Errorf("%d hold %s; the fence is %d, after %d", holders[r.Key], r.Key, res.Fence, newest[r.Key])
				}
				newest[r.Key] = res.Fence
				mu.Unlock()
				mu.Lock()
				holders[r.Key]--
				mu.Unlock()
				if err := contend.Release(context.Background(), s, r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sweepers.Go(func() {
		s := d.open(t)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			run(t, db, "UPDATE hasp_key SET keep = 0 WHERE held = 0 AND others = 0 AND label = 'x'")
			run(t, db, "UPDATE hasp_key SET label = 'x' WHERE held = 0 AND others = 0")
			if _, err := s.once(context.Background(), s.db.Conn, func(c *conn) error { return c.sweep(1000) }); err != nil {
				t.Error(err)
			}
		}
	})
	workers.Wait()
	close(stop)
	sweepers.Wait()
}

// overtook is an error of a server that rolled a transaction back.
type overtook struct{ Number uint16 }

func (overtook) Error() string    { return "deadlock" }
func (overtook) SQLState() string { return "40P01" }

// Rule: a transaction that was rolled back because others were faster is done again, a
// bounded number of times, and leaves nothing of the earlier ones.
func overtaken(t *testing.T, d database) {
	s := d.open(t)
	for _, times := range []int{attempts, attempts + 1} {
		n := 0
		err := s.do(t.Context(), func(c *conn) error {
			return c.transact(func() error {
				n++
				if _, err := c.exec(sLock, fmt.Appendf(nil, "%d %d", times, n)); err != nil {
					return err
				}
				if n <= times {
					return fmt.Errorf("it was: %w", &overtook{1213})
				}
				return nil
			})
		})
		if failed := times > attempts; failed != (err != nil) || failed && (!errors.As(err, new(*overtook)) || !driver.IsNotSent(err)) {
			t.Errorf("overtaken %d times: %v", times, err)
		}
		if rows := number(t, d.pool(t), "SELECT count(*) FROM hasp_key"); rows != 1 {
			t.Errorf("%d rows are there", rows)
		}
	}
}
