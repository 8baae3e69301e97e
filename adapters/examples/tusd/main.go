// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Tusd takes uploads that can be resumed, on any of several servers that share a folder.
//
//	go run ./tusd -listen localhost:8080
//
// Start another one at localhost:8081, and resume at it what a client uploads to the first: that one is asked to let go. Kill the first one:
// the other one goes on when its lease is over.
package main

import (
	"cmp"
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	tusdlock "github.com/hasplock/hasp/adapters/tusd"
	"github.com/hasplock/hasp/open"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
)

var listen = flag.String("listen", "localhost:8080", "the address to listen at")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	if err := os.MkdirAll("uploads", 0o755); err != nil {
		return err
	}
	composer := handler.NewStoreComposer()
	filestore.New("uploads").UseIn(composer)
	composer.UseLocker(tusdlock.New(locks, &hasp.LockOptions{Lead: time.Second}))
	h, err := handler.NewHandler(handler.Config{BasePath: "/files/", StoreComposer: composer})
	if err != nil {
		return err
	}
	http.Handle("/files/", http.StripPrefix("/files/", h))
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	log.Printf("uploads go to http://%s/files/", l.Addr())
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return server.Serve(l)
}
