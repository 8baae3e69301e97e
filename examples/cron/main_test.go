// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/open"
)

// While one of three replicas does the job the others find the key held, and also after it, when their clocks are late.
func TestOneReplicaDoesTheJob(t *testing.T) {
	url := "sqlite:" + t.TempDir() + "/locks.db"
	try := func(ctx context.Context, atLeast time.Duration, job func()) error {
		locks, err := open.Client(t.Context(), url, nil)
		if err != nil {
			return err
		}
		defer locks.Close()
		return once(ctx, locks.Mutex("nightly", nil), atLeast, func(context.Context, uint64) error { job(); return nil })
	}
	late := func() error { return try(t.Context(), 0, func() { t.Error("another replica does the job, too") }) }
	refused := func() bool { a, b := late(), late(); return errors.Is(a, hasp.ErrHeld) && errors.Is(b, hasp.ErrHeld) }
	ctx, stop := context.WithCancel(t.Context())
	ran, ended := make(chan bool), make(chan error)
	go func() { ended <- try(ctx, time.Hour, func() { ran <- refused() }) }()
	during, after := <-ran, refused()
	stop()
	if err := <-ended; err != nil || !during || !after {
		t.Errorf("the job ends with %v; others are refused during it: %v, after it: %v", err, during, after)
	}
}
