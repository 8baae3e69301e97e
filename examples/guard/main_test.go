// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// What the second holder saved stands, since the first one's late write was refused.
func TestLateWriteIsRefused(t *testing.T) {
	db, err := sql.Open("pgx", "postgres://postgres@"+testserver.Postgres(t).Addr()+"/postgres?sslmode=disable")
	if err == nil {
		err = run(t.Context(), db)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var status string
	if err := db.QueryRow("SELECT status FROM hasp_example WHERE id = 42").Scan(&status); err != nil || status != "shipped" {
		t.Errorf("the order is %q, %v", status, err)
	}
}
