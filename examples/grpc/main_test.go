// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/open"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// While a call works on an order, one on another server gives up and names the holder, and one on a third has its turn afterwards.
func TestCallsTakeTurns(t *testing.T) {
	url, waiting, handled, finish := "sqlite:"+t.TempDir()+"/locks.db", make(chan bool, 2), make(chan uint64, 2), make(chan bool)
	call := func(ctx context.Context) <-chan error {
		locks, err := open.Client(t.Context(), url, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Waiting && e.WaiterDelta == 1 {
				waiting <- true
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close() })
		intercept, answer := exclusive(locks, orderKey), make(chan error, 1)
		go func() {
			_, err := intercept(ctx, &health.HealthCheckRequest{Service: "42"}, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
				handled <- ctx.Value(fenceKey{}).(uint64)
				<-finish
				return nil, ctx.Err()
			})
			answer <- err
		}()
		return answer
	}
	first := call(t.Context())
	fence := <-handled
	ctx, cancel := context.WithCancel(t.Context())
	impatient, patient := call(ctx), call(t.Context())
	<-waiting
	<-waiting
	cancel()
	if err := <-impatient; status.Code(err) != codes.Canceled || !strings.Contains(err.Error(), "held by ") {
		t.Errorf("the call that gave up is answered %v", err)
	}
	close(finish)
	if a, b, next := <-first, <-patient, <-handled; a != nil || b != nil || next <= fence {
		t.Errorf("the calls are answered %v and %v, with fences %d and %d", a, b, fence, next)
	}
}

// A handler that goes on although its lock is gone is not answered as if it had held it; a request without an order has no lock.
func TestLostLock(t *testing.T) {
	locks, err := open.Client(t.Context(), "sqlite:"+t.TempDir()+"/locks.db", nil)
	if err != nil {
		t.Fatal(err)
	}
	intercept := exclusive(locks, orderKey)
	ask := func(request any) codes.Code {
		_, err := intercept(t.Context(), request, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
			if ctx.Value(fenceKey{}) != nil {
				_ = locks.Close()
			}
			return nil, nil
		})
		return status.Code(err)
	}
	if code := ask("of another service"); code != codes.OK {
		t.Errorf("a request without an order is answered %v", code)
	}
	if code := ask(&health.HealthCheckRequest{Service: "42"}); code != codes.Aborted {
		t.Errorf("a call that lost its lock is answered %v", code)
	}
}
