// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/stall"
)

// Rule: without a database the driver says so, at hasp.New and in every call.
func TestNoDatabase(t *testing.T) {
	d := NewSQLite(nil)
	defer d.Close()
	if err := d.Check(); err == nil || d.Classify(err) != driver.ClassMisconfigured {
		t.Errorf("Check: %v", err)
	}
	_, err := contend.Try(t.Context(), d, request("k"))
	_, err2 := d.Inspect(t.Context(), "k")
	_, err3 := contend.Watch(t.Context(), d, request("k"))
	for _, err := range []error{err, err2, err3, contend.Release(t.Context(), d, request("k"))} {
		failIf(t, !errors.Is(err, d.Check()), "%v", err)
	}
}

// Rule: a key that cannot be one is refused before any I/O.
func TestKeysOfNoLength(t *testing.T) {
	d := NewSQLite(openFile(t, "/nowhere/locks.db"))
	defer d.Close()
	for _, key := range []string{"", strings.Repeat("k", driver.MaxKey+1)} {
		_, err := d.Inspect(t.Context(), key)
		if err == nil || !strings.Contains(err.Error(), "must be 1 to 512") {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
}

// Rule: a key that this driver released last is asked for without a read before. Where another was faster that is
// seen, and the next refusal is a read, for which no writer waits.
func TestReleasedKeyIsAskedForAtOnce(t *testing.T) {
	path := newFile(t)
	other := openDriver(t, path)
	var looked atomic.Int32
	d := newDriver(openDSN(t, patientDSN(path)), func() (reading, error) {
		looked.Add(1)
		return system()
	}, time.Now)
	d.fileWait = time.Hour
	t.Cleanup(func() { must(t, d.Close()) })
	grant := func(times int32) {
		r := settled(request("k"))
		looked.Store(0)
		granted(t, d, r)
		failIf(t, looked.Load() != times, "it looked at the clock %d times, want %d", looked.Load(), times)
		must(t, contend.Release(t.Context(), d, r))
	}
	grant(2)
	grant(1)
	granted(t, other, request("k"))
	refused(t, d, request("k"))
	unlock := lockFile(t, path)
	defer unlock("SELECT 1")
	refused(t, d, request("k"))
}

// Rule: what arrives while a transaction runs travels together in the next,
// and a Release stays behind the Try that came before it.
func TestJobsTravelTogether(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	before := commits(t, path)
	unlock := lockFile(t, path)
	var wg sync.WaitGroup
	wg.Go(func() { granted(t, d, request("first")) })
	waitFor(t, "the first waits for the file", d.writes.waits)
	const n = 20
	for i := range n {
		r := request(fmt.Sprint(i))
		at := d.writes.queued()
		wg.Go(func() { granted(t, d, r) })
		waitFor(t, "the Try is queued", func() bool { return d.writes.queued() == at+1 })
		wg.Go(func() { must(t, contend.Release(t.Context(), d, r)) })
		waitFor(t, "the Release is queued", func() bool { return d.writes.queued() == at+2 })
	}
	unlock("SELECT 1")
	wg.Wait()
	if n := commits(t, path) - before; n != 2 {
		t.Errorf("%d transactions for the first and then the others, want 2", n)
	}
}

// commits is how many transactions have changed a file, as SQLite counts them in it.
func commits(t testing.TB, path string) int {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	var n [4]byte
	_, err = f.ReadAt(n[:], 24)
	must(t, err)
	return int(binary.BigEndian.Uint32(n[:]))
}

// Rule: of a job that fails nothing stays; those beside it are carried out.
func TestFailedJobLeavesNothing(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	unlock := lockFile(t, path)
	var wg sync.WaitGroup
	wg.Go(func() { granted(t, d, request("first")) })
	waitFor(t, "the first waits for the file", d.writes.waits)
	bad := errors.New("bad")
	wg.Go(func() {
		err := d.writes.do(t.Context(), 1, func(tx *tx) error {
			if _, err := tx.try(request("bad").Vote()); err != nil {
				return err
			}
			return bad
		})
		failIf(t, !errors.Is(err, bad), "%v", err)
	})
	waitFor(t, "the bad one is queued", func() bool { return d.writes.queued() == 1 })
	wg.Go(func() { granted(t, d, request("good")) })
	waitFor(t, "the good one is queued", func() bool { return d.writes.queued() == 2 })
	unlock("SELECT 1")
	wg.Wait()
	granted(t, d, request("bad"))
	refused(t, d, request("good"))
}

// Rule: a call whose context ended leaves the queue, and is never carried out.
func TestLeaversAreNotServed(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	unlock := lockFile(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	leave := func(key string) {
		if _, err := contend.Try(ctx, d, request(key)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	wg.Go(func() { leave("first") })
	waitFor(t, "the first waits for the file", d.writes.waits)
	for i := range 4 {
		wg.Go(func() { leave(fmt.Sprint(i)) })
	}
	waitFor(t, "the others are queued", func() bool { return d.writes.queued() == 4 })
	cancel()
	wg.Wait()
	if n := d.writes.queued(); n != 0 {
		t.Errorf("%d are still queued", n)
	}
	unlock("SELECT 1")
	for info, err := range d.List(t.Context(), "") {
		must(t, err)
		failIf(t, info.Key != "held", "%+v", info)
	}
	granted(t, d, request("first"))
}

// Rule: after Close calls fail, and the caller's database stays open.
func TestClose(t *testing.T) {
	db := openFile(t, newFile(t))
	d := NewSQLite(db)
	r := request("k")
	granted(t, d, r)
	must(t, d.Close())
	if err := contend.Release(t.Context(), d, r); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Release after Close: %v", err)
	}
	must(t, db.Ping())
	must(t, d.Close())
}

// Rule: Close does not wait for ever for requests that were given up.
func TestCloseOfAHangingDatabase(t *testing.T) {
	t.Parallel()
	d := NewSQLite(openFile(t, newFile(t)))
	d.fileWait = time.Minute // for the first transaction on a slow disk
	begun, hang := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() {
		out <- d.writes.do(ctx, 1, func(*tx) error {
			close(begun)
			<-hang
			return nil
		})
	}()
	select {
	case <-begun:
	case err := <-out:
		t.Fatalf("it did not begin: %v", err)
	}
	cancel()
	if err := <-out; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	began, lost := time.Now(), stall.Watch(t)
	if err := d.Close(); err == nil || time.Since(began) > fileWait+5*time.Second+lost() {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	close(hang)
	must(t, d.Close())
}

// Rule: a Renew of many leases goes in many transactions, so that others get
// at the file between them.
func TestRenewOfManyLetsOthersIn(t *testing.T) {
	path := newFile(t)
	d := openDriver(t, path)
	var rs []contend.Owner
	must(t, d.writes.do(t.Context(), 1, func(tx *tx) error {
		for i := range 4000 {
			rs = append(rs, request(fmt.Sprint(i)))
			rs[i].TTL = time.Hour // a busy machine takes more than half a minute to grant so many
			if _, err := tx.try(rs[i].Vote()); err != nil {
				return err
			}
		}
		return nil
	}))
	before := commits(t, path)
	began := time.Now()
	contend.Renew(t.Context(), d, rs, func(i int, r driver.Renewal) {
		failIf(t, r.Err != nil || r.TTL <= 0, "renewal %d: %+v", i, r)
	})
	t.Logf("renewed in %v", time.Since(began))
	if want := (len(rs) + maxWeight - 1) / maxWeight; commits(t, path)-before != want {
		t.Errorf("%d transactions for %d leases, want %d", commits(t, path)-before, len(rs), want)
	}
}

// Rule: a process that writes all the time leaves the file to others that write, and to
// nobody else.
func TestWriterYieldsToOtherProcesses(t *testing.T) {
	path := newFile(t)
	a, b := openDriver(t, path), openDriver(t, path)
	for range 3 {
		granted(t, a, request(rand.Text()))
	}
	failIf(t, !a.writes.others.IsZero(), "nobody else wrote")
	granted(t, b, request(rand.Text()))
	granted(t, a, request(rand.Text()))
	if a.writes.others.IsZero() || a.writes.took <= 0 {
		t.Errorf("another wrote: seen at %v, and %v is left to it", a.writes.others, a.writes.took)
	}
}
