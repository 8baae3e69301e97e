// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldrv "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/stall"
	sqlite3 "github.com/ncruces/go-sqlite3/driver"
)

// Rule: any number of processes may meet a file that does not exist yet.
func TestProcessesMakeTheTablesAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		path := newFile(t)
		all := ready(t, 6, func(i int) *process { return start(t, "first", path, fmt.Sprintf("key %d", i)) })
		beginAll(all)
		fences := map[string]bool{}
		for _, p := range all {
			fence, ok := strings.CutPrefix(p.says("granted"), "true ")
			stopIf(t, !ok || fences[fence], "granted %q, and before: %v", fence, fences)
			fences[fence] = true
		}
	}
}

// Rule: a process that is killed while it makes the tables leaves none.
func TestKilledWhileItMakesTheTables(t *testing.T) {
	path := newFile(t)
	p := start(t, "write", path, sqliteTables)
	p.says("writing")
	must(t, p.Process.Kill())
	_ = p.Wait()
	granted(t, openDriver(t, path), request("k"))
}

// Rule: while another program has the file open in WAL, nothing is granted, and the
// error says so; when it has closed it, the file is switched, and what it holds stands.
func TestOpenInWAL(t *testing.T) {
	path, held := newFile(t), request("k")
	db, err := sql.Open("sqlite3", patientDSN(path))
	must(t, err)
	first := waiting(db)
	granted(t, first, held)
	must(t, errors.Join(first.Close(), db.Close()))
	other, err := sql.Open("sqlite3", walDSN(path))
	must(t, err)
	defer other.Close()
	var version int
	must(t, other.QueryRow("SELECT version FROM hasp_meta").Scan(&version)) // a read has it open, and keeps it so

	connector, err := (&sqlite3.SQLite{}).OpenConnector(SQLiteDSN(path))
	must(t, err)
	failing := &countingConnector{Connector: connector}
	pool := sql.OpenDB(failing)
	defer pool.Close()
	d := NewSQLite(pool)
	d.endLimit = time.Minute // on a busy machine it takes a while to end
	defer d.Close()
	done := make(chan error)
	haveFailed := func(n int64) {
		t.Helper()
		before := failing.failed.Load()
		waitFor(t, "connections have failed", func() bool { return failing.failed.Load() >= before+n })
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := d.Inspect(ctx, "k")
		done <- err
	}()
	haveFailed(1)
	cancel()
	err = <-done
	if !errors.Is(err, context.Canceled) || d.Classify(err) != driver.ClassUnreachable || !strings.Contains(err.Error(), "stayed locked") ||
		!strings.Contains(err.Error(), "open in WAL") {
		t.Errorf("Inspect: %v", err)
	}
	go func() {
		_, err := contend.Try(t.Context(), d, request("another"))
		done <- err
	}()
	haveFailed(3)
	must(t, other.Close())
	must(t, <-done)
	refused(t, d, request("k"))
	renewed(t, d, held)
}

// Rule: a program that switches the file to WAL while others use it costs them a call,
// and no lease.
func TestSwitchedToWAL(t *testing.T) {
	path := newFile(t)
	all := []*Driver{openDriver(t, path), openDriver(t, path), openDriver(t, path)}
	held := request("k")
	granted(t, all[0], held)
	for range 3 {
		for _, d := range all { // a connection for reading, and one in a transaction
			refused(t, d, request("k"))
			granted(t, d, request(rand.Text()))
		}
		other, err := sql.Open("sqlite3", walDSN(path))
		must(t, err)
		must(t, errors.Join(other.Ping(), other.Close()))
		said := 0
		for _, d := range all {
			_, err := d.Inspect(t.Context(), "k")
			for ; err != nil; _, err = d.Inspect(t.Context(), "k") {
				said++
				if d.Classify(err) != driver.ClassUnreachable {
					t.Fatal(err)
				}
			}
			contend.Renew(t.Context(), all[0], []contend.Owner{held}, func(_ int, r driver.Renewal) { err = r.Err })
			if errors.Is(err, driver.ErrNotHeld) {
				t.Error(err)
			}
		}
		failIf(t, said == 0, "no call says that the file was switched")
		renewed(t, all[0], held)
		refused(t, all[1], request("k"))
		if _, err := os.Stat(path + "-wal"); err == nil {
			t.Error("the file is in WAL still")
		}
	}
}

// countingConnector counts the connections that cannot be opened.
type countingConnector struct {
	sqldrv.Connector
	failed atomic.Int64
}

func (c *countingConnector) Connect(ctx context.Context) (sqldrv.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		c.failed.Add(1)
	}
	return conn, err
}

// Rule: of several processes that share the file one holds the key at a time,
// and the fence of each is larger than the one's before.
func TestProcessesShareAFile(t *testing.T) {
	t.Parallel()
	const processes, rounds = 6, 25
	path, log := newFile(t), filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(log, nil, 0o600))
	all := ready(t, processes, func(_ int) *process { return start(t, "work", path, "orders/42", log, strconv.Itoa(rounds)) })
	began := time.Now()
	beginAll(all)
	for _, p := range all {
		t.Logf("worst wait: %s", p.says("worst"))
	}
	t.Logf("%.0f handoffs a second", processes*rounds/time.Since(began).Seconds())
	checkLog(t, log, processes*rounds)
}

