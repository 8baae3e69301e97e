// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os/signal"
	"syscall"
	"testing"
)

// A signal ends what the doctor does, and is its exit code.
func TestUntilSignal(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		if signal.Ignored(sig) { // these tests run under nohup
			continue
		}
		ctx, stop := untilSignal()
		if end := interruption(ctx); end != nil {
			t.Errorf("before a signal: %v", end)
		}
		must(t, syscall.Kill(syscall.Getpid(), sig))
		<-ctx.Done()
		if end := interruption(ctx); end == nil || end.code != code || end.verdict != "interrupted" || end.interrupted {
			t.Errorf("after %v: %+v", sig, end)
		}
		stop()
	}
	ctx, stop := untilSignal()
	stop()
	if end := interruption(ctx); end != nil {
		t.Errorf("after its end: %v", end)
	}
}
