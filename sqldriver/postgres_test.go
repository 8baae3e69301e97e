// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: a statement that chose its fence, and then stood still while the key was granted
// to another, released and swept, does not grant with that fence.
func TestLateInsertion(t *testing.T) {
	t.Parallel()
	d := newPostgres(t, testserver.Postgres(t))
	db := d.pool(t)
	run(t, db, "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END'")
	run(t, db, "CREATE TRIGGER late BEFORE INSERT ON hasp_key FOR EACH ROW EXECUTE FUNCTION late()")
	gate, err := db.Conn(t.Context())
	must(t, err)
	defer gate.Close()
	_, err = gate.ExecContext(t.Context(), "SELECT pg_advisory_lock(7)")
	must(t, err)
	eng := *postgresEngine()
	eng.text[sGrant] = strings.Replace(eng.text[sGrant], "30 s", "1 s", 1)
	slow := newServer(d.pool(t), &eng)
	quick := d
	quick.dsn += "&session_replication_role=replica" // without triggers
	near := quick.open(t)
	r := settled(request("k"))
	out := make(chan driver.Result, 1)
	go func() {
		res, err := contend.Try(context.Background(), slow, request("k"))
		if err != nil {
			t.Error(err)
		}
		out <- res
	}()
	waitFor(t, "it has chosen a fence", func() bool {
		return number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'") > 0
	})
	fence := granted(t, near, r).Fence
	must(t, contend.Release(t.Context(), near, r))
	waitFor(t, "the key is swept", func() bool {
		sweepNow(t, near, db)
		return number(t, db, "SELECT count(*) FROM hasp_key") == 0
	})
	waitFor(t, "its statement is late", func() bool {
		return number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND clock_timestamp() - query_start > interval '2 s'") > 0
	})
	_, err = gate.ExecContext(t.Context(), "SELECT pg_advisory_unlock(7)")
	must(t, err)
	if res := <-out; !res.Granted || res.Fence <= fence {
		t.Errorf("granted with the fence %d after %d: %+v", res.Fence, fence, res)
	}
}

// Rule: who stops within a transaction delays a key by a few seconds, and its transaction
// is none any more.
func TestStoppedInATransaction(t *testing.T) {
	t.Parallel()
	d := newPostgres(t, testserver.Postgres(t))
	stopped, s, r := d.open(t), d.open(t), request("k")
	r.Mode = driver.Shared // which takes a transaction
	locked, goOn := make(chan struct{}), make(chan struct{})
	out := make(chan error, 1)
	go func() {
		out <- stopped.do(context.Background(), func(c *conn) error {
			return c.locked(request("k").Claim(), func(*keyTx) error {
				close(locked)
				<-goOn
				return nil
			})
		})
	}()
	<-locked
	began := time.Now()
	granted(t, s, r)
	t.Logf("granted after %v", time.Since(began))
	close(goOn)
	if err := <-out; err == nil {
		t.Error("its transaction goes on")
	}
}

// Rule: where each statement of a connection has a snapshot of its own transaction, one that was overtaken is sent again.
func TestOvertakenBeforeTheLook(t *testing.T) {
	t.Parallel()
	d := newPostgres(t, testserver.Postgres(t))
	db := d.pool(t)
	d.dsn += "&default_transaction_isolation=repeatable%20read"
	s := d.open(t)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), s.eng.text[sLock], []byte("k"))
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- s.do(t.Context(), func(c *conn) error {
			return c.onKey(request("k").Claim(), &keyView{}, func(*keyTx) error { return nil })
		})
	}()
	waitFor(t, "it stands behind another's transaction", func() bool {
		return number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'") > 0
	})
	must(t, tx.Commit())
	must(t, <-ended)
}
