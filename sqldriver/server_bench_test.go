// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
)

func BenchmarkPostgres(b *testing.B) {
	drivertest.Bench(b, harness(b, testserver.Postgres, newPostgres))
}

func BenchmarkMySQL(b *testing.B) {
	drivertest.Bench(b, harness(b, testserver.MariaDB, newMySQL))
}

// BenchmarkRatio compares a lock and a release of a free key with two floors, in turn on one server:
// a session's own lock (two requests, and no commit) and two durable commits of one row. Its
// figures are medians in microseconds of a pair, and how many times as long hasp takes.
//
// "Synced" is a server that syncs each commit to the disk of TMPDIR.
func BenchmarkRatio(b *testing.B) {
	for _, kind := range []struct {
		name     string
		made     func(b *testing.B) database
		advisory [2]string
	}{
		{"Postgres", func(b *testing.B) database { return newPostgres(b, testserver.Postgres(b)) }, postgresAdvisory},
		{"PostgresSynced", func(b *testing.B) database { return newPostgres(b, testserver.Postgres(b, "fsync=on")) }, postgresAdvisory},
		{"MySQL", func(b *testing.B) database { return newMySQL(b, testserver.MariaDB(b)) }, mysqlAdvisory},
	} {
		b.Run(kind.name, func(b *testing.B) {
			ratio(b, kind.made(b), kind.advisory)
		})
	}
}

var (
	postgresAdvisory = [2]string{"SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"}
	mysqlAdvisory    = [2]string{"SELECT GET_LOCK(CONCAT(?, ''), 1)", "SELECT RELEASE_LOCK(CONCAT(?, ''))"}
)

func ratio(b *testing.B, d database, advisory [2]string) {
	db := d.pool(b)
	s := d.open(b)
	run(b, db, "CREATE TABLE bare (id INTEGER PRIMARY KEY, v BIGINT NOT NULL)")
	run(b, db, "INSERT INTO bare VALUES (1, 0)")
	key := settled(request("k"))
	kinds := []func(){
		pairOn(b, db, advisory, int64(7)),
		pairOn(b, db, [2]string{"UPDATE bare SET v = v + 1 WHERE id = " + d.placeholder(), "UPDATE bare SET v = v - 1 WHERE id = " + d.placeholder()}, int64(1)),
		func() {
			key.Owner = request("k").Owner
			if res, err := contend.Try(b.Context(), s, key); err != nil || !res.Granted {
				b.Fatalf("Try of a free key: %+v, %v", res, err)
			}
			must(b, contend.Release(b.Context(), s, key))
		},
	}
	took := make([][]time.Duration, len(kinds))
	const inTurn = 20
	for b.Loop() {
		for i, pair := range kinds {
			for range inTurn {
				start := time.Now()
				pair()
				took[i] = append(took[i], time.Since(start))
			}
		}
	}
	var median [3]float64
	for i, all := range took {
		slices.Sort(all)
		median[i] = float64(all[len(all)/2].Nanoseconds()) / 1000
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median[0], "advisory-µs")
	b.ReportMetric(median[1], "durable-µs")
	b.ReportMetric(median[2], "hasp-µs")
	b.ReportMetric(median[2]/median[0], "x-advisory")
	b.ReportMetric(median[2]/median[1], "x-durable")
}

// pairOn returns two statements on a connection of their own, with one argument.
func pairOn(b *testing.B, db *sql.DB, texts [2]string, arg any) func() {
	c, err := db.Conn(b.Context())
	must(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return func() {
		for _, text := range texts {
			if _, err := c.ExecContext(b.Context(), text, arg); err != nil {
				b.Fatal(fmt.Errorf("%s: %w", text, err))
			}
		}
	}
}

func (d database) placeholder() string {
	if d.postgres() {
		return "$1"
	}
	return "?"
}