// checkLog fails if a line is missing, or a fence is not above the previous one.
func checkLog(t *testing.T, log string, want int) {
	t.Helper()
	text, err := os.ReadFile(log)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	failIf(t, len(lines) != want, "%d lines, want %d", len(lines), want)
	var last uint64
	for i, line := range lines {
		var number int
		var fence uint64
		if _, err := fmt.Sscan(line, &number, &fence); err != nil || number != i || fence <= last {
			t.Fatalf("line %d is %q after the fence %d", i, line, last)
		}
		last = fence
	}
}

// Rule: the key of a process that was killed is granted to another after its
// TTL, not before and not much later, and the next holder learns that it was abandoned.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	d := openDriver(t, path)
	const ttl = 10 * time.Second
	begun := time.Now()
	p := start(t, "hold", path, "orders/42", ttl.String())
	fence, err := strconv.ParseUint(p.says("held"), 10, 64)
	must(t, err)
	must(t, p.Process.Kill())
	_ = p.Wait()
	r, asks := request("orders/42"), time.Now()
	res := try(t, d, queued(r)) // on a slow machine the lease may be over
	left, over := res.Left, time.Now().Add(res.Left)
	if !res.Granted && (left > ttl || !strings.Contains(res.Holder.Label, strconv.Itoa(p.Process.Pid))) {
		t.Errorf("held by %+v for %v", res.Holder, left)
	}
	for !res.Granted {
		failIf(t, res.RetryIn > res.Left+time.Second, "it is to look after %v, and the lease has %v left", res.RetryIn, res.Left)
		time.Sleep(res.RetryIn)
		asked := time.Now()
		res = try(t, d, queued(r))
		failIf(t, !res.Granted && asked.After(over), "refused %v after the end of the lease", asked.Sub(over))
	}
	if took := time.Since(begun); took < ttl || time.Since(asks) < left {
		t.Errorf("granted %v after its holder began, for %v, with %v left", took, ttl, left)
	}
	failIf(t, !res.Abandoned || res.Fence <= fence, "%+v, after the fence %d", res, fence)
}

// Rule: a process that is killed within a transaction leaves nothing of it,
// and holds up nobody.
func TestKilledWriter(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	p := start(t, "write", path, "DELETE FROM hasp_lease; UPDATE hasp_meta SET fence = fence + 1000000000")
	p.says("writing")
	must(t, p.Process.Kill())
	_ = p.Wait()
	res := granted(t, d, request("orders/42"))
	failIf(t, res.Fence > uint64(time.Now().UnixMicro()), "the fence is %d", res.Fence)
	refused(t, d, request("held"))
}

// Rule: while another process keeps the file locked, a call ends with its
// context, or after five seconds, with an error that says so; what needs only
// a read is answered; and nothing is left of what was given up.
func TestLockedFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	d.fileWait = fileWait
	waiter := request("orders/42")
	granted(t, d, waiter)
	p := start(t, "write", path, "SELECT 1")
	p.says("writing")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := request("free")
	go func() {
		for !d.writes.waits() && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // no event says that the transaction waits for the file
		}
		cancel()
	}()
	_, err := contend.Try(ctx, d, gone)
	locked(t, d, path, err)
	failIf(t, !errors.Is(err, context.Canceled), "it did not end with its context, but with %v", err)

	refused(t, d, request("orders/42"))
	if info, err := d.Inspect(t.Context(), "orders/42"); err != nil || !info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}

	began, lost := time.Now(), stall.Watch(t)
	err = contend.Release(t.Context(), d, request("free"))
	if took := time.Since(began); took < fileWait-time.Second || took > fileWait+2*time.Second+lost() {
		t.Errorf("Release returned after %v", took)
	}
	locked(t, d, path, err)

	must(t, p.Process.Kill())
	_ = p.Wait()
	tooLate(t, contend.Release(t.Context(), d, gone))
}

// Rule: a lease that is lost since the file was locked says so, and is not taken
// for that of a process that was stopped.
func TestLostToALockedFile(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{2 * time.Second, 12 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			path, lost := newFile(t), stall.Watch(t)
			d := openDriver(t, path)
			d.fileWait = fileWait
			locks, err := hasp.New(d, nil)
			must(t, err)
			defer locks.Close()
			lease, err := locks.Mutex("k", &hasp.LockOptions{TTL: ttl}).Lock(t.Context())
			must(t, err)
			unlock := lockFile(t, path)
			<-lease.Done()
			unlock("SELECT 1")
			err = lease.Err()
			t.Logf("%v", err)
			says := func(text string) bool { return strings.Contains(err.Error(), text) }
			if !errors.Is(err, hasp.ErrLost) || !says("stayed locked for") && !says("the store has not answered") &&
				(!says("process stopped") || lost() < ttl/4) { // it may have been, on a slow machine
				t.Error("it does not say why")
			}
		})
	}
}

// locked fails unless the error says that the file is locked.
func locked(t *testing.T, d *Driver, path string, err error) {
	t.Helper()
	t.Logf("%v", err)
	if err == nil || d.Classify(err) != driver.ClassUnreachable ||
		!strings.Contains(err.Error(), "stayed locked for") || !strings.Contains(err.Error(), "fuser -v "+path) {
		t.Errorf("class %d: %v", d.Classify(err), err)
	}
}
