// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Web lets one request at a time work on an order, on any number of servers.
//
//	go run ./examples/web
//	curl -X POST localhost:8080/orders/42/ship & sleep 1; curl -i -X POST localhost:8080/orders/42/ship
//
// The second request is answered at once: 423 Locked, with the holder. Another order is not busy.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/open"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	http.Handle("POST /orders/{order}/ship", &shipping{locks: locks, pack: pack})
	server := &http.Server{Addr: "localhost:8080"}
	drained := make(chan struct{})
	context.AfterFunc(ctx, func() { defer close(drained); _ = server.Shutdown(context.Background()) }) // the handlers end by themselves
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Print(err)
		return
	}
	<-drained // until no handler works: Close releases the orders
}

// shipping is the handler. saved stands for a database, which compares fences in its own transaction: see ../guard.
type shipping struct {
	locks *hasp.Client
	pack  func(context.Context) error
	saved fence.Memory
}

func (s *shipping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := "orders/" + r.PathValue("order")
	switch err := s.ship(r.Context(), key); {
	case driver.CheckKey(key) != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err == nil:
		fmt.Fprintln(w, "it is shipped")
	case errors.Is(err, hasp.ErrHeld):
		http.Error(w, err.Error(), http.StatusLocked) // it names the holder's host and process: not for strangers
	case errors.Is(err, hasp.ErrLost), errors.Is(err, fence.ErrStale):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (s *shipping) ship(ctx context.Context, key string) error {
	lease, err := s.locks.Mutex(key, &hasp.LockOptions{Reason: "ship"}).TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	ctx = lease.Context(ctx) // ends with the request, and before another server can hold the order
	if err := s.pack(ctx); err != nil {
		return err
	}
	return s.saved.Write(key, lease.Fence(), func() error { return nil })
}

func pack(ctx context.Context) error {
	packed, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	<-packed.Done()
	return context.Cause(ctx)
}
