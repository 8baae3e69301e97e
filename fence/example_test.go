// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/fence"
)

// A row keeps its fence in a column of its own, and the guard compares in the transaction that changes the row.
func ExampleColumn() {
	orders := fence.Column(fence.Postgres, "orders", "id", "fence") // ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0
	ship := func(ctx context.Context, db *sql.DB, id int64, token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // nothing is left to roll back after a commit
		if err := orders.Write(ctx, tx, id, token); err != nil {
			return err // fence.ErrStale: a later holder has written; stop
		}
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET status = 'shipped' WHERE id = $1", id); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = ship
}

// The client sends its lease's fence with each request, and the service refuses a smaller one than it has seen.
func ExampleHandler() {
	var newest fence.Memory
	service := httptest.NewServer(fence.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "stored")
	}), &newest, nil))
	defer service.Close()
	put := func(token uint64) {
		client := &http.Client{Transport: fence.Transport{Fence: token}}
		request, _ := http.NewRequestWithContext(context.Background(), http.MethodPut, service.URL+"/account/7", strings.NewReader("90"))
		answer, err := client.Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer answer.Body.Close()
		fmt.Println(token, answer.StatusCode, errors.Is(fence.Refused(answer), fence.ErrStale))
	}
	put(33)
	put(34)
	put(33) // a holder that was paused meanwhile
	// Output:
	// 33 200 false
	// 34 200 false
	// 33 412 true
}

// A file keeps its newest fence in a file beside it.
func ExampleWriteFile() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ledger := filepath.Join(dir, "ledger.json")
	for _, token := range []uint64{33, 34, 33} {
		err := fence.WriteFile(ledger, fmt.Appendf(nil, "by %d", token), 0o644, token)
		fmt.Println(token, errors.Is(err, fence.ErrStale))
	}
	text, _ := os.ReadFile(ledger)
	fmt.Println(string(text))
	// Output:
	// 33 false
	// 34 false
	// 33 true
	// by 34
}
